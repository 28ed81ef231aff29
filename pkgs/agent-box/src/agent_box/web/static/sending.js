// Sends files to ~/uploads, one after the other, with their progress. A broken connection ends
// nothing: the rest is sent when it is back, by the tus protocol, also after the page was reloaded.
import { base, Failure, h, iconButton, read, say, size, toast, user } from "./core.js";

const LATER = [1, 2, 4, 8, 15]; // seconds between two tries
const LARGEST = 8 << 20, SMALLEST = 256 << 10; // bytes of a part; one that breaks off is sent again

const encoded = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
const keyOf = (file) => `agent-box:upload:${user}:${file.size}:${file.lastModified}:${file.name}`;

/** One request of the protocol; resolves with it whatever the box answered. */
function ask(method, address, headers, body, upload) {
  return new Promise((resolve, reject) => {
    const request = upload.request = new XMLHttpRequest();
    request.open(method, address);
    for (const [name, value] of Object.entries({ "Tus-Resumable": "1.0.0", Accept: "application/json", ...headers })) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => upload.moved(event.loaded);
    request.onload = () => resolve(request);
    request.onerror = () => reject(new Failure("offline", "The connection broke.", 0));
    request.onabort = () => reject(new Failure("aborted", "It was not sent.", 0));
    request.send(body);
  });
}

/** The digest of a part in the protocol's terms: what arrives otherwise is not kept. */
async function checksum(part) {
  if (!globalThis.crypto?.subtle) return {}; // not on a page without TLS
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", await part.arrayBuffer()));
  return { "Upload-Checksum": `sha256 ${btoa(String.fromCharCode(...sum))}` };
}

const isTemporary = (error) => error.status === 460 || error.code === "offline" || error.status === 401 || error.status === 408 || error.status >= 500 && error.code !== "full";

class Upload {
  constructor(file) {
    this.file = file;
    this.from = 0;
    this.step = LARGEST;
    this.bar = h("progress", { max: file.size || 1, value: 0, "aria-label": `Sending ${file.name}` });
    this.text = h("span", {}, file.name);
    this.element = h("div", { class: "toast", "data-busy": true }, this.text, this.bar, iconButton("close", `Cancel sending ${file.name}`, () => this.cancel()));
  }

  moved(sent) {
    this.bar.value = this.from + sent;
    this.text.textContent = `${this.file.name}: ${size(this.from + sent)} of ${size(this.file.size)}`;
  }

  cancel() {
    this.cancelled = true;
    this.wake?.();
    this.request.abort();
  }

  /** Where the box keeps this file: what was begun before, else a new place. */
  async begin() {
    this.place = localStorage.getItem(keyOf(this.file));
    if (this.place) {
      const known = await ask("HEAD", this.place, {}, null, this);
      if (known.status === 200) return this.told(known);
      if (known.status !== 404) read(known.status, known.responseText);
    }
    const made = await ask("POST", `${base}/api/partial-uploads`, { "Upload-Length": String(this.file.size), "Upload-Metadata": `filename ${encoded(this.file.name)}` }, null, this);
    if (made.status !== 201) read(made.status, made.responseText);
    this.place = made.getResponseHeader("Location");
    localStorage.setItem(keyOf(this.file), this.place);
    return this.told(made);
  }

  /** Take over what the box has told; returns the name of the file once it is complete. */
  told(answer) {
    this.from = Number(answer.getResponseHeader("Upload-Offset") ?? 0);
    this.moved(0);
    const named = answer.getResponseHeader("Content-Location");
    return named ? decodeURIComponent(named.split("/").pop()) : null;
  }

  async send() {
    let tries = 0, last = 0;
    for (;;) {
      try {
        if (this.cancelled) throw new Failure("aborted", "It was not sent.", 0);
        const name = await this.begin() ?? await this.rest();
        localStorage.removeItem(keyOf(this.file));
        return { name, path: `~/uploads/${name}` };
      } catch (error) {
        if (this.cancelled) await this.forget();
        if (this.cancelled || !(error instanceof Failure) || !isTemporary(error)) throw error;
        this.step = Math.max(this.step / 2, SMALLEST);
        if (this.from > last) tries = 0;
        if (error.code === "damaged" && tries >= LATER.length) throw error;
        last = this.from;
        this.text.textContent = `${this.file.name}: waits for the connection; what has arrived is kept`;
        await new Promise((done) => {
          this.wake = done;
          setTimeout(done, LATER[Math.min(tries, LATER.length - 1)] * 1000);
          addEventListener("online", done, { once: true });
        });
        tries += 1;
      }
    }
  }

  async rest() {
    for (let name = null; ;) {
      const part = this.file.slice(this.from, this.from + this.step), before = this.from;
      const headers = { "Upload-Offset": String(this.from), "Content-Type": "application/offset+octet-stream", ...await checksum(part) };
      const answer = await ask("PATCH", this.place, headers, part, this);
      if (answer.status !== 204) read(answer.status, answer.responseText);
      if ((name = this.told(answer)) !== null) return name;
      if (this.from <= before) throw new Failure("offline", "The connection broke.", 0); // not all has arrived
    }
  }

  async forget() {
    localStorage.removeItem(keyOf(this.file));
    if (this.place) await ask("DELETE", this.place, {}, null, this).catch(() => {});
  }
}

/** Upload `files`; `done(stored)` is called for each that arrived. */
export async function upload(files, done = () => {}) {
  for (const file of files) {
    const sending = new Upload(file);
    document.getElementById("toasts").append(sending.element);
    try {
      const stored = await sending.send();
      say(`${stored.path} has arrived`);
      done(stored);
    } catch (error) {
      toast(`${file.name}: ${error.message}`, "bad");
    } finally {
      sending.element.remove();
    }
  }
}

/** Give up an upload that stopped half-way. */
export async function discard(id) {
  const answer = await ask("DELETE", `${base}/api/partial-uploads/${id}`, {}, null, { moved() {} });
  if (answer.status !== 204) read(answer.status, answer.responseText);
}
