// The page by the keyboard alone.

import { PARENTS, readAddress, setParams } from "./address.js";
import { byId } from "./dom.js";

const FIELDS = ["INPUT", "SELECT", "TEXTAREA"];
const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };

// The links to groups or topics of the list that has the focus, or of the first one.
function listLinks() {
  const links = [...byId("main").querySelectorAll(".go")].filter((each) => each.checkVisibility());
  const here = (document.activeElement.closest("#list, table, #events") ?? links[0]?.closest("#list, table, #events"));
  return links.filter((each) => here?.contains(each));
}

function step(by) {
  const links = listLinks();
  const at = links.findIndex((each) => (each.closest("tr") ?? each).contains(document.activeElement));
  links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

function search(goBack) {
  const address = readAddress();
  if (address.view in PARENTS) goBack(address);
  else if (byId("filters").hidden) location.hash = "#/";
  byId("filters").hidden = false;
  byId("filters").elements.name.focus();
}

function leave(goBack) {
  const address = readAddress();
  if (address.view in PARENTS) goBack(address);
  else if (document.activeElement.name === "name" && document.activeElement.value) {
    document.activeElement.value = "";
    setParams({ name: "" });
  } else byId("main").focus({ preventScroll: true });
}

export function listenToKeys(goBack) {
  byId("keys").addEventListener("click", () => byId("help").showModal());
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    const isTyping = FIELDS.includes(document.activeElement?.tagName);
    if (event.key === "Escape") leave(goBack);
    else if (isTyping) return;
    else if (event.key === "/") search(goBack);
    else if (event.key === "?") byId("help").showModal();
    else if (event.key in STEPS && (event.key.length === 1 || document.activeElement.matches(".go"))) step(STEPS[event.key]);
    else return;
    event.preventDefault();
  });
}
