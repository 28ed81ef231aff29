// The Connections card: who is signed in where, and the vendors' own sign-ins, step by step.
import { call, h, run, say, toast } from "./core.js";
import { form } from "./dialogs.js";
import { stateIcon } from "./icons.js";

const LIVE = ["starting", "choosing", "waiting", "exchanging"];
const PACE = 1500;
const WORDS = {
  checking: "Asking…", idle: "Not signed in", connected: "Signed in", unknown: "Does not say", missing: "Not installed",
  blocked: "The sandbox does not run", starting: "Starting…", choosing: "Waits for your choice", waiting: "Waits for you",
  exchanging: "Checking with the vendor…", failed: "Failed", expired: "Expired",
};
/** The shapes that sessions have in such a state. */
const SHAPES = {
  connected: "done", checking: "starting", starting: "starting", exchanging: "starting",
  choosing: "waiting", waiting: "waiting", failed: "failed", expired: "failed",
};

/** Fill `section`. Of one session: `only` its agent's, begun at once; `done()` when that has worked. */
export function connections(section, head, { only = null, done = null } = {}) {
  const list = h("div");
  const refresh = h("button", { type: "button", class: "small", onclick: () => run(refresh, () => load(true)) }, "Ask again");
  head?.append(refresh);
  section.append(h("p", { class: "hint" }, "Each sign-in is the vendor's own program at work in your sandbox; the box itself neither sees nor keeps a token. What is signed in stays so until a new sign-in has worked."), list);
  const shown = new Map();
  let timer = null;
  let begun = only === null;

  async function load(fresh) {
    clearTimeout(timer);
    let cards = [];
    try {
      cards = (await call("GET", fresh ? "connections?fresh=1" : "connections")).connections.filter((card) => only === null || card.id === only);
      if (!cards.length && only !== null) list.replaceChildren(h("p", {}, "There is no guided sign-in for this agent: sign in in its terminal."));
      section.querySelector(":scope > .problem")?.remove();
    } catch (error) {
      section.querySelector(":scope > .problem")?.remove();
      section.append(h("p", { class: "problem", role: "alert" }, error.message));
    }
    for (const card of cards) show(card);
    const busy = cards.some((card) => card.state === "checking" || LIVE.includes(card.state));
    if (!begun && cards.some((card) => card.state !== "checking")) {
      begun = true;
      list.querySelector("button.primary:not(form button)")?.click();
    }
    if (busy && section.isConnected) timer = setTimeout(() => (document.hidden ? again() : load()), PACE);
  }
  const again = () => document.addEventListener("visibilitychange", () => load(), { once: true });

  /** Draw one row again only when something changed, so that a code half typed is not lost. */
  function show(card) {
    const text = JSON.stringify(card), old = shown.get(card.id);
    if (old?.text === text) return;
    const row = draw(card);
    if (old) old.row.replaceWith(row);
    else list.append(row);
    if (old && LIVE.includes(old.state) && card.state === "connected") done?.();
    if (old && old.state !== card.state) say(`${card.label}: ${WORDS[card.state] ?? card.state}`);
    shown.set(card.id, { text, row, state: card.state });
  }

  async function act(card, action, more = {}) {
    await call("POST", `connections/${encodeURIComponent(card.id)}`, { action, ...more });
    await load();
  }

  function draw(card) {
    const live = LIVE.includes(card.state);
    const state = h("span", { class: "state" }, stateIcon(SHAPES[card.state] ?? "idle"), h("b", {}, WORDS[card.state] ?? card.state));
    const detail = card.state === "connected" && card.detail ? ` ${card.detail}` : "";
    const row = h("div", { class: "connection", "data-flow": card.id, "data-state": card.state, role: "group", "aria-label": card.label },
      h("div", { class: "actions" }, h("strong", {}, card.label), h("span", {}, state, detail), h("span", { class: "grow" }), buttons(card, live)));
    if (card.shadows.length) row.append(h("p", { class: "hint" }, `${card.shadows.join(", ")} in your secrets wins over this sign-in.`));
    if (card.remote) row.append(...remote(card.remote));
    if (card.error) row.append(h("p", { class: "problem", role: "alert" }, card.error));
    if (live) row.append(...steps(card));
    return row;
  }

  /** The pane of remote control: the same states and words as in the session. */
  function remote(pane) {
    return [
      h("p", { class: "hint", "data-remote": pane.state }, `Remote control (session ${pane.session}, ${pane.state}): ${pane.text}`),
      pane.state === "paired" && pane.code ? h("p", {}, "Pairing code: ", h("code", { class: "onetime" }, pane.code)) : null,
    ].filter(Boolean);
  }

  function buttons(card, live) {
    if (live) return [h("button", { type: "button", class: "small", onclick: (event) => run(event.currentTarget, () => act(card, "cancel")) }, "Cancel")];
    if (["missing", "blocked", "checking"].includes(card.state)) return [];
    const label = card.state === "connected" ? "Sign in again" : card.error ? "Try again" : "Sign in";
    return [h("button", { type: "button", class: "small primary", "aria-label": `${label}: ${card.label}`, onclick: (event) => begin(card, event.currentTarget) }, label)];
  }

  function begin(card, button) {
    if (!card.providers.length) return run(button, () => act(card, "start"));
    const choice = h("select", { name: "provider" }, card.providers.map((name) => h("option", { value: name }, name)));
    return form(`Sign in to ${card.label}`, h("label", {}, "Whose models", choice), "Go on", () => act(card, "start", { provider: choice.value }), { keep: false });
  }

  function steps(card) {
    const parts = [];
    if (card.url?.startsWith("https://")) {
      parts.push(h("p", {}, h("a", { href: card.url, target: "_blank", rel: "noopener noreferrer" }, `Open the sign-in page of ${new URL(card.url).hostname}`), " on any device."));
      parts.push(h("button", { type: "button", class: "small", onclick: () => copy(card.url) }, "Copy the address"));
    }
    if (card.code) parts.push(h("p", {}, "Enter this code there: ", h("code", { class: "onetime" }, card.code)));
    if (card.choices.length) parts.push(h("div", { class: "actions" }, card.choices.map((choice) =>
      h("button", { type: "button", class: "small", onclick: (event) => run(event.currentTarget, () => act(card, "choose", { choice })) }, choice))));
    if (card.needsCode) parts.push(entry(card));
    return parts;
  }

  function entry(card) {
    const field = h("input", { type: "password", name: "code", required: true, autocomplete: "one-time-code", autocapitalize: "off", spellcheck: "false" });
    const go = h("button", { class: "small primary" }, "Send");
    return h("form", { "data-keep": true, onsubmit: (event) => {
      event.preventDefault();
      const text = field.value;
      run(go, async () => { await act(card, "code", { text }); field.value = ""; });
    } }, h("label", {}, "Code or key that the vendor gives you", field), h("div", { class: "actions" }, go));
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      toast("The address was copied.");
    } catch {
      toast("The browser does not allow copying; press and hold the link instead.", "bad");
    }
  }

  load();
}
