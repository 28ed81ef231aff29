// The dialog that makes a session, and its directory picker.
import { call, h } from "./core.js";
import { form } from "./dialogs.js";

const DRAFT = "agent-box:new-session";
const NAME = "[A-Za-z0-9][A-Za-z0-9_\\-]*";

/** A text field that offers the directories below the home. */
export function picker(props) {
  const list = h("ul", { id: "directories", role: "listbox", class: "options", "aria-label": "Directories", hidden: true });
  const input = h("input", { ...props, role: "combobox", "aria-expanded": "false", "aria-controls": "directories", "aria-autocomplete": "list", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  const note = h("span", { class: "hint", role: "status" });
  let parent = null, names = [], active = -1, asked = 0, timer = 0;

  const options = () => [...list.children];
  function show(open) {
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
    if (!open) mark(-1);
  }
  function mark(index) {
    active = index;
    options().forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
    const option = options()[index];
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }
  function split() {
    const at = input.value.lastIndexOf("/");
    return at < 0 ? ["~", input.value === "~" ? "" : input.value] : [input.value.slice(0, at) || "/", input.value.slice(at + 1)];
  }
  function filter() {
    const start = split()[1].toLowerCase();
    const found = names.filter((name) => name.toLowerCase().startsWith(start) && (start || !name.startsWith("."))).slice(0, 200);
    list.replaceChildren(...found.map((name, index) => h("li", { role: "option", id: `directory-${index}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); take(name); } }, `${name}/`)));
    show(found.length > 0 && document.activeElement === input);
    active = -1;
  }
  async function load() {
    const wanted = split()[0], mine = ++asked;
    if (wanted === parent) { filter(); return; }
    try {
      const found = await call("GET", `directories?path=${encodeURIComponent(wanted)}`);
      if (mine !== asked) return;
      [parent, names] = [wanted, found.directories];
      note.textContent = found.truncated ? "Only the first 500 are listed." : "";
    } catch (error) {
      if (mine !== asked) return;
      [parent, names] = [wanted, []];
      note.textContent = error.message;
    }
    filter();
  }
  function take(name) {
    const prefix = split()[0];
    input.value = `${prefix.replace(/\/$/, "")}/${name}/`;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(load, 80); });
  input.addEventListener("focus", () => { input.select(); load(); });
  input.addEventListener("blur", () => show(false));
  input.addEventListener("keydown", (event) => {
    const count = options().length, open = !list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) load();
      else mark(event.key === "ArrowDown" ? (active + 1) % count : (active - 1 + count) % count);
    } else if (event.key === "Enter" && open && active >= 0) {
      event.preventDefault();
      take(options()[active].textContent.slice(0, -1));
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      event.stopPropagation();
      show(false);
    }
  });
  return { input, element: h("span", { class: "combo" }, input, list, note) };
}

/** Open the dialog, filled with what `preset` holds; `made(session)` is called with the new session. */
export async function add(made, preset = {}) {
  const { agents, default: usual } = await call("GET", "agents");
  let draft = {};
  try {
    draft = JSON.parse(sessionStorage.getItem(DRAFT)) ?? {};
  } catch {
    // spoilt: start afresh
  }
  const agent = h("select", { name: "agent" }, agents.map((name) => h("option", { value: name }, name)));
  agent.value = [preset.agent, draft.agent, usual].find((name) => agents.includes(name)) ?? agents[0];
  const place = picker({ name: "workingDirectory", placeholder: "~" });
  place.input.value = preset.workingDirectory ?? draft.workingDirectory ?? "~/";
  const prompt = h("textarea", { name: "prompt", rows: 5, placeholder: "What should the agent do first? Leave empty to begin by talking to it." });
  prompt.value = draft.prompt ?? "";
  const name = h("input", { name: "name", maxlength: 150, autocomplete: "off", autocapitalize: "off", spellcheck: "false", pattern: NAME, title: "Letters, digits, - and _", placeholder: "chosen for you" });
  name.value = preset.name || (draft.name ?? "");
  const mkdir = h("input", { type: "checkbox", name: "mkdir" });
  const ask = h("input", { type: "checkbox", name: "ask" });
  const dialog = form("New session", [
    h("div", { class: "pair" }, h("label", {}, "Agent", agent), h("label", {}, "Name (optional)", name)),
    h("label", {}, "Working directory", place.element),
    h("label", { class: "check" }, mkdir, "Make the directory if there is none"),
    h("label", {}, "First task (optional)", prompt),
    h("label", { class: "check" }, ask, "The agent asks before it acts"),
  ], "Start session", async () => {
    const { session } = await call("POST", "sessions", {
      agent: agent.value,
      name: name.value.trim() || null,
      workingDirectory: place.input.value.replace(/(.)\/$/, "$1"),
      mkdir: mkdir.checked,
      prompt: prompt.value || null,
      skipPermissions: !ask.checked,
    });
    sessionStorage.removeItem(DRAFT);
    made(session);
  });
  dialog.addEventListener("input", () => sessionStorage.setItem(DRAFT, JSON.stringify({ agent: agent.value, workingDirectory: place.input.value, prompt: prompt.value, name: name.value })));
  agent.focus();
}
