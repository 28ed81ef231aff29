// The conversation of a session to read: what was said and done, from the agent's own transcript.
import { base, Failure, h, read } from "./core.js";
import { open, path } from "./dialogs.js";

/** Bytes from the end of a transcript that are looked at, and turns that are shown. */
const TAIL = 4 << 20, MOST = 400;

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Turns of one part of a message: `{who, text}`, or `{tool, text}` for what an agent did. */
function* parts(role, content) {
  for (const part of Array.isArray(content) ? content : [content]) {
    if (typeof part === "string") yield { who: role, text: part };
    else if (part?.type === "text") yield { who: role, text: part.text };
    else if (part?.type === "tool_use") yield { tool: part.name, text: text(part.input) };
    else if (part?.type === "toolCall") yield { tool: part.name, text: text(part.arguments) };
  }
}

/** Turns of one line of a transcript. Claude, pi and codex each write in their own way. */
function* turns({ type, message, payload, isMeta }) {
  if (["user", "assistant", "message"].includes(type) && message && !isMeta) {
    if (["user", "assistant"].includes(message.role)) yield* parts(message.role, message.content);
  } else if (type === "event_msg" && payload?.type === "user_message") yield { who: "user", text: payload.message };
  else if (type === "event_msg" && payload?.type === "agent_message") yield { who: "assistant", text: payload.message };
  else if (type === "response_item" && /_call$/.test(payload?.type)) yield { tool: payload.name ?? payload.type, text: text(payload.arguments ?? payload.input ?? payload.action ?? "") };
}

/** Return the turns in the lines of a transcript; what is no line of one is passed over. */
function parse(lines) {
  const found = [];
  for (const line of lines.split("\n")) {
    try {
      found.push(...turns(JSON.parse(line)));
    } catch {
      // cut off, or of another kind
    }
  }
  return found.filter((turn) => turn.text?.trim());
}

async function load(name) {
  let answer;
  try {
    answer = await fetch(`${base}/api/${path(name, "transcript")}`, { cache: "no-store", headers: { Accept: "application/json", Range: `bytes=-${TAIL}` } });
  } catch {
    throw new Failure("offline", "The box cannot be reached.", 0);
  }
  const lines = await answer.text();
  if (answer.ok) return parse(lines);
  return read(answer.status, lines);
}

/** Show the conversation of a session. */
export function conversation(view) {
  const place = h("div", { class: "turns", tabindex: "0", "aria-label": `Conversation of ${view.name}`, role: "region" }, "…");
  const dialog = open(`Conversation of ${view.name}`, [place, h("div", { class: "actions" }, h("span", { class: "grow" }),
    h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"))], { wide: true });
  load(view.name).then((found) => {
    const shown = found.slice(-MOST).map((turn) => (turn.tool
      ? h("details", {}, h("summary", {}, turn.tool), h("pre", {}, turn.text))
      : h("section", { class: turn.who }, h("h3", {}, turn.who === "user" ? "You" : view.agent), h("p", {}, turn.text))));
    place.replaceChildren(...(shown.length ? shown : [h("p", {}, "There is nothing to read in it yet.")]));
    place.scrollTop = place.scrollHeight;
  }, (error) => { place.textContent = error.message; });
}
