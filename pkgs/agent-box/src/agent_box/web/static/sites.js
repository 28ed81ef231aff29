// The card about sites: what is published, under which address, and for whom.
import { call, h, iconButton, run, toast } from "./core.js";
import { form } from "./dialogs.js";
import { icon, stateIcon } from "./icons.js";
import { follow } from "./live.js";
import { loading, rows, table } from "./tables.js";

const LOOK = { served: "running", waiting: "waiting", refused: "failed" };
const path = (name) => `sites/${encodeURIComponent(name)}`;

export function sites(section, head) {
  let known = { domain: "", tail: "" };
  let again;
  head.append(h("button", { type: "button", class: "small primary", onclick: () => add() }, icon("add"), "Publish a site"));
  section.append(h("p", { class: "hint" }, "A program that listens on a port of this machine, or a folder below ~/sites, under an address of its own. Agents do the same with agent-box-site."));
  const problem = h("div", { class: "notice warn", hidden: true });
  section.append(problem);
  const body = table(section, "Sites", ["Name", "State", "Shows", "For whom", ""]);

  const load = loading(section, async () => {
    known = await call("GET", "sites");
    const words = [known.problem && `The list of sites (~/.config/agent-box/sites.json): ${known.problem}.`, known.pending && "The latest change is not taken up yet."].filter(Boolean);
    problem.hidden = !words.length;
    problem.replaceChildren(...words.map((text) => h("p", {}, text)));
    rows(body, known.sites, (site) => site.name, row, "Nothing is published.");
    // The box does not tell when a program begins to listen.
    clearTimeout(again);
    if (known.sites.some((site) => site.state === "waiting")) again = setTimeout(() => section.isConnected && !document.hidden && load(), 10_000);
  });

  const row = (site) => h("tr", {},
    h("th", { scope: "row" }, site.url ? h("a", { href: site.url, target: "_blank", rel: "noopener" }, site.name) : site.name),
    h("td", {}, h("span", { class: "state" }, stateIcon(LOOK[site.state] ?? "stopped"), h("b", {}, site.state)), site.reason ? h("div", { class: "hint" }, site.reason) : null),
    h("td", { class: "place" }, site.target ?? ""),
    h("td", {}, site.public === null ? "" : site.public ? "everybody" : "behind the login"),
    h("td", { class: "do" },
      site.public === null ? null : h("button", { type: "button", class: "small", "aria-label": site.public ? `Make private: ${site.name}` : `Make public: ${site.name}`, onclick: (event) => (site.public ? run(event.currentTarget, () => access(site, false)) : open(site)) }, site.public ? "Make private" : "Make public"),
      iconButton("close", `Remove ${site.name}`, () => remove(site))));

  async function access(site, everybody) {
    await call("PATCH", path(site.name), { public: everybody });
    toast(`${site.name} is ${everybody ? "open to everybody" : "behind the login"} now.`);
    load();
  }
  function open(site) {
    form(`Open ${site.name} to everybody?`, h("p", {}, `Anybody on the internet can then look at ${site.url} without a password.`), "Open it", () => access(site, true), { danger: true, keep: false });
  }
  function remove(site) {
    form(`Remove ${site.name}?`, h("p", {}, "Its address leads nowhere then. The program goes on, the folder stays."), "Remove", async () => {
      await call("DELETE", path(site.name));
      toast(`${site.name} is published no more.`);
      load();
    }, { danger: true, keep: false });
  }
  function add() {
    const plain = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
    const address = h("p", { class: "hint" });
    const name = h("input", { name: "name", required: true, maxlength: 40, pattern: "[a-z0-9]([a-z0-9\\-]*[a-z0-9])?", title: "a to z, 0 to 9 and -", oninput: () => { address.textContent = name.value ? `https://${name.value}${known.tail}.${known.domain}/` : ""; }, ...plain });
    const kind = h("select", { name: "kind", onchange: () => turn() }, h("option", { value: "port" }, "A program that listens on a port"), h("option", { value: "dir" }, "A folder below ~/sites"));
    const port = h("input", { name: "port", type: "number", min: 1024, max: 65535, placeholder: "3000" });
    const folder = h("input", { name: "dir", placeholder: "blog", ...plain });
    const [portRow, folderRow] = [h("label", {}, "Port", port), h("label", {}, "Folder below ~/sites", folder)];
    const everybody = h("input", { name: "public", type: "checkbox" });
    const turn = () => {
      const isPort = kind.value === "port";
      [portRow.hidden, folderRow.hidden] = [!isPort, isPort];
      [port.required, folder.required] = [isPort, !isPort];
    };
    turn();
    form("Publish a site", [h("label", {}, "Name", name), address, h("label", {}, "What it shows", kind), portRow, folderRow,
      h("label", { class: "check" }, everybody, "Open to everybody on the internet, without a password")], "Publish", async () => {
      const what = kind.value === "port" ? { port: Number(port.value) } : { dir: folder.value.trim() };
      const site = await call("POST", "sites", { name: name.value, public: everybody.checked, ...what });
      toast(`${site.name} is at ${site.url}`);
      load();
    });
    name.focus();
  }
  follow((word) => { if (word === "sites") load(); });
  load();
}
