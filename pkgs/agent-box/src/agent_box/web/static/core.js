// What every page needs: elements, calls to the box, messages, words for times and sizes.
import { icon } from "./icons.js";

export const user = document.body.dataset.user;
export const host = document.body.dataset.host;
export const base = `/${user}`;
export const $ = (id) => document.getElementById(id);

const HIDDEN = /(?<=\p{Extended_Pictographic}\ufe0f?|\p{Emoji_Modifier})\u200d(?=\p{Extended_Pictographic})|(?<=\p{Extended_Pictographic})[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)|((?![\n\t])[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}])/gu;

/** Return a text without what nobody can see, outside of emoji: it may hide words, or turn the direction of others. */
export const visible = (text) => text.replace(/\r\n?|[\u2028\u2029]/g, "\n").replace(HIDDEN, (found, hidden) => (hidden === undefined ? found : ""));

/** Make an element. `props`: `class`, `on…` listeners, booleans, anything else an attribute. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined)
    .map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

/** A button of an icon and a name that everybody can get at. */
export function iconButton(name, label, onclick, props = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...props }, icon(name));
}

export class Failure extends Error {
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** Call the box. Rejects with a Failure whose message is fit for people. */
export async function call(method, path, body) {
  const address = path.startsWith("/") ? path : `${base}/api/${path}`;
  const options = { method, headers: { Accept: "application/json" }, cache: "no-store" };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body ?? {});
  }
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new Failure("offline", "The box cannot be reached. Nothing was changed; try again in a moment.", 0);
  }
  return read(answer.status, await answer.text());
}

let old = false;

/** Return the content of an answer, or throw the Failure that it tells of. */
export function read(status, text) {
  let content = null;
  try {
    content = JSON.parse(text);
  } catch {
    // not from us: the edge or the gate
  }
  if (status === 401) {
    signedOut();
    throw new Failure("signed_out", "Your login has ended. Sign in again; what you typed is still here.", status);
  }
  if (status < 200 || status > 299) {
    const error = content?.error;
    const words = status >= 502 && status <= 504
      ? "This part of the box does not answer. It is started again by itself; try again in a moment."
      : `The box refused (status ${status}).`;
    // What this page asks for may not be there any more.
    const why = old && [400, 404, 405].includes(status) ? " This page is from before an update of the box: reload it." : "";
    throw new Failure(error?.code ?? "refused", `${error?.message ?? words}${why}`, status);
  }
  return content;
}

/** Whether somebody has typed something that would be lost, or is sending something. */
function dirty() {
  return document.querySelector("[data-busy]") !== null || [...document.querySelectorAll("form[data-keep]")].some((form) =>
    form.checkVisibility() && [...form.elements].some((field) => field.value && field.value !== field.defaultValue && /^(TEXTAREA|INPUT)$/.test(field.tagName)));
}

let leaving = false;
let ended = null;

/** Go to the login page and come back here; ask first when that would lose typed text. */
export function signedOut() {
  if (ended || leaving) return;
  if (!dirty()) {
    leaving = true;
    // The gate answers this very address with its login page and leads back to it.
    location.reload();
    return;
  }
  const dialog = ended = h("dialog", { "aria-labelledby": "signed-out", onclose: () => { ended = null; dialog.remove(); } },
    h("h2", { id: "signed-out" }, "Your login has ended"),
    h("p", {}, "Sign in in another tab, then come back here: what you typed stays."),
    h("div", { class: "actions" },
      h("button", { type: "button", onclick: () => location.reload() }, "Sign in here, discard"),
      h("a", { class: "button primary", href: `${base}/`, target: "_blank", rel: "noopener" }, "Sign in in a new tab")));
  document.body.append(dialog);
  dialog.showModal();
}

/** Somebody has signed in again in another tab; tells whether this page waited for that. */
export function signedIn() {
  const waited = ended !== null;
  ended?.close();
  return waited;
}

const versionIn = (text) => /\/assets\/([0-9a-f]{16})\//.exec(text)?.[1] ?? null;

/** The version of this page and its scripts, which their address names. */
export const VERSION = versionIn(import.meta.url);

/** Whether the box has a newer version of this very page: not while only the service behind it has changed. */
export async function outdated() {
  try {
    const answer = await fetch(location.pathname, { cache: "no-store", headers: { Accept: "text/html" } });
    const found = answer.ok ? versionIn(await answer.text()) : null;
    old = Boolean(found && VERSION && found !== VERSION);
    return old;
  } catch {
    return false; // the next connection tells again
  }
}

/** Load this page anew; ask first when that would lose typed text. */
export function renew() {
  if (!dirty()) { location.reload(); return; }
  const dialog = h("dialog", { "aria-labelledby": "renew", onclose: () => dialog.remove() },
    h("h2", { id: "renew" }, "What you typed would be lost"),
    h("p", {}, "This page works as it is: send first what you typed, and reload it then."),
    h("div", { class: "actions" },
      h("button", { type: "button", onclick: () => location.reload() }, "Reload, discard"), h("span", { class: "grow" }),
      h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Not yet")));
  document.body.append(dialog);
  dialog.showModal();
}

/** Tell people who listen rather than look. */
export function say(text) {
  const live = $("live");
  live.textContent = live.textContent === text ? `${text} ` : text;
}

/** Show a message until it is dismissed; good news goes by itself. */
export function toast(text, kind = "good", action = null) {
  const box = h("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, h("span", {}, text));
  if (action) box.append(h("button", { type: "button", class: "small", onclick: () => { action.run(); box.remove(); } }, action.label));
  box.append(iconButton("close", "Dismiss message", () => box.remove()));
  // Bad news of what an open dialog does belongs into it; on good news dialogs close.
  const shown = kind === "bad" ? document.querySelector("dialog[open]") : null;
  (shown ?? $("toasts")).append(box);
  if (kind === "good") setTimeout(() => box.matches(":hover, :focus-within") || box.remove(), action ? 20000 : 6000);
}

/** Run `work` for a button: no second click meanwhile, and a reason when it fails. */
export async function run(button, work, onerror = (error) => toast(error.message, "bad")) {
  if (button.getAttribute("aria-disabled") === "true") return undefined;
  button.setAttribute("aria-disabled", "true");
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Failure)) console.error(error);
    onerror(error);
    return undefined;
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1024) return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} GiB`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const ago = (unix) => (unix ? `${span(Date.now() / 1000 - unix)} ago` : "–");
export const when = (unix) => (unix ? new Date(unix * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "–");
export const tilde = (path) => (path ?? "").replace(/^\/home\/[^/]+(?=\/|$)/, "~");
