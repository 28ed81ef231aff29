// The tab list: one tab a session, in an order that every browser shares.
import { $, call, h, toast } from "./core.js";
import { stateIcon } from "./icons.js";
import { NEEDY, ordered, state } from "./live.js";
import { isNews, word } from "./work.js";

const tabs = new Map();
let hooks = null;
let dragged = null;

/** `given`: select(name), close(view), selected(), moved() after what is in sight may have changed */
export function setup(given) {
  hooks = given;
  const list = $("tabs");
  list.addEventListener("keydown", keydown);
  // A mouse has one wheel, and the tabs one direction.
  list.addEventListener("wheel", (event) => { if (!event.deltaX) list.scrollLeft += event.deltaY; }, { passive: true });
  list.addEventListener("scroll", edges, { passive: true });
  new ResizeObserver(edges).observe(list);
  list.addEventListener("dragover", (event) => {
    const over = event.target.closest("[role=tab]");
    if (!dragged || !over) return;
    event.preventDefault();
    if (over === dragged) return;
    const { left, width } = over.getBoundingClientRect();
    const before = event.clientX < left + width / 2 ? over : over.nextElementSibling;
    if (before !== dragged && dragged.nextElementSibling !== before) list.insertBefore(dragged, before);
  });
  list.addEventListener("drop", (event) => event.preventDefault());
  list.addEventListener("dragend", () => {
    dragged?.classList.remove("dragged");
    dragged = null;
    reorder([...list.children].map((tab) => tab.dataset.name));
  });
}

/** Fade the ends behind which there are more tabs. */
function edges() {
  const list = $("tabs"), most = list.scrollWidth - list.clientWidth;
  list.classList.toggle("before", list.scrollLeft > 4);
  list.classList.toggle("after", list.scrollLeft < most - 4);
  hooks.moved();
}

/** Tell whether most of a tab can be seen. */
export function inSight(name) {
  const list = $("tabs"), tab = tabs.get(name), middle = tab ? tab.offsetLeft - list.offsetLeft + tab.offsetWidth / 2 - list.scrollLeft : -1;
  return middle > 0 && middle < list.clientWidth;
}

function make(view) {
  const name = view.name;
  const tab = h("button", { type: "button", role: "tab", id: `tab-${name}`, class: "tab", "data-name": name, "aria-controls": `pane-${name}`, draggable: "true",
    onclick: () => hooks.select(name, true),
    onauxclick: (event) => { if (event.button === 1) hooks.close(state.sessions.get(name)); },
    ondragstart: (event) => { dragged = tab; tab.classList.add("dragged"); event.dataTransfer.effectAllowed = "move"; },
  }, h("span", { class: "mark" }), h("span", { class: "label" }, h("span", { class: "name" }, name), h("span", { class: "sub" })));
  return tab;
}

/** Bring the tabs up to date without touching what did not change. */
export function render() {
  const list = $("tabs"), views = ordered(), focused = document.activeElement;
  for (const [name, tab] of tabs) {
    if (!state.sessions.has(name)) { tab.remove(); tabs.delete(name); }
  }
  views.forEach((view, index) => {
    let tab = tabs.get(view.name);
    if (!tab) { tab = make(view); tabs.set(view.name, tab); }
    const shown = word(view);
    if (tab.dataset.state !== shown) {
      tab.dataset.state = shown;
      tab.firstChild.replaceChildren(stateIcon(shown));
    }
    const sub = `${view.agent === "-" ? "not listed" : view.agent} · ${shown}`;
    if (tab.lastChild.lastChild.textContent !== sub) tab.lastChild.lastChild.textContent = sub;
    tab.title = [view.name, view.reason].filter(Boolean).join(": ");
    tab.classList.toggle("needy", NEEDY.has(view.state));
    tab.classList.toggle("news", isNews(view));
    const selected = view.name === hooks.selected();
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    if (!dragged && list.children[index] !== tab) list.insertBefore(tab, list.children[index] ?? null);
  });
  if (!list.querySelector("[tabindex='0']") && list.firstChild) list.firstChild.tabIndex = 0;
  if (focused?.getAttribute("role") === "tab" && focused.isConnected) focused.focus();
  edges();
}

export const focusTab = (name) => tabs.get(name)?.focus();
export const reveal = (name) => tabs.get(name)?.scrollIntoView({ block: "nearest", inline: "nearest" });

/** Move a tab by `step` places. */
export function move(name, step) {
  const names = ordered().map((view) => view.name), from = names.indexOf(name), to = from + step;
  if (from < 0 || to < 0 || to >= names.length) return;
  names.splice(to, 0, names.splice(from, 1)[0]);
  reorder(names);
}

async function reorder(names) {
  const before = state.order;
  if (names.join() === ordered().map((view) => view.name).join()) return;
  state.order = names;
  render();
  try {
    await call("PUT", "order", { names });
  } catch (error) {
    state.order = before;
    render();
    toast(error.message, "bad");
  }
}

function keydown(event) {
  const tab = event.target.closest("[role=tab]");
  if (!tab) return;
  const all = [...$("tabs").children], at = all.indexOf(tab);
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step && event.ctrlKey && event.shiftKey) move(tab.dataset.name, step);
  else if (step) all[(at + step + all.length) % all.length].focus();
  else if (event.key === "Home") all[0].focus();
  else if (event.key === "End") all.at(-1).focus();
  else if (event.key === "Delete") hooks.close(state.sessions.get(tab.dataset.name));
  else return;
  event.preventDefault();
}
