// Sends files to ~/uploads, one after the other, with their progress.
import { base, Failure, h, iconButton, read, say, size, toast } from "./core.js";

function send(file, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `${base}/api/uploads/${encodeURIComponent(file.name)}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("Accept", "application/json");
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onload = () => {
      try {
        resolve(read(request.status, request.responseText));
      } catch (error) {
        reject(error);
      }
    };
    request.onerror = () => reject(new Failure("offline", `${file.name}: the connection broke. Nothing was stored; send it again.`, 0));
    request.onabort = () => reject(new Failure("aborted", `${file.name} was not sent.`, 0));
    progress.abort = () => request.abort();
    request.send(file);
  });
}

/** Upload `files`; `done(stored)` is called for each that arrived. */
export async function upload(files, done = () => {}) {
  for (const file of files) {
    const bar = h("progress", { max: file.size || 1, value: 0, "aria-label": `Sending ${file.name}` });
    const text = h("span", {}, file.name);
    const progress = (sent) => {
      bar.value = sent;
      text.textContent = `${file.name}: ${size(sent)} of ${size(file.size)}`;
    };
    const box = h("div", { class: "toast" }, text, bar, iconButton("close", `Cancel sending ${file.name}`, () => progress.abort()));
    document.getElementById("toasts").append(box);
    try {
      const stored = await send(file, progress);
      say(`${stored.path} has arrived`);
      done(stored);
    } catch (error) {
      toast(error.message, "bad");
    } finally {
      box.remove();
    }
  }
}

/** Let people choose files, or drop them anywhere on the page. */
export function choose(done) {
  const input = h("input", { type: "file", multiple: true, class: "hidden", tabindex: "-1", "aria-hidden": "true", onchange: () => { upload([...input.files], done); input.value = ""; } });
  document.body.append(input);
  addEventListener("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    upload([...event.dataTransfer.files], done);
  });
  return () => input.click();
}
