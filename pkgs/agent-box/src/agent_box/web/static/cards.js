// The cards of the settings page. Each fills its section and keeps it up to date.
import { ago, base, call, h, iconButton, run, size, span, tilde, toast, when } from "./core.js";
import { add } from "./add.js";
import { act, close, form, logs, path, rename, transcript } from "./dialogs.js";
import { icon, stateIcon } from "./icons.js";
import { follow, ordered } from "./live.js";
import { loading, rows, table } from "./tables.js";
import { choose } from "./upload.js";
import { word } from "./work.js";

export function sessions(section, head) {
  head.append(
    h("button", { type: "button", class: "small", onclick: restartAll }, icon("restart"), "Restart all"),
    h("button", { type: "button", class: "small primary", onclick: () => add(() => {}).catch((error) => toast(error.message, "bad")) }, icon("add"), "New session"));
  const body = table(section, "Sessions", ["Name", "State", "Agent", "Directory", "Since", ""]);
  const row = (view) => {
    const name = view.name, live = ["running", "waiting", "starting", "crashed"].includes(view.state);
    const doing = (verb, said) => (event) => run(event.currentTarget, () => act(name, verb, said));
    return h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `${base}/?arg=${encodeURIComponent(name)}` }, name)),
      h("td", {}, h("span", { class: "state", "data-state": view.state, title: view.reason }, stateIcon(word(view)), h("b", {}, word(view))), view.reason ? h("div", { class: "hint", title: view.reason }, view.reason) : null),
      h("td", {}, view.agent), h("td", { class: "place", title: view.workingDirectory }, h("span", {}, tilde(view.workingDirectory))), h("td", { class: "when" }, ago(view.since)),
      h("td", { class: "do" },
        live ? iconButton("restart", `Restart ${name}`, doing("restart", "restarted")) : view.state === "unmanaged" ? null : iconButton("play", `Start ${name}`, doing("start", "started")),
        iconButton("log", `Log of ${name}`, () => logs(view)),
        view.id && view.agent !== "shell" ? h("a", { class: "icon-button", href: `${base}/api/${path(name, "transcript")}`, "aria-label": `Transcript of ${name}`, title: `Transcript of ${name}`, onclick: (event) => transcript(event, name) }, icon("download")) : null,
        view.id ? iconButton("edit", `Rename ${name}`, () => rename(view)) : null,
        iconButton("close", `Stop or remove ${name}`, () => close(view))));
  };
  follow((kind) => {
    if (kind === "sessions") rows(body, ordered(), (view) => view.name, row, "No sessions yet.");
  });
}

function restartAll() {
  const stopped = h("input", { type: "checkbox" });
  form("Restart all sessions?", [h("p", {}, "Every agent is ended and started again with its conversation. What it was doing this moment is cut off."),
    h("label", { class: "check" }, stopped, "Start the stopped ones too")], "Restart all", async () => {
    const { errors } = await call("POST", "restart-all", { includeStopped: stopped.checked });
    if (errors.length) toast(errors.map((error) => `${error.name}: ${error.message}`).join(" "), "bad");
    else toast("All sessions were restarted.");
  }, { danger: true, keep: false });
}

export function secrets(section, head) {
  head.append(
    h("button", { type: "button", class: "small", onclick: () => paste() }, "Paste many"),
    h("button", { type: "button", class: "small primary", onclick: () => edit() }, icon("add"), "Add secret"));
  section.append(h("p", { class: "hint" }, "Environment variables of every session, or of one, kept in ~/.config/agent-box/env and session-env beside it. Values are never shown again. Sessions get them at their next start."));
  const stale = h("div", { class: "notice warn", hidden: true });
  section.append(stale);
  const body = table(section, "Secrets", ["Name", "For", ""]);

  const load = loading(section, async () => {
    const found = await call("GET", "env");
    const items = [...found.keys.map((key) => ({ key, session: null })), ...Object.entries(found.own).flatMap(([session, keys]) => keys.map((key) => ({ key, session })))];
    rows(body, items, (item) => `${item.session}/${item.key}`, ({ key, session }) => h("tr", {},
      h("th", { scope: "row" }, h("code", {}, key)), h("td", {}, session ?? "every session"),
      h("td", { class: "do" }, iconButton("edit", `Replace ${called(key, session)}`, () => edit(key, session)), iconButton("close", `Remove ${called(key, session)}`, () => remove(key, session)))), "No secrets yet.");
    stale.hidden = !found.stale.length;
    stale.replaceChildren(h("p", {}, `Still running with old values: ${found.stale.join(", ")}.`),
      h("button", { type: "button", class: "small", onclick: (event) => run(event.currentTarget, async () => {
        for (const name of found.stale) await act(name, "restart", "restarted");
        load();
      }) }, "Restart them"));
  });

  const called = (key, session) => (session ? `${key} of ${session}` : key);
  const whose = (session) => h("select", { name: "session", disabled: session !== undefined }, h("option", { value: "" }, "every session"),
    ordered().filter((view) => view.id).map((view) => h("option", { value: view.name, selected: view.name === session }, view.name)));
  const store = (force, session) => async (values) => {
    const { changed } = await call("POST", "env", { ...values, force: force.checked, session: session.value || null });
    toast(changed.length ? `Stored: ${changed.join(", ")}.` : "Nothing changed: they had these values already.");
    load();
  };
  const forced = () => {
    const box = h("input", { type: "checkbox" });
    return [box, h("label", { class: "check" }, box, "Store even names that can break every session (PATH, HOME, …)")];
  };
  function edit(key = "", session = undefined) {
    const [force, row] = forced();
    const owner = whose(session);
    const name = h("input", { name: "key", value: key, readonly: Boolean(key), required: true, autocomplete: "off", autocapitalize: "off", spellcheck: "false", pattern: "[A-Za-z_][A-Za-z0-9_]*", title: "Letters, digits and _" });
    const value = h("textarea", { name: "value", rows: 3, class: "secret", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    const show = h("input", { type: "checkbox", onchange: () => value.classList.toggle("secret", !show.checked) });
    form(key ? `Replace ${called(key, session)}` : "Add secret", [h("div", { class: "pair" }, h("label", {}, "Name", name), h("label", {}, "For", owner)), h("label", {}, "Value (several lines are fine)", value),
      h("label", { class: "check" }, show, "Show the value"), key ? null : row], "Store", () => store(force, owner)({ values: { [name.value.trim()]: value.value } }));
    (key ? value : name).focus();
  }
  function paste() {
    const [force, row] = forced();
    const owner = whose();
    const text = h("textarea", { name: "text", rows: 12, autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true, placeholder: "KEY=value\nexport OTHER=\"value\"\n# comments are skipped" });
    form("Paste many secrets", [h("label", {}, "One KEY=value a line; values in quotes may go on over several lines", text), h("label", {}, "For", owner), row], "Store all", () => store(force, owner)({ text: text.value }));
  }
  function remove(key, session) {
    form(`Remove ${called(key, session)}?`, h("p", {}, "Its value cannot be shown or restored. Running sessions keep it until they are restarted."), "Remove", async () => {
      await call("DELETE", `env/${encodeURIComponent(key)}${session ? `?session=${encodeURIComponent(session)}` : ""}`);
      toast(`${called(key, session)} was removed.`);
      load();
    }, { danger: true, keep: false });
  }
  follow((kind) => { if (kind === "env" || kind === "state") load(); });
  load();
}

export function files(section, head) {
  const pick = choose((stored) => { toast(`Stored as ${stored.path}`); load(); });
  head.append(h("a", { class: "button small", href: `${base}/downloads/` }, icon("download"), "All downloads"),
    h("button", { type: "button", class: "small primary", onclick: pick }, icon("upload"), "Send files"));
  section.append(h("p", { class: "hint" }, "Files you send arrive in ~/uploads; drop them anywhere on this page. What agents put into ~/downloads is here for you."));
  const waiting = h("div", { class: "notice warn", hidden: true });
  const room = h("p", { class: "hint" });
  section.append(waiting);
  const body = table(section, "Files", ["Name", "Size", "Changed", ""]);
  section.append(room);
  const load = loading(section, async () => {
    const [down, up] = await Promise.all([call("GET", "downloads"), call("GET", "uploads")]);
    const items = [...down.entries.slice(0, 20).map((entry) => ({ ...entry, where: "downloads" })), ...up.entries.slice(0, 20).map((entry) => ({ ...entry, where: "uploads" }))];
    rows(body, items, (item) => `${item.where}/${item.path}`, (item) => h("tr", {},
      h("th", { scope: "row" }, item.where === "downloads" ? h("a", { href: `${base}/downloads/${item.path}${item.directory ? "/" : ""}` }, `~/downloads/${item.name}`) : `~/uploads/${item.name}`),
      h("td", { class: "number" }, size(item.size)), h("td", {}, when(item.modified)),
      h("td", { class: "do" }, item.directory ? null : iconButton("close", `Remove ${item.name}`, () => remove(item)))), "No files yet.");
    const stopped = up.partial.filter((item) => Date.now() / 1000 - item.changed > 20);
    waiting.hidden = !stopped.length;
    waiting.replaceChildren(...stopped.map((item) => h("p", {}, `${item.name} stopped half-way: ${size(item.offset)} of ${size(item.size)} are there. Send the same file again to go on. `,
      h("button", { type: "button", class: "small", onclick: (event) => run(event.currentTarget, () => import("./sending.js").then(({ discard }) => discard(item.id)).then(load)) }, `Give up ${item.name}`))));
    room.textContent = `Room for uploads: ${size(up.room)}.`;
  });
  function remove(item) {
    form(`Remove ${item.name}?`, h("p", {}, "The file is gone for good."), "Remove", async () => {
      await call("DELETE", `${item.where}/${item.path}`);
      load();
    }, { danger: true, keep: false });
  }
  follow((kind) => { if (kind === "files") load(); });
  load();
}

export function account(section, head) {
  head.append(h("button", { type: "button", class: "small primary", onclick: password }, "Change password"));
  const body = table(section, "Logins", ["Device", "Address", "Last used", "Ends", ""]);
  const others = h("button", { type: "button", class: "small", onclick: () => run(others, async () => {
    await call("DELETE", "/gate/logins");
    toast("All other logins were ended.");
    load();
  }) }, "End all other logins");
  const freed = h("button", { type: "button", class: "small", onclick: unban }, "Unban an address");
  section.append(h("div", { class: "actions" }, others, freed));
  let limits = { minLength: 16, maxLength: 64 };
  const load = loading(section, async () => {
    const found = await call("GET", "/gate/account");
    limits = found.password ?? limits;
    others.hidden = found.logins.filter((login) => !login.current).length === 0;
    rows(body, found.logins, (login) => login.id, (login) => h("tr", {},
      h("th", { scope: "row" }, login.device || "Unknown device", login.current ? h("span", { class: "tag" }, "this one") : null),
      h("td", {}, login.address ?? "–"), h("td", { "data-label": "used" }, when(login.lastUse)), h("td", { "data-label": "ends" }, when(login.ends)),
      h("td", { class: "do" }, login.current ? null : iconButton("close", `End the login of ${login.device || "an unknown device"}`, (event) => run(event.currentTarget, async () => {
        await call("DELETE", `/gate/logins/${encodeURIComponent(login.id)}`);
        load();
      })))), "No logins.");
  });
  function password() {
    const field = (label, name, autocomplete, more = {}) => [label, h("input", { type: "password", name, autocomplete, required: true, ...more })];
    const rule = { minlength: limits.minLength, maxlength: limits.maxLength };
    const [current, fresh, again] = [field("Current password", "current", "current-password"), field("New password", "new", "new-password", rule), field("New password once more", "again", "new-password", rule)];
    form("Change password", [
      h("input", { class: "hidden", name: "username", autocomplete: "username", value: document.body.dataset.user, readonly: true, tabindex: "-1", "aria-hidden": "true" }),
      ...[current, fresh, again].map(([label, input]) => h("label", {}, label, input)),
      h("p", { class: "hint" }, `${limits.minLength} to ${limits.maxLength} characters of any kind. All other logins end, and their terminals close.`)], "Change password", async () => {
      if (fresh[1].value !== again[1].value) throw new Error("The two new passwords differ.");
      await call("POST", "/gate/password", { current: current[1].value, new: fresh[1].value });
      toast("The password was changed. All other logins have ended.");
      load();
    });
  }
  function unban() {
    const address = h("input", { name: "address", required: true, autocomplete: "off", inputmode: "text", spellcheck: "false", placeholder: "203.0.113.7" });
    form("Unban an address", [h("label", {}, "IPv4 or IPv6 address", address), h("p", { class: "hint" }, "Five wrong passwords ban an address for an hour.")], "Unban", async () => {
      await call("POST", "/gate/unban", { address: address.value.trim() });
      toast(`${address.value.trim()} may sign in again.`);
    });
  }
  // Nothing tells of a login made elsewhere: look when somebody comes back to this page.
  addEventListener("focus", load);
  load();
}

export function box(section, head) {
  const refresh = h("button", { type: "button", class: "small", onclick: () => run(refresh, load) }, icon("restart"), "Look again");
  head.append(refresh);
  const problems = h("div", { class: "notice warn", hidden: true });
  const facts = h("dl", { class: "facts" });
  section.append(problems, facts);
  const bans = table(section, "Banned addresses", ["Banned address", "Since", "Until", ""]);
  section.append(h("p", { class: "hint" }, "Five wrong passwords ban an address for an hour; of IPv6 its /64. Shown are bans for passwords of yours."));
  const units = table(section, "Units", ["Unit", "State", "Since", "Restarts"]);
  const meter = (total, available) => (total ? [h("meter", { min: 0, max: total, high: total * 0.9, value: total - available, "aria-label": "in use" }), ` ${size(available)} free of ${size(total)}`] : ["unknown"]);
  async function lift(ban) {
    await call("POST", "/gate/unban", { address: ban.unban });
    toast(`${ban.address} may sign in again.`);
    load();
  }
  const load = loading(section, async () => {
    const [found, banned] = await Promise.all([call("GET", "box"), call("GET", "/gate/bans")]);
    rows(bans, banned.bans, (ban) => ban.address, (ban) => h("tr", {},
      h("th", { scope: "row" }, ban.address), h("td", { "data-label": "since" }, when(ban.since)), h("td", { "data-label": "until" }, ban.until ? when(ban.until) : "for good"),
      h("td", { class: "do" }, h("button", { type: "button", class: "small", "aria-label": `Unban ${ban.address}`, onclick: (event) => run(event.currentTarget, () => lift(ban)) }, "Unban"))), "No address is banned for wrong passwords of yours.");
    problems.hidden = !found.problems.length;
    problems.replaceChildren(...found.problems.map((text) => h("p", {}, text)));
    const certificate = found.certificate;
    const entries = [
      ["Name", [found.host]],
      ["Revision", [h("code", {}, found.revision ?? "not known")]],
      ["Runtime", [found.version ?? "–"]],
      ["Up for", [found.uptime ? span(found.uptime) : "–"]],
      ["Load", [`${found.load.map((value) => value.toFixed(2)).join("  ")} on ${found.cpus} CPUs`]],
      ["Memory", meter(found.memory?.total, found.memory?.available)],
      ["Disk", meter(found.disk?.total, found.disk?.available)],
      ["Certificate", [certificate?.trusted ? `valid until ${when(certificate.ends)}, from ${certificate.issuer}` : certificate ? `not trusted: ${certificate.reason}` : "not known"]],
    ];
    facts.replaceChildren(...entries.flatMap(([name, content]) => [h("dt", {}, name), h("dd", {}, ...content)]));
    rows(units, found.units ?? [], (unit) => unit.name, (unit) => h("tr", {},
      h("th", { scope: "row" }, unit.name),
      h("td", {}, h("span", { class: "state" }, stateIcon({ active: "running", failed: "failed", activating: "starting" }[unit.state] ?? "stopped"), h("b", {}, unit.state)), ` ${unit.detail}`),
      h("td", { "data-label": "since" }, unit.since ? when(unit.since) : "–"), h("td", { class: "number", "data-label": "restarts" }, String(unit.restarts))), "Systemd does not tell this page about its units.");
  });
  load();
}
