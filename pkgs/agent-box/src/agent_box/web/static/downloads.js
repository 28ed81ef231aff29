// The list of ~/downloads, or of a directory in it.
import { $, base, call, h, size, when } from "./core.js";

/** Ends of the names of files that a browser shows: pictures and text. */
const VIEWABLE = new Set(("png jpg jpeg gif webp txt md log json jsonl csv py js ts sh nix toml yaml yml diff patch rs go c h").split(" "));

/** The directory, as the address spells it: "", or names that each end with a slash. */
const inner = location.pathname.slice(`${base}/downloads/`.length);

const ending = (name) => name.slice(name.lastIndexOf(".") + 1).toLowerCase();

function shown(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // no UTF-8
  }
}

function row(item) {
  const slash = item.directory ? "/" : "", name = item.name + slash;
  const view = !item.directory && VIEWABLE.has(ending(item.name));
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `./${item.path}${slash}` }, name)),
    h("td", { class: "number" }, item.directory ? "" : size(item.size)),
    h("td", {}, h("time", { datetime: new Date(item.modified * 1000).toISOString() }, when(item.modified))),
    h("td", { class: "do" }, view ? h("a", { href: `./${item.path}?view`, "aria-label": `View ${name}` }, "View") : null));
}

function table(entries) {
  const head = [["Name"], ["Size", "number"], ["Changed"]].map(([text, kind]) => h("th", { scope: "col", class: kind ?? null }, text));
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, head, h("th", { scope: "col" }, h("span", { class: "hidden" }, "Actions")))),
    h("tbody", {}, entries.map(row))));
}

async function show() {
  const found = $("found");
  $("place").textContent = `~/downloads/${shown(inner)}`.replace(/\/$/, "");
  let content;
  try {
    const { entries } = await call("GET", inner ? `downloads/${inner}` : "downloads");
    content = entries.length ? table(entries)
      : h("p", { class: "empty" }, "Nothing here yet. What an agent puts into ", h("code", {}, "~/downloads"), " appears on this page.");
  } catch (error) {
    content = h("p", { role: "alert" }, error.message);
  }
  found.replaceChildren(...(inner ? [h("p", {}, h("a", { href: "../" }, "Up one directory"))] : []), content);
  found.removeAttribute("aria-busy");
}

show();
