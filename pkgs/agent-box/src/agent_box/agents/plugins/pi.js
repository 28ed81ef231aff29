// Tells agent-box when pi begins to work, has settled, or asks something.
import { ending, tell } from "./tell.js";

export default function (pi) {
  let end = "idle";
  pi.on("agent_start", () => {
    end = "idle";
    tell("working");
  });
  pi.on("message_end", (event) => {
    const { stopReason, errorMessage } = event.message ?? {};
    const status = /^(\d{3})\b/.exec(errorMessage ?? "")?.[1];
    end = stopReason === "error" ? ending(Number(status)) : "idle";
  });
  pi.on("agent_settled", () => tell(end));
  pi.on("ui_prompt_start", () => tell("asks"));
  pi.on("ui_prompt_end", () => tell("working"));
}
