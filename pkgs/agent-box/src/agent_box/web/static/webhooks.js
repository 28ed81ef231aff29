// The card about webhooks: what each session listens to, and the standing watches.
import { call, h, iconButton, run, toast } from "./core.js";
import { form } from "./dialogs.js";
import { icon } from "./icons.js";
import { follow } from "./live.js";

const CHIPS = { off: "muted", absent: "never subscribed", invalid: "broken", empty: "no subscriptions", unknown: "unreadable" };
const HINTS = {
  off: "Delivery is switched off: it receives nothing until it subscribes again.",
  listening: "",
  absent: "Receives nothing until it subscribes. There is nothing to clean up.",
  invalid: "Its list cannot be read, so it receives nothing. Subscribing again makes a new one; Clear removes the broken one.",
  empty: "Unsubscribed from everything: it receives nothing.",
  unknown: "Its list could not be read.",
};

const chip = (session) => {
  const count = session.topics.length;
  return session.state === "listening" ? `${count} subscription${count === 1 ? "" : "s"}` : CHIPS[session.state];
};
const ends = (row) => (/^(never|expired)/.test(row.expiresIn) ? row.expiresIn : `ends in ${row.expiresIn}`);
const more = (row) => [row.note, row.invalid ? `Matches nothing: ${row.reason}` : null,
  row.ignoreSenders ? `Without events of ${row.ignoreSenders.join(", ")}` : null,
  row.governed ? "Its rules come from the configuration of the box." : row.include || row.exclude ? "Narrowed by rules." : null].filter(Boolean);

export function webhooks(section, head) {
  const about = h("p", { class: "hint" });
  const list = h("div", { class: "folds" });
  const watches = h("div", { class: "folds" });
  const full = h("div", { class: "notice warn", hidden: true });
  section.append(about, list, h("h3", {}, "Standing watches"), h("p", { class: "hint" }, "Each event of these starts a fresh session, unless one that lives owns it."), full, watches);

  const end = (body, said) => async () => {
    await call("POST", "webhooks/unsubscribe", body);
    toast(said);
    await load();
  };
  const topic = (row, drop) => h("li", {}, h("div", {}, h("code", {}, row.topic), " ", h("span", { class: "hint" }, ends(row)), more(row).map((text) => h("div", { class: "hint" }, text))), drop);

  function session(item) {
    const name = item.name, count = item.topics.length;
    const drop = (row) => iconButton("close", `Unsubscribe ${name} from ${row.topic}`, (event) => run(event.currentTarget, end({ session: name, topic: row.topic }, `${name} gets no more events of ${row.topic}.`)));
    const all = !item.file ? null : h("button", { type: "button", class: "small danger", onclick: () => form(
      count ? `Unsubscribe ${name} from everything?` : `Clear the subscriptions of ${name}?`,
      h("p", {}, count ? `${name} stops listening to ${count} topic${count === 1 ? "" : "s"}: ${item.topics.map((row) => row.topic).join(", ")}.` : "It is then as if it had never subscribed."),
      count ? "Unsubscribe all" : "Clear", end({ session: name }, `${name} receives nothing now.`), { danger: true, keep: false }) }, count ? "Unsubscribe all" : "Clear");
    return h("details", { "data-fold": `subs-${name}` },
      h("summary", {}, h("b", {}, name), h("span", { class: "tag", "data-state": item.state }, chip(item))),
      h("ul", {}, item.topics.map((row) => topic(row, drop(row)))),
      h("div", { class: "actions" }, h("span", { class: "hint grow" }, HINTS[item.state]), all));
  }

  function watch(row) {
    const drop = h("button", { type: "button", class: "small danger", onclick: () => form(`Remove the watch on ${row.topic}?`, h("p", {}, "Its events start no more sessions. Sessions that it started go on."), "Remove watch", end({ topic: row.topic }, `Nothing watches ${row.topic} any more.`), { danger: true, keep: false }) }, "Remove watch");
    return h("details", { "data-fold": `watch-${row.topic}` },
      h("summary", {}, h("code", {}, row.topic), h("span", { class: "tag" }, ends(row))),
      more({ ...row, note: null }).map((text) => h("p", { class: "hint" }, text)),
      h("p", { class: "hint" }, "What a match launches:"), h("pre", { tabindex: "0" }, row.preview),
      h("div", { class: "actions" }, h("span", { class: "grow" }), drop));
  }

  let shown = "";
  function draw(found) {
    const text = JSON.stringify(found);
    if (text === shown) return;
    shown = text;
    const open = new Set([...section.querySelectorAll("details[open]")].map((fold) => fold.dataset.fold));
    const focused = document.activeElement?.closest?.("[data-fold]")?.dataset.fold;
    about.replaceChildren("Events reach sessions as messages. Senders deliver to ", h("code", {}, found.url), found.sources.length ? `, known senders: ${found.sources.join(", ")}.` : ". No sender is known yet: run agent-box-webhook setup in a session.");
    list.replaceChildren(...(found.sessions.length ? found.sessions.map(session) : [h("p", { class: "empty" }, "No sessions yet.")]));
    const rows = found.watches.topics.map(watch);
    watches.replaceChildren(...(rows.length ? rows : [h("p", { class: "empty" }, found.watches.filterState === "invalid" ? "The list of watches is broken: no watch works." : "No standing watches.")]));
    full.hidden = !(rows.length && found.hooks.live >= found.hooks.max);
    full.textContent = `${found.hooks.live} sessions of watches live, which is the limit: further events wait until one is removed.`;
    for (const fold of section.querySelectorAll("details")) {
      fold.open = open.has(fold.dataset.fold);
      if (fold.dataset.fold === focused) fold.querySelector("summary").focus();
    }
  }

  async function load() {
    try {
      const found = await call("GET", "webhooks");
      section.hidden = !found.enabled;
      const link = document.querySelector(`#contents a[href="#${section.id}"]`);
      if (link) link.hidden = !found.enabled;
      if (found.enabled) draw(found);
      section.querySelector(":scope > .problem")?.remove();
    } catch (error) {
      section.querySelector(":scope > .problem")?.remove();
      section.append(h("p", { class: "problem", role: "alert" }, error.message));
    }
  }
  head.append(h("button", { type: "button", class: "small", onclick: (event) => run(event.currentTarget, load) }, icon("restart"), "Look again"));
  // Not for each of many changes at once.
  let soon = 0;
  follow((kind) => {
    if (!["webhooks", "sessions"].includes(kind)) return;
    clearTimeout(soon);
    soon = setTimeout(load, 250);
  });
  load();
}
