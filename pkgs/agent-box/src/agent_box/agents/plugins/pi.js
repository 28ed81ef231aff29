// Tells agent-box when pi begins to work, has settled, or asks something (agents/hook.py).
import { spawn } from "node:child_process";

const tell = (word) => {
  const child = spawn("agent-box-hook", [word], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
};

export default function (pi) {
  let refused = false;
  pi.on("agent_start", () => {
    refused = false;
    tell("working");
  });
  pi.on("message_end", (event) => {
    const { stopReason, errorMessage } = event.message ?? {};
    refused = stopReason === "error" && /^40[13]\b/.test(errorMessage ?? "");
  });
  pi.on("agent_settled", () => tell(refused ? "refused" : "idle"));
  pi.on("ui_prompt_start", () => tell("asks"));
}
