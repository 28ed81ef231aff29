// Dialogs that several pages share: ask, rename, logs.
import { base, call, Failure, h, run, say, toast, visible } from "./core.js";

/** What the API calls a session, or something to do with it. */
export const path = (name, verb = "") => `sessions/${encodeURIComponent(name)}${verb && `/${verb}`}`;

let count = 0;

/** Open a dialog with a heading; it is gone when closed. */
export function open(title, content, { wide = false } = {}) {
  const id = `dialog-${++count}`;
  const dialog = h("dialog", { "aria-labelledby": id, class: wide ? "wide" : null, onclose: () => dialog.remove() },
    h("h2", { id }, title), content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** A form in a dialog: `submit(form)` does it; when it fails, everything typed stays. */
export function form(title, fields, label, submit, { danger = false, more = [], keep = true } = {}) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const go = h("button", { class: danger ? "danger" : "primary" }, label);
  const element = h("form", { "data-keep": keep, onsubmit: (event) => {
    event.preventDefault();
    problem.hidden = true;
    run(go, async () => { await submit(element); dialog.close(); }, (error) => {
      problem.textContent = error.message;
      problem.hidden = false;
    });
  } }, fields, problem, h("div", { class: "actions" },
    more, h("span", { class: "grow" }),
    h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
  const dialog = open(title, element);
  return dialog;
}

/** Do something to a session and say so. */
export async function act(name, verb, said) {
  await call("POST", path(name, verb));
  if (said) say(`${name}: ${said}`);
}

/** Remove or stop: the second step of closing. */
export function close(view) {
  const words = view.state === "unmanaged"
    ? "It was not started by the box and is ended for good."
    : "Removing ends the agent and takes the session off the list. Its files and the agent's own transcripts stay.";
  const stop = h("button", { type: "button", onclick: () => run(stop, async () => {
    await act(view.name, "stop", "stopped");
    dialog.close();
  }) }, "Only stop it");
  const more = ["stopped", "unmanaged"].includes(view.state) ? [] : [stop];
  const dialog = form(`Remove ${view.name}?`, h("p", {}, words), "Remove", async () => {
    const { entry } = await call("GET", path(view.name)).catch(() => ({}));
    await call("DELETE", path(view.name));
    toast(`${view.name} was removed.`, "good", entry ? { label: "Make it again", run: () => again(view.name, entry) } : null);
  }, { danger: true, more, keep: false });
}

/** Undo a removal as far as it goes: the same session, a new conversation. */
function again(name, entry) {
  const wanted = { name };
  for (const key of ["agent", "workingDirectory", "skipPermissions", "remoteControl", "remoteControlName", "extraArgs", "resumePrompt"]) {
    if (entry[key] !== null && entry[key] !== undefined) wanted[key] = entry[key];
  }
  call("POST", "sessions", wanted).catch((error) => toast(error.message, "bad"));
}

/** Rename; `moves` are buttons that move the tab. */
export function rename(view, moves = []) {
  const field = h("input", { name: "name", value: view.name, required: true, maxlength: 150, autocomplete: "off", spellcheck: "false", pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]*", title: "Letters, digits, - and _" });
  form("Name and place", [h("label", {}, "Name", field), moves.length ? h("div", { class: "actions" }, moves) : null], "Rename", async () => {
    if (field.value !== view.name) await call("POST", path(view.name, "rename"), { newName: field.value });
  });
  field.select();
}

/** The guided sign-in of a session's agent, which begins at once. */
export function signIn(view) {
  const section = h("section");
  const restart = h("button", { type: "button", class: "primary", hidden: true, onclick: () => run(restart, async () => {
    await act(view.name, "restart", "restarted");
    dialog.close();
  }) }, `Restart ${view.name} with it`);
  const dialog = open(`Sign in for ${view.name}`, [section, h("div", { class: "actions" }, h("span", { class: "grow" }),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"), restart)]);
  // Loaded when first needed.
  import("./connections.js").then(({ connections }) => connections(section, null, { only: view.agent, done: () => { restart.hidden = false; } }))
    .catch((error) => toast(error.message, "bad"));
}

/** Show the log of a session: the screen now, or what ended runs left. */
export function logs(view) {
  const text = h("pre", { class: "log", tabindex: "0", "aria-label": `Log of ${view.name}` }, "…");
  const talks = view.agent !== "shell" && view.id;
  const dialog = open(`Log of ${view.name}`, [text, h("div", { class: "actions" },
    talks ? h("button", { type: "button", onclick: () => import("./conversation.js").then(({ conversation }) => conversation(view)).catch((error) => toast(error.message, "bad")) }, "Read the conversation") : null,
    talks ? h("a", { class: "button", href: `${base}/api/${path(view.name, "transcript")}`, onclick: (event) => transcript(event, view.name) }, "Download transcript") : null,
    h("span", { class: "grow" }),
    h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"))], { wide: true });
  lastLines(view.name, 2000).then((found) => { text.textContent = visible(found); text.scrollTop = text.scrollHeight; });
}

/** Return the last lines of a session's log, or why there are none. */
export async function lastLines(name, lines) {
  try {
    const { text } = await call("GET", `${path(name, "logs")}?lines=${lines}`);
    return text.trimEnd() || "The log is empty.";
  } catch (error) {
    return error.status === 404 ? "There is no log yet." : error.message;
  }
}

/** Follow a link to a transcript only if there is one, so that a reason appears here. */
export async function transcript(event, name) {
  event.preventDefault();
  const address = `${base}/api/${path(name, "transcript")}`;
  try {
    const answer = await fetch(address, { method: "HEAD" });
    if (answer.ok) location.assign(address);
    else await call("GET", `${path(name, "transcript")}`);
  } catch (error) {
    toast(error instanceof Failure ? error.message : "The box cannot be reached.", "bad");
  }
}
