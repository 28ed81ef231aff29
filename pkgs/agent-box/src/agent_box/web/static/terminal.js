// The page of a terminal inside the workspace, which is ttyd's: made to fit, to link and to copy.
import { base, h, say, toast, visible } from "./core.js";

/** Pixels: makes cells of most monospaced fonts eight pixels wide. Canvases cut to whole ones. */
const FONT_SIZE = 13.4;

/** Lines that tmux moves for one turn of a wheel. */
const TURN = 5;

/** Characters that a program may put on the clipboard at once. */
const MOST_COPIED = 1 << 20;

/** Where the terminal of session `name` is. */
export const address = (name) => `${base}/t/${name}/`;

/** What the terminal of a frame lacks; `isCurrent()` tells whether somebody looks at it. */
export function equip(frame, hint, isCurrent) {
  const page = frame.contentWindow;
  let known = false;
  const look = () => {
    if (page.term && !known) {
      known = true;
      links(page.term, hint);
      copies(page, isCurrent);
      swipes(page);
      newLines(page.term);
    }
    // ttyd's page counts columns before it draws on a canvas, whose cells are narrower: a part of
    // the width would stay empty.
    if (!known || !page.document.querySelector(".xterm-screen canvas")) return;
    watch.disconnect();
    page.term.options.fontSize = FONT_SIZE;
    page.dispatchEvent(new Event("resize"));
  };
  const watch = new MutationObserver(look);
  watch.observe(page.document, { childList: true, subtree: true });
  setTimeout(() => watch.disconnect(), 20000);
  look();
}

/** What a terminal that knows extended keys sends for Shift+Enter; tmux translates for who does not. */
const NEW_LINE = "\x1b[13;2u";

/** Shift+Enter makes a new line: the terminal by itself would send what it sends for Enter. */
function newLines(term) {
  term.attachCustomKeyEventHandler((event) => {
    if (event.key !== "Enter" || !event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return true;
    if (event.type === "keydown") term.input(NEW_LINE);
    // The browser would put a line end into the field that the terminal reads, which is Enter again.
    event.preventDefault();
    return false;
  });
}

/** Links with a text of their own (OSC 8) open at a click, and tell before where they lead. */
function links(term, hint) {
  term.options.linkHandler = {
    activate: (event, target) => { window.open(target, "_blank", "noopener,noreferrer"); },
    hover: (event, target) => { hint.textContent = visible(target); hint.hidden = false; },
    leave: () => { hint.hidden = true; },
  };
}

/** A program may fill the clipboard (OSC 52) of whoever looks at it, and never read it. */
function copies(page, isCurrent) {
  page.term.parser.registerOscHandler(52, (data) => {
    const content = data.slice(data.indexOf(";") + 1);
    if (content === "?" || content.length > MOST_COPIED * 2) return true;
    let text;
    try {
      text = new TextDecoder().decode(Uint8Array.from(atob(content), (each) => each.charCodeAt(0)));
    } catch {
      return true; // no base64: nothing to copy
    }
    if (!text) return true;
    const copy = () => page.navigator.clipboard.writeText(text).then(() => say("Copied"));
    const ask = () => toast(`The session wants to copy ${text.length} characters.`, "good", { label: "Copy", run: () => navigator.clipboard.writeText(text).catch(() => toast("The browser does not let this page copy.", "bad")) });
    // Some browsers let a page copy at a click only.
    if (isCurrent()) copy().catch(ask);
    else ask();
    return true;
  });
}

/** A finger moves the history as a wheel does: what scrolls is in tmux, not in the page. */
function swipes(page) {
  const field = page.document.querySelector(".xterm");
  let from = null;
  const at = ({ touches }) => { from = touches.length === 1 ? touches[0].clientY : null; };
  field.addEventListener("touchstart", at, { passive: true });
  field.addEventListener("touchend", at, { passive: true });
  field.addEventListener("touchmove", (event) => {
    if (from === null) return;
    const screen = field.querySelector(".xterm-screen"), { clientX, clientY } = event.touches[0];
    const turn = TURN * screen.clientHeight / page.term.rows;
    event.preventDefault(); // or the page itself would be drawn down and loaded anew
    for (; Math.abs(clientY - from) >= turn; from += Math.sign(clientY - from) * turn) {
      screen.dispatchEvent(new page.WheelEvent("wheel", { deltaY: Math.sign(from - clientY), deltaMode: 1, clientX, clientY, bubbles: true, cancelable: true }));
    }
  }, { passive: false });
}

/** Whether the page in a frame is one of the edge's own: the login, or that something is down. */
export function strange(frame) {
  try {
    const inside = frame.contentDocument;
    return { login: Boolean(inside?.querySelector("form[action='/login']")), page: Boolean(inside) };
  } catch {
    return { login: false, page: false }; // an error page of the browser's own
  }
}
