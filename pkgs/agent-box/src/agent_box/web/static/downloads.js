// The index of downloads works without this; here dates become local.
import { when } from "./core.js";

for (const time of document.querySelectorAll("time")) {
  time.textContent = when(Date.parse(time.dateTime) / 1000);
}
