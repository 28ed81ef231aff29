// The workspace: tabs, the session in sight, what can be done with it.
import { $, base, call, h, host, iconButton, say, tilde, toast, user } from "./core.js";
import { act, close, logs, rename } from "./dialogs.js";
import { help, keyRow, listen, modify } from "./keys.js";
import { icon, stateIcon } from "./icons.js";
import { follow, NEEDY, notice, ordered, start, state } from "./live.js";
import { Pane } from "./panes.js";
import * as tabs from "./tabs.js";
import { choose } from "./upload.js";
import { isNews, looked, watch } from "./work.js";

const panes = new Map();
const LAST = `agent-box:last:${user}`;
const NOTIFY = `agent-box:notify:${user}`;
const TOLD = 60_000; // milliseconds of work of which people elsewhere want to hear the end
let selected = null;
let awaited = null; // a session that this page made and that is not in the list yet
let wanted = new URLSearchParams(location.search).get("arg");
let blank = null;
let previous = null; // what was selected before
let pair = null; // two sessions side by side: the left one, and the right one

const current = () => panes.get(selected) ?? null;
const frame = () => current()?.frame ?? null;
const view = () => state.sessions.get(selected) ?? null;

function select(name, focus = false) {
  if (pair && !pair.includes(name)) pair = pair.map((side) => (side === selected ? name : side));
  if (selected !== name) previous = selected;
  selected = name;
  wanted = null;
  localStorage.setItem(LAST, name);
  history.replaceState(null, "", `${base}/?arg=${encodeURIComponent(name)}`);
  render();
  tabs.reveal(name);
  if (focus) current()?.focus();
}

/** Choose what to show when nothing is chosen: what was asked for, else what was shown last. */
function settle() {
  if (awaited && state.sessions.has(awaited)) {
    const name = awaited;
    awaited = null;
    select(name, true);
    return;
  }
  if (selected && state.sessions.has(selected)) return;
  if (wanted !== null) {
    if (state.sessions.has(wanted)) select(wanted, true);
    return;
  }
  const names = ordered().map((item) => item.name);
  const next = [localStorage.getItem(LAST), "main", names[0]].find((name) => state.sessions.has(name));
  if (next) select(next, document.activeElement === document.body);
  else selected = null;
}

function render() {
  if (view() && document.visibilityState === "visible") looked(view());
  for (const [name, pane] of panes) {
    if (!state.sessions.has(name)) { pane.remove(); panes.delete(name); }
  }
  for (const item of ordered()) {
    const pane = panes.get(item.name);
    if (pane) pane.update(item);
    else panes.set(item.name, new Pane(item, hooks));
  }
  if (!pair?.every((name) => panes.has(name))) pair = null;
  for (const [name, pane] of panes) {
    const shown = name === selected || Boolean(pair?.includes(name));
    if (!shown && pane.active) pane.deactivate();
    else if (shown && !pane.active) pane.activate();
    pane.element.classList.toggle("left", name === pair?.[0]);
    pane.element.classList.toggle("right", name === pair?.[1]);
    pane.element.classList.toggle("selected", name === selected);
  }
  splitter.setAttribute("aria-pressed", String(pair !== null));
  tabs.render();
  const pane = current();
  $("keyrow").hidden = !pane?.frame;
  explain(pane);
  const needy = [...state.sessions.values()].filter((item) => item.state === "waiting").length;
  document.title = `${needy ? `(${needy}) ` : ""}${selected ?? "Workspace"} · ${host}`;
}

/** Count the sessions that need somebody and whose tabs are out of sight. */
function count() {
  const others = [...state.sessions.values()].filter((item) => NEEDY.has(item.state) && item.name !== selected && !tabs.inSight(item.name)).length;
  waiting.hidden = !others;
  waiting.lastChild.textContent = others;
  waiting.ariaLabel = waiting.title = `${others} more ${others === 1 ? "session needs" : "sessions need"} you: go to the next`;
}

/** Say why there is no session in sight. */
function explain(pane) {
  let words = null;
  if (!pane && wanted !== null && state.supervisor.state !== "unknown") words = ["No such session", `There is no session called “${wanted}”. Choose another one above, or make it.`, `Make ${wanted}`];
  else if (!pane && state.supervisor.state === "down") words = ["The sessions cannot be seen", "They go on working. This page shows them again as soon as the supervisor answers."];
  else if (!pane && state.supervisor.state === "up") words = ["No sessions yet", "A session is one agent at work in a directory of yours. It goes on when you close this page."];
  if (blank?.dataset.words === words?.join()) return;
  blank?.remove();
  blank = words && h("div", { class: "blank empty", "data-words": words.join() }, h("h2", {}, words[0]), h("p", {}, words[1]),
    h("button", { type: "button", class: "primary", onclick: () => actions.add({ name: wanted ?? "" }) }, words[2] ?? "New session"));
  if (blank) $("panes").append(blank);
}

const hooks = {
  all: () => [...panes.values()],
  upload: () => pick(),
  rename: (item) => rename(item, [
    h("button", { type: "button", onclick: () => tabs.move(item.name, -1) }, "Move left"),
    h("button", { type: "button", onclick: () => tabs.move(item.name, 1) }, "Move right"),
    h("button", { type: "button", onclick: (event) => { event.target.closest("dialog").close(); actions.add({ agent: item.agent, workingDirectory: tilde(item.workingDirectory) }); } }, "New one like it")]),
  isSelected: (pane) => pane === current(),
  terminal(element, pane) {
    listen(element.contentWindow, actions);
    modify(element);
    // Of two side by side, the one that is typed into is meant.
    element.contentWindow.addEventListener("focus", () => { if (pair && pane !== current()) select(pane.view.name); });
  },
  wantsFocus: () => !document.querySelector("dialog[open]") && [document.body, $("panes"), frame()].includes(document.activeElement),
};

function step(by) {
  const names = ordered().map((item) => item.name);
  if (names.length) select(names[(names.indexOf(selected) + by + names.length) % names.length], true);
}

const actions = {
  tab(number) { const item = ordered()[number - 1]; if (item) select(item.name, true); },
  next: () => step(1),
  previous: () => step(-1),
  attention() {
    const all = ordered(), at = all.findIndex((item) => item.name === selected);
    const others = [...all.slice(at + 1), ...all.slice(0, at + 1)];
    const next = others.find((item) => NEEDY.has(item.state)) ?? others.find(isNews);
    if (next) select(next.name, true);
    else say("No session needs you");
  },
  // Loaded when first needed: most visits make no session.
  add: (preset) => import("./add.js").then(({ add }) => add((session) => {
    awaited = session.name;
    settle();
  }, preset)).catch((error) => toast(error.message, "bad")),
  restart: () => view() && act(selected, "restart", "restarted").catch((error) => toast(error.message, "bad")),
  rename: () => view() && hooks.rename(view()),
  logs: () => view() && logs(view()),
  close: () => view() && close(view()),
  tabs() { window.focus(); tabs.focusTab(selected); },
  split() {
    const other = pair ? null : ordered().map((item) => item.name).find((name, at, all) => (all.includes(previous) ? name === previous : name !== selected));
    if (!pair && !other) toast("There is no other session to show beside this one.");
    pair = pair || !other ? null : [selected, other];
    render();
  },
  settings: () => location.assign(`${base}/settings/`),
  help,
};

const pick = choose((stored) => toast(`Stored as ${stored.path}`, "good", view()?.pid ? {
  label: `Type the path into ${selected}`,
  run: () => call("POST", `sessions/${selected}/send`, { text: `${stored.path} `, enter: false }).then(() => current()?.focus(), (error) => toast(error.message, "bad")),
} : null));

// Notifications, once somebody has asked for them.
const allowed = () => "Notification" in window && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "on";

function bell() {
  const button = iconButton("bell", "Notify me when a session needs me", async () => {
    if (allowed()) localStorage.setItem(NOTIFY, "off");
    else if (!("Notification" in window) || (await Notification.requestPermission()) !== "granted") {
      toast("The browser does not allow notifications from this page; its site settings do.", "bad");
    } else localStorage.setItem(NOTIFY, "on");
    button.setAttribute("aria-pressed", String(allowed()));
  }, { "aria-pressed": String(allowed()) });
  return button;
}

function notify(item, word, body) {
  if (!allowed() || (document.visibilityState === "visible" && item.name === selected)) return;
  let shown;
  try {
    shown = new Notification(`${item.name}: ${word}`, { body, tag: `agent-box-${item.name}` });
  } catch { return; } // browsers of phones leave them to installed pages
  shown.onclick = () => { window.focus(); select(item.name, true); shown.close(); };
}

// Before what shows it: who hears first, is told first.
watch((item, worked) => {
  if (document.visibilityState === "visible" && item.name === selected) return;
  say(`${item.name}: done`);
  if (worked >= TOLD) notify(item, "done", "It waits for the next task.");
});

follow((kind, detail) => {
  if (kind === "renamed") {
    const pane = panes.get(detail.from);
    if (!pane) return;
    // Before the old name goes: the terminal stays attached through a change of name.
    panes.delete(detail.from);
    panes.set(detail.to, pane);
    pane.view = state.sessions.get(detail.to);
    pane.name();
    if (previous === detail.from) previous = detail.to;
    pair = pair?.map((name) => (name === detail.from ? detail.to : name)) ?? null;
    if (selected === detail.from) select(detail.to);
  } else if (kind === "state" && NEEDY.has(detail.view.state)) notify(detail.view, detail.view.state, detail.view.reason ?? "");
  // Terminals have ended with the login.
  else if (kind === "login") panes.forEach((pane) => pane.frame && pane.reload());
  else if (kind === "connection" && state.connected) panes.forEach((pane) => pane.reconnected());
  else if (kind === "sessions" || kind === "problems") { settle(); render(); }
});

const waiting = h("button", { type: "button", class: "plain needs", hidden: true, onclick: () => actions.attention() }, stateIcon("waiting"), h("b"));

const splitter = iconButton("split", "Two sessions side by side", () => actions.split(), { class: "icon-button roomy", "aria-pressed": "false" });

$("tools").append(
  iconButton("add", "New session", () => actions.add(), { class: "icon-button add" }), waiting,
  h("span", { class: "grow" }), splitter, bell(), iconButton("help", "Keyboard shortcuts", help),
  h("a", { class: "icon-button", href: `${base}/downloads/`, "aria-label": "Downloads", title: "Downloads" }, icon("download")),
  h("a", { class: "icon-button", href: `${base}/settings/`, "aria-label": "Settings", title: "Settings" }, icon("gear")));

tabs.setup({ select, close, selected: () => selected, moved: count });
keyRow($("keyrow"), frame);
listen(window, actions);
notice($("notice"));
addEventListener("visibilitychange", render);
start();
