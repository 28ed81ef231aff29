// What the plugins of all agents have in common: one word for the supervisor (agents/hook.py).
import { spawn } from "node:child_process";

export const tell = (word) => {
  const child = spawn("agent-box-hook", [word], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
};

// The word for a turn that ended with an error, by the status that the vendor answered with.
export const ending = (status) => (status === 401 || status === 403 ? "refused" : "failed");
