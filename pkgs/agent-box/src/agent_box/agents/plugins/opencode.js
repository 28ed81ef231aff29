// Tells agent-box when opencode begins to work, is done, or asks something (agents/hook.py).
import { spawn } from "node:child_process";

const tell = (word) => {
  const child = spawn("agent-box-hook", [word], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
};

let refused = false;
let busy = false;

export const AgentBox = async () => ({
  event: async ({ event }) => {
    const { status, error } = event.properties ?? {};
    if (event.type === "session.status" && status?.type === "busy" && !busy) {
      busy = true;
      refused = false;
      tell("working");
    } else if (event.type === "session.error") {
      const code = error?.data?.statusCode;
      refused = error?.name === "ProviderAuthError" || code === 401 || code === 403;
    } else if (event.type === "session.idle") {
      busy = false;
      tell(refused ? "refused" : "idle");
    } else if (event.type === "permission.asked" || event.type === "question.asked") {
      tell("asks");
    }
  },
});
