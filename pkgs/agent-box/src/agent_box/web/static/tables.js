// Tables of the settings' cards.
import { h } from "./core.js";

/** Fill a table body with rows by key; rows whose content did not change stay, focus included. */
export function rows(body, items, key, render, empty) {
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const wanted = items.map((item) => {
    const id = String(key(item)), text = JSON.stringify(item), old = known.get(id);
    if (old && old.dataset.text === text) return old;
    const row = render(item);
    row.dataset.key = id;
    row.dataset.text = text;
    const at = old ? [...old.querySelectorAll("a, button")].indexOf(document.activeElement) : -1;
    if (old) old.replaceWith(row);
    if (at >= 0) [...row.querySelectorAll("a, button")][at]?.focus();
    return row;
  });
  if (!wanted.length) wanted.push(h("tr", {}, h("td", { class: "empty", colspan: 9 }, empty)));
  wanted.forEach((row, index) => { if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null); });
  while (body.children.length > wanted.length) body.lastChild.remove();
}

export function table(section, label, headings) {
  const body = h("tbody");
  const cells = headings.map((text) => h("th", { scope: "col", class: ["Size", "Restarts"].includes(text) ? "number" : null }, text || h("span", { class: "hidden" }, "Actions")));
  section.append(h("div", { class: "scroll" }, h("table", { class: headings.length > 2 ? "list" : "list two", "aria-label": label }, h("thead", {}, h("tr", {}, cells)), body)));
  return body;
}

const fail = (section) => (error) => {
  section.querySelector(":scope > .problem")?.remove();
  section.append(h("p", { class: "problem", role: "alert" }, error.message));
};

/** Load what a card shows; a failure is told in the card and forgotten when it works again. */
export const loading = (section, work) => async () => {
  try {
    await work();
    section.querySelector(":scope > .problem")?.remove();
  } catch (error) {
    fail(section)(error);
  }
};
