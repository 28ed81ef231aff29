// Which agents work, and which are done without that anybody has looked at them since.
import { follow, state } from "./live.js";

/** Milliseconds of work after which its end is news. */
const LONG = 10_000;

const begun = new Map(); // by id of the session, when its work was first seen
const unseen = new Set();

const idle = (view) => view.state === "running" && Boolean(view.idleSince);

/** What to call the state of a session: an agent that runs is idle, or done while nobody looked. */
export const word = (view) => (unseen.has(view.id) ? "done" : idle(view) ? "idle" : view.state);

export const isNews = (view) => unseen.has(view.id);

/** Somebody looks at a session now. */
export function looked(view) {
  unseen.delete(view.id);
}

/** Call `ended(view, milliseconds)` when an agent is done with longer work. */
export function watch(ended) {
  follow((kind) => {
    if (kind !== "sessions") return;
    for (const view of state.sessions.values()) {
      if (view.state === "running" && !idle(view)) {
        unseen.delete(view.id);
        if (!begun.has(view.id)) begun.set(view.id, Date.now());
        continue;
      }
      const worked = Date.now() - (begun.get(view.id) ?? Infinity);
      begun.delete(view.id);
      if (!idle(view)) unseen.delete(view.id);
      else if (worked >= LONG) {
        unseen.add(view.id);
        ended(view, worked);
      }
    }
  });
}
