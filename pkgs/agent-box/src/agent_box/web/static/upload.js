// Files for ~/uploads: chosen, or dropped anywhere on the page.
import { h, toast } from "./core.js";

/** Loaded when first needed: most visits send no file. */
const send = (files, done) => import("./sending.js").then(({ upload }) => upload(files, done)).catch((error) => toast(error.message, "bad"));

/** Let people choose files, or drop them anywhere on the page. */
export function choose(done) {
  const input = h("input", { type: "file", multiple: true, class: "hidden", tabindex: "-1", "aria-hidden": "true", onchange: () => { send([...input.files], done); input.value = ""; } });
  document.body.append(input);
  addEventListener("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    send([...event.dataTransfer.files], done);
  });
  return () => input.click();
}
