// The settings page: a card for each thing, in the order people need them.
import { $, h } from "./core.js";
import * as cards from "./cards.js";
import { connections } from "./connections.js";
import { notice, start } from "./live.js";
import { sites } from "./sites.js";
import { update } from "./updates.js";
import { webhooks } from "./webhooks.js";

const all = [
  ["sessions", "Sessions", cards.sessions],
  ["connections", "Connections", connections],
  ["secrets", "Secrets", cards.secrets],
  ["files", "Files", cards.files],
  ["sites", "Sites", sites],
  ["account", "Account", cards.account],
  ["box", "Box", cards.box],
  ["webhooks", "Webhooks", webhooks],
  ["update", "Update", update],
];

for (const [id, title, card] of all) {
  if (!card) continue;
  $("contents").append(h("a", { href: `#${id}` }, title));
  const head = h("div", { class: "head" }, h("h2", { id: `${id}-title` }, title));
  const section = h("section", { id, class: "card", "aria-labelledby": `${id}-title` }, head);
  $("cards").append(section);
  card(section, head);
}

notice($("notice"));
start();
if (location.hash) $(location.hash.slice(1))?.scrollIntoView();
