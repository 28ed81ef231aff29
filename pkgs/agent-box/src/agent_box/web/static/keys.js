// Keyboard shortcuts of the workspace, their help, and the key row of touch screens.
import { h, say } from "./core.js";
import { open } from "./dialogs.js";

/** Alt+Shift and a key, which neither terminals nor browsers take; by position, not by letter. */
export const SHORTCUTS = [
  ["Digit1", "Alt+1 … 9", "Go to a session", "tab"],
  ["PageDown", "Alt+Page Down", "Next session", "next"],
  ["PageUp", "Alt+Page Up", "Previous session", "previous"],
  ["KeyA", "Alt+Shift+A", "Next session that needs you", "attention"],
  ["KeyN", "Alt+Shift+N", "New session", "add"],
  ["KeyR", "Alt+Shift+R", "Restart the session", "restart"],
  ["KeyE", "Alt+Shift+E", "Rename or move the session", "rename"],
  ["KeyL", "Alt+Shift+L", "Log of the session", "logs"],
  ["KeyX", "Alt+Shift+X", "Stop or remove the session", "close"],
  ["KeyD", "Alt+Shift+D", "Two sessions side by side", "split"],
  ["KeyT", "Alt+Shift+T", "Leave the terminal for the tabs", "tabs"],
  ["KeyS", "Alt+Shift+S", "Settings", "settings"],
  ["KeyH", "Alt+Shift+H", "This help", "help"],
];

/** Run `actions[name](number)` for shortcuts typed in `target`, a window or a terminal's window. */
export function listen(target, actions) {
  target.addEventListener("keydown", (event) => {
    if (!event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    const digit = !event.shiftKey && /^Digit([1-9])$/.exec(event.code);
    const found = SHORTCUTS.find(([code, keys]) => code === event.code && keys.includes("Shift") === event.shiftKey);
    if (!digit && (!found || found[3] === "tab")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (digit) actions.tab(Number(digit[1]));
    else actions[found[3]]();
  }, true);
}

export function help() {
  const rows = SHORTCUTS.map(([, keys, does]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, keys)), h("td", {}, does)));
  const more = [["← → Home End", "Among the tabs: move; Enter opens"], ["Ctrl+Shift+← →", "Among the tabs: move the tab"], ["Delete", "On a tab: stop or remove it"]];
  rows.push(...more.map(([keys, does]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, keys)), h("td", {}, does))));
  const dialog = open("Keyboard", [h("table", { class: "keys" }, h("tbody", {}, rows)),
    h("div", { class: "actions" }, h("span", { class: "grow" }), h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"))]);
}

const textareaOf = (frame) => {
  try {
    return frame?.contentDocument?.querySelector(".xterm-helper-textarea, textarea");
  } catch {
    return null; // an error page of the browser's own
  }
};

const CODES = { Escape: 27, Tab: 9, Enter: 13, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40 };

/** Press a key in the terminal of `frame`; it knows best which bytes that is at the moment. */
export function press(frame, key, { ctrl = false, shift = false } = {}) {
  const field = textareaOf(frame);
  if (!field) return;
  const keyCode = CODES[key] ?? key.toUpperCase().charCodeAt(0);
  const event = new frame.contentWindow.KeyboardEvent("keydown", { key, code: CODES[key] ? key : `Key${key.toUpperCase()}`, keyCode, which: keyCode, ctrlKey: ctrl, shiftKey: shift, bubbles: true, cancelable: true, composed: true });
  if (event.keyCode !== keyCode) Object.defineProperty(event, "keyCode", { value: keyCode });
  field.dispatchEvent(event);
}

export function focusTerminal(frame) {
  frame?.contentWindow?.focus();
  textareaOf(frame)?.focus();
}

let armed = null;

/** Build the row for `current()`, the frame in sight. */
export function keyRow(element, current) {
  const ctrl = h("button", { type: "button", "aria-pressed": "false", onclick: () => arm(ctrl.getAttribute("aria-pressed") !== "true") }, "Ctrl");
  function arm(on) {
    ctrl.setAttribute("aria-pressed", String(on));
    armed = on ? () => arm(false) : null;
    if (on) say("Ctrl applies to the next key");
  }
  const key = (name, label, shown, shift = false) => h("button", { type: "button", "aria-label": label, title: label, onclick: () => {
    press(current(), name, { ctrl: armed !== null, shift });
    armed?.();
  } }, shown);
  element.replaceChildren(key("Escape", "Esc", "Esc"), key("Tab", "Tab", "Tab"), key("Tab", "Shift Tab", "⇧⇥", true), ctrl,
    h("button", { type: "button", "aria-label": "Control C", onclick: () => press(current(), "c", { ctrl: true }) }, "^C"),
    key("Enter", "New line", "⇧⏎", true),
    key("ArrowLeft", "Left", "←"), key("ArrowUp", "Up", "↑"), key("ArrowDown", "Down", "↓"), key("ArrowRight", "Right", "→"));
  // The terminal keeps the focus, or the keyboard of the phone would close.
  element.addEventListener("pointerdown", (event) => event.preventDefault());
}

/** Let an armed Ctrl apply to what is typed in `frame` by other means. */
export function modify(frame) {
  const target = frame.contentWindow;
  const take = (event, key) => {
    if (!armed || !key || !/^[a-z@[\]\\ ]$/i.test(key)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    armed();
    press(frame, key, { ctrl: true });
  };
  target.addEventListener("keydown", (event) => event.isTrusted && !event.ctrlKey && take(event, event.key), true);
  target.addEventListener("beforeinput", (event) => event.isTrusted && take(event, event.data), true);
}
