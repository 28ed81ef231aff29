// What is below the tabs: the terminal of a session, or why it has none.
import { $, ago, h, iconButton, run, signedOut, span, tilde, visible } from "./core.js";
import { act, close, lastLines, logs, signIn } from "./dialogs.js";
import { icon, stateIcon } from "./icons.js";
import { focusTerminal } from "./keys.js";
import { address, equip, strange } from "./terminal.js";
import { word } from "./work.js";

/** States in which there is something to type into. */
const TERMINAL = new Set(["running", "waiting", "unmanaged"]);

/** Terminals kept open in the background: each costs the box a process. */
const KEPT = matchMedia("(max-width: 44em)").matches ? 3 : 12;

/** Milliseconds in which a terminal connects anew by itself after the network was gone. */
const BACK = 4000;

export class Pane {
  constructor(view, hooks) {
    this.hooks = hooks;
    this.view = view;
    this.used = 0;
    this.frame = null;
    this.state = h("span", { class: "state" });
    this.detail = h("span", { class: "detail" });
    this.place = h("span", { class: "place" });
    const doing = (verb, said) => (event) => run(event.currentTarget, () => act(this.view.name, verb, said));
    this.start = h("button", { type: "button", class: "primary", onclick: doing("start", "started") }, icon("play"), "Start");
    this.restart = iconButton("restart", "Restart", doing("restart", "restarted"));
    this.stop = iconButton("halt", "Stop", doing("stop", "stopped"));
    this.sign = h("button", { type: "button", class: "sign small primary", hidden: true, onclick: () => signIn(this.view) }, "Sign in");
    this.bar = h("div", { class: "panebar" }, this.state, this.detail, this.sign, this.place, h("span", { class: "grow" }),
      this.restart, this.stop,
      iconButton("log", "Log", () => logs(this.view)),
      iconButton("upload", "Send files to ~/uploads", () => hooks.upload()),
      iconButton("edit", "Rename or move", () => hooks.rename(this.view)),
      iconButton("close", "Stop or remove", () => close(this.view)));
    this.blank = h("div", { class: "blank", hidden: true });
    this.hint = h("div", { class: "linkhint", hidden: true });
    this.body = h("div", { class: "panebody" }, this.blank, this.hint);
    this.element = h("section", { role: "tabpanel", class: "pane" }, this.bar, this.body);
    this.name();
    $("panes").append(this.element);
    this.update(view);
  }

  name() {
    this.element.id = `pane-${this.view.name}`;
    this.element.setAttribute("aria-labelledby", `tab-${this.view.name}`);
    if (this.frame) this.frame.title = `Terminal of ${this.view.name}`;
  }

  /** After the network was gone: help a terminal that has not come back by itself. */
  reconnected() {
    if (!this.frame) return;
    // One that was renamed asks for the old name.
    if (!this.frame.src.endsWith(address(this.view.name))) this.reload();
    else setTimeout(() => { if (this.frame && TERMINAL.has(this.view.state) && this.view.attached === 0) this.reload(); }, BACK);
  }

  /** Have the keyboard write into the terminal: not before it listens, or keys would be lost. */
  focus() {
    this.awaitsFocus = !this.ready;
    const dialog = document.querySelector("dialog[open]");
    // Keys meant for a dialog would be typed into the terminal.
    if (dialog) dialog.addEventListener("close", () => { if (this.hooks.isSelected(this)) this.focus(); }, { once: true });
    else if (this.ready) focusTerminal(this.frame);
  }

  reload() {
    this.ready = false;
    this.frame.src = address(this.view.name);
  }

  update(view) {
    // A new process may be in a new tmux session, which leaves the terminal of the old one dead.
    if (this.frame && view.pid && this.view.pid && view.pid !== this.view.pid) {
      setTimeout(() => { if (this.frame && TERMINAL.has(this.view.state) && this.view.attached === 0) this.reload(); }, 2000);
    }
    const changed = this.view.state !== view.state || this.view.reason !== view.reason || !this.shown;
    this.view = view;
    this.restart.hidden = view.state === "unmanaged" || view.state === "stopped";
    this.stop.hidden = view.state === "unmanaged" || view.state === "stopped";
    const shown = word(view);
    if (this.state.dataset.state !== shown) {
      this.state.dataset.state = shown;
      this.state.replaceChildren(stateIcon(shown), h("b", {}, shown));
    }
    // Where there is no terminal, the space below tells the reason.
    // What it says to whoever is elsewhere: here one is attached already.
    const reason = view.reason?.replace(/(?<=: |; )attach and /, "");
    this.sign.hidden = !TERMINAL.has(view.state) || !/^sign-in needed\b/.test(reason ?? "");
    this.detail.textContent = TERMINAL.has(view.state) ? reason ?? (view.promptPending ? "First task not delivered yet" : "") : "";
    this.detail.title = this.detail.textContent;
    this.place.textContent = tilde(view.workingDirectory);
    if (!TERMINAL.has(view.state) && !(view.state === "crashed" && this.frame) && this.frame) {
      this.frame.remove();
      this.frame = null;
    }
    if (this.active) this.show(changed);
  }

  activate() {
    this.active = true;
    this.used = Date.now();
    this.element.classList.add("active");
    this.show(true);
  }

  deactivate() {
    this.active = false;
    this.awaitsFocus = false;
    this.element.classList.remove("active");
  }

  show(changed) {
    const terminal = TERMINAL.has(this.view.state);
    if (terminal && !this.frame) this.open();
    this.blank.hidden = terminal;
    this.frame?.classList.toggle("covered", !terminal);
    if (!terminal && changed) this.explain();
    this.shown = true;
  }

  open() {
    this.ready = false;
    this.frame = h("iframe", { src: address(this.view.name), title: `Terminal of ${this.view.name}`, allow: "clipboard-read; clipboard-write", onload: () => this.loaded() });
    this.body.prepend(this.frame);
    const open = this.hooks.all().filter((pane) => pane.frame && !pane.active).sort((one, other) => one.used - other.used);
    for (const pane of open.slice(0, Math.max(0, open.length + 1 - KEPT))) {
      pane.frame.remove();
      pane.frame = null;
    }
  }

  loaded() {
    const { login, page } = strange(this.frame);
    if (!page) return;
    if (login) { signedOut(); return; }
    equip(this.frame, this.hint, () => this.active);
    this.hooks.terminal(this.frame, this);
    this.ready = true;
    if (this.hooks.isSelected(this) && (this.awaitsFocus || this.hooks.wantsFocus())) this.focus();
  }

  async explain() {
    const { view } = this, last = view.lastExit;
    const titles = { starting: "Starting …", stopped: "Stopped", failed: "Failed", crashed: "Crashed" };
    const words = [];
    if (view.state === "starting") words.push("The terminal opens here as soon as the agent runs.");
    if (view.reason) words.push(`${view.reason[0].toUpperCase()}${view.reason.slice(1)}.`);
    if (last?.cause && last.cause !== view.reason) words.push(`The last run ended ${ago(last.at)}: ${last.cause}.`);
    if (view.state === "stopped") words.push(view.agent === "shell" ? "Starting it opens a new shell in the same place." : "Starting it goes on with the same conversation.");
    if (view.nextRetry) words.push(`The next try is in ${span(view.nextRetry - Date.now() / 1000)}.`);
    const log = h("pre", { class: "log", tabindex: "0", "aria-label": `Last lines of ${view.name}` });
    const shows = view.state !== "starting";
    this.blank.replaceChildren(h("h2", {}, stateIcon(view.state), titles[view.state] ?? view.state), ...words.map((text) => h("p", {}, text)), ...(shows ? [this.start, log] : []));
    if (!shows) return;
    log.hidden = true;
    const text = await lastLines(view.name, 40);
    log.textContent = visible(text).replace(/\n{3,}/g, "\n\n");
    log.hidden = false;
    log.scrollTop = log.scrollHeight;
  }

  remove() {
    this.element.remove();
  }
}
