// Tells agent-box when opencode begins to work, is done, or asks something.
import { ending, tell } from "./tell.js";

const ASKED = ["permission.asked", "question.asked"];
const ANSWERED = ["permission.replied", "question.replied", "question.rejected"];

// The conversations that work: sub-agents have one of their own, and end before the whole does.
const busy = new Set();
let end = "idle";

const heard = (type, { sessionID, status, error } = {}) => {
  if (type === "session.status" && status?.type === "busy") {
    if (busy.size === 0) {
      end = "idle";
      tell("working");
    }
    busy.add(sessionID);
  } else if (type === "session.error" && error?.name !== "MessageAbortedError") {
    end = error?.name === "ProviderAuthError" ? "refused" : ending(error?.data?.statusCode);
  } else if (type === "session.idle" && busy.delete(sessionID) && busy.size === 0) {
    tell(end);
  } else if (ASKED.includes(type)) {
    tell("asks");
  } else if (ANSWERED.includes(type)) {
    tell("working");
  }
};

export const AgentBox = async () => ({
  event: async ({ event }) => heard(event.type, event.properties),
});
