// The state of the box, pushed by /U/events and kept here for whoever shows it.
import { base, call, h, outdated, renew, say, signedIn, VERSION } from "./core.js";

export const state = { sessions: new Map(), problems: [], order: [], supervisor: { state: "unknown", message: "" }, connected: null, outdated: false };

/** Milliseconds without a word after which the connection counts as lost: the box tells every 15 s. */
const SILENCE = 35000;

const listeners = new Set();

/** Call `listener(kind, detail)` after every change. Kinds: sessions, problems, env, files, sites, webhooks, connection, login. */
export function follow(listener) {
  listeners.add(listener);
}

const tell = (kind, detail) => listeners.forEach((listener) => listener(kind, detail));

/** Sessions in the order of the tabs; new ones come last. */
export function ordered() {
  const place = new Map(state.order.map((name, index) => [name, index]));
  const at = (view) => place.get(view.name) ?? state.order.length;
  return [...state.sessions.values()].sort((one, other) => at(one) - at(other));
}

export const NEEDY = new Set(["waiting", "failed", "crashed"]);

function put(view) {
  const before = state.sessions.get(view.name);
  // The new name of a session arrives before the old one goes.
  const renamed = before ? null : [...state.sessions.values()].find((other) => view.id && other.id === view.id);
  if (renamed) {
    const views = [...state.sessions.values()].map((other) => (other === renamed ? view : other));
    state.sessions = new Map(views.map((other) => [other.name, other]));
    tell("renamed", { from: renamed.name, to: view.name });
  } else {
    state.sessions.set(view.name, view);
  }
  const old = before ?? renamed;
  if (old && old.state !== view.state) {
    say(`${view.name}: ${view.state}${view.reason ? `, ${view.reason}` : ""}`);
    tell("state", { view, before: old.state });
  }
}

const handlers = {
  snapshot(content) {
    const before = state.sessions;
    Object.assign(state, content);
    state.sessions = before;
    const fresh = new Map();
    for (const view of content.sessions) {
      put(view);
      fresh.set(view.name, view);
    }
    state.sessions = fresh;
    tell("problems");
    if (content.version !== VERSION && !state.outdated) {
      outdated().then((yes) => {
        if (!yes) return;
        state.outdated = true;
        tell("problems");
      });
    }
  },
  session: put,
  removed: ({ name }) => state.sessions.delete(name),
  order: ({ order }) => { state.order = order; },
  problems({ problems }) { state.problems = problems; tell("problems"); },
  problem({ state: word, message }) { state.supervisor = { state: word, message }; tell("problems"); },
  env: () => tell("env"),
  files: () => tell("files"),
  sites: () => tell("sites"),
  webhooks: () => tell("webhooks"),
  update: () => tell("update"),
  alive() {},
};

const QUIET = new Set(["env", "files", "sites", "webhooks", "update", "alive"]);

let source = null;
let silence = 0;

function connected(yes) {
  if (state.connected === yes) return;
  state.connected = yes;
  document.body.classList.toggle("lost", !yes);
  tell("connection");
}

function connect() {
  source?.close();
  const mine = source = new EventSource(`${base}/events`);
  heard();
  mine.onopen = () => {
    connected(true);
    if (signedIn()) tell("login");
  };
  mine.onerror = async () => {
    connected(false);
    if (mine.readyState !== EventSource.CLOSED) return;
    // Refused for good: find out why (a login that ended leads to the login page), then go on.
    await call("GET", "agents").catch(() => {});
    setTimeout(() => { if (mine === source) connect(); }, 2000);
  };
  for (const [kind, handle] of Object.entries(handlers)) {
    mine.addEventListener(kind, (event) => {
      heard();
      handle(JSON.parse(event.data));
      if (!QUIET.has(kind)) tell("sessions");
    });
  }
}

/** A network that drops packets breaks no connection: only silence tells. */
function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => { connected(false); connect(); }, SILENCE);
}

export function start() {
  connect();
  // A page out of sight for long may have a dead connection that nobody told it of.
  addEventListener("online", connect);
  addEventListener("offline", () => connected(false));
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
}

/** Show what is wrong above everything else. */
export function notice(element) {
  follow((kind) => {
    if (kind !== "problems" && kind !== "connection") return;
    const lines = [...state.problems];
    if (state.supervisor.state === "down") lines.unshift(state.supervisor.message);
    if (state.connected === false) lines.unshift("The connection to the box is lost. It comes back by itself; sessions go on meanwhile.");
    const shown = JSON.stringify([lines, state.outdated]);
    if (element.dataset.shown === shown) return;
    element.dataset.shown = shown;
    element.replaceChildren(...lines.map((line) => h("p", {}, line)),
      ...(state.outdated ? [h("p", {}, "The box was updated, and this page is from before. ", h("button", { type: "button", class: "small", onclick: renew }, "Reload it"))] : []));
  });
}
