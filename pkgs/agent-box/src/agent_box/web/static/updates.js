// The card about updates of the box: what runs, how far an update is, how the last one ended.
import { call, h, toast, when } from "./core.js";
import { form } from "./dialogs.js";
import { icon, stateIcon } from "./icons.js";
import { follow } from "./live.js";

const WORDS = { resolving: "Look what is newer", checking: "Make sure that it goes forward", building: "Build", switching: "Switch", committing: "Note what runs" };
const LOOKS = { current: "running", updated: "running", partly: "waiting", failed: "failed" };
const short = (revision) => (revision ?? "nothing").slice(0, 12);

export function update(section, head) {
  const start = h("button", { type: "button", class: "small primary", onclick: ask }, icon("restart"), "Update box");
  head.append(start);
  const about = h("p", { class: "hint" });
  const result = h("p", { role: "status" });
  const steps = h("ol", { "aria-label": "Steps of the update", hidden: true });
  const moves = h("ul", { "aria-label": "What moved", hidden: true });
  section.append(about, result, steps, moves);

  function ask() {
    form("Update the box?", h("p", {}, "Everything moves to its newest release: system, agent-box and the agents. Sessions go on; services of the box restart, this page too."), "Update box", async () => {
      await call("POST", "update");
      toast("The update was started.");
    }, { keep: false });
  }

  function draw({ may, revision, phases, status }) {
    const { running, result: end, phase } = status;
    start.hidden = !may;
    start.disabled = running;
    about.replaceChildren("This box runs revision ", h("code", {}, revision ?? "not known"), may ? "." : ". Whoever administers it decides who may update it.");
    const text = running ? `${status.message} …` : end ? `${status.message}. ${when(status.finished)}` : "It was never updated from here.";
    // Not said again by a screen reader when nothing changed.
    if (result.dataset.text !== text) {
      result.dataset.text = text;
      result.replaceChildren(...(running || end ? [h("span", { class: "state" }, stateIcon(running ? "starting" : LOOKS[end]), h("b", {}, running ? "updating" : end))] : []), ` ${text}`);
    }
    steps.hidden = !running;
    steps.replaceChildren(...phases.map((name) => h("li", name === phase ? { "aria-current": "step" } : {}, name === phase ? h("b", {}, WORDS[name]) : WORDS[name])));
    const moved = Object.entries(status.to).filter(([name, to]) => status.from[name] !== to);
    moves.hidden = !moved.length;
    moves.replaceChildren(...moved.map(([name, to]) => h("li", {}, `${name}: `, h("code", {}, short(status.from[name])), " to ", h("code", {}, short(to)))));
  }

  let again = 0;
  async function load() {
    clearTimeout(again);
    try {
      const found = await call("GET", "update");
      section.hidden = !found.enabled;
      const link = document.querySelector(`#contents a[href="#${section.id}"]`);
      if (link) link.hidden = !found.enabled;
      if (found.enabled) draw(found);
      section.querySelector(":scope > .problem")?.remove();
      // The service of this page restarts in the middle, and with it what tells of changes.
      if (found.enabled && found.status.running) again = setTimeout(load, 3000);
    } catch (error) {
      section.querySelector(":scope > .problem")?.remove();
      section.append(h("p", { class: "problem", role: "alert" }, error.message));
      again = setTimeout(load, 3000);
    }
  }
  follow((kind) => { if (kind === "update" || kind === "connection") load(); });
  load();
}
