// The page of koff. It shows what the API says.

import { PARENTS, readAddress, setParams } from "./address.js";
import { abortRequests, apiPath, closeStream, events, fetchEvents, fetchJson, isLive, openStream } from "./api.js";
import { fetchClusters, showClusters } from "./clusters.js";
import { copy } from "./clipboard.js";
import { chooseColumns } from "./columns.js";
import { byId, element, patchChildren, setOptions } from "./dom.js";
import { showGroup } from "./group.js";
import { PAGE, groupsPath, saveSeen, showGroups, toggleDetails, unknownSince } from "./groups.js";
import { listenToKeys } from "./keys.js";
import { describeReading } from "./loading.js";
import { drawPlots, forgetPlots } from "./plot.js";
import { hearIncident, incidentsPath, showStories } from "./stories.js";
import { showTopic, showTopics, topicsPath } from "./topics.js";
import { explain, isUtc, moment, visible } from "./words.js";

const REFRESH = "koff refresh"; // the measure that the browser keeps of the newest one
const REFRESH_MS = 5000;
const STALE_MS = 20_000;
const SOON_MS = 300;
const BUSY_MS = 1000;
const state = {
  timer: 0, asked: 0, isLoading: false, isWanted: false, // the loop
  good: null, failure: "", isLost: false, // the newest response
  last: null, shown: "", names: [], hasChoices: false, // what is shown
  lists: {}, left: "", isTyping: false, // what the person did
};

// Back to the list, as it was when the user left it.
function goBack({ view, cluster }) {
  const query = view === "topic" ? `topics?${new URLSearchParams({ cluster })}` : "";
  location.hash = state.lists[PARENTS[view]] ?? `#/${query}`;
}

// --- What every view has -------------------------------------------------------------------------------------

function showParts({ view }) {
  byId("list").hidden = byId("below").hidden = byId("strip").hidden = view !== "groups";
  byId("group").hidden = view !== "group";
  byId("topics").hidden = view !== "topics" && view !== "topic";
  byId("overview").hidden = view !== "clusters";
  byId("filters").hidden = view in PARENTS || view === "clusters";
  const tab = PARENTS[view] ?? view;
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.view === tab) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  for (const label of document.querySelectorAll("#filters [data-of]")) {
    const isOfCluster = label.querySelector("[name=cluster]") && state.names.length < 2;
    const isOfLabels = label.querySelector("[name=label]")?.options.length === 1;
    label.hidden = !label.dataset.of.split(" ").includes(view) || Boolean(isOfCluster || isOfLabels);
  }
  byId("zone").textContent = isUtc() ? "local time" : "UTC";
}

// What the address says. A refresh leaves the fields alone: somebody may be typing.
function fillFilters({ view, params }) {
  for (const field of byId("filters").elements) {
    if (field.type === "checkbox") field.checked = Boolean(params.get(field.name));
    else field.value = params.get(field.name) ?? (field.name === "cluster" && view === "topics" ? state.names[0] : "") ?? "";
  }
}

function showUnknown(all) {
  patchChildren(byId("clusters"), all.clusters.filter((cluster) => !cluster.ready).map((cluster) => element("li", {}, unknownSince(cluster))));
  const text = describeReading(all.clusters);
  byId("loading").textContent = text;
  byId("loading").hidden = !text;
  return Boolean(text);
}

// Says how old the numbers are. Runs also while nothing arrives.
function showAge() {
  const isStale = state.good !== null && performance.now() - state.good.at_ms > STALE_MS; // the clock may be set
  const time = state.good?.time ?? "";
  if (time) byId("fresh").textContent = `as of ${time}`;
  const live = isStale || state.isLost ? "no contact" : isLive() ? "live" : "every 5 s";
  if (byId("live").textContent !== live) byId("live").textContent = live;
  const isWrong = Boolean(state.failure) || isStale;
  const text = time && state.shown ? `What is shown is of ${time}: ` : "";
  const offline = isWrong && !navigator.onLine ? ". This computer is offline" : "";
  if (isWrong) byId("error").textContent = `${text}${state.failure || "koff has not responded since"}${offline}`;
  if (isWrong && byId("error").hidden) byId("heard").textContent = byId("error").textContent;
  byId("error").hidden = !isWrong;
}

// --- The loop ------------------------------------------------------------------------------------------------

async function fetchView({ view, cluster, name, params }, clusters) {
  const names = async () => namesOf(await clusters);
  switch (view) {
    case "group": return fetchJson(apiPath("group", { cluster, group: name }));
    case "topic": return fetchJson(apiPath("topic", { cluster, topic: name, limit: 1000 }));
    case "topics": return (await names()).length ? fetchJson(topicsPath(params, await names())) : null;
    case "clusters": return fetchClusters(await names());
    case "events": return null;
    default: return fetchJson(groupsPath(params));
  }
}

const namesOf = (all) => all.clusters.map((cluster) => cluster.cluster).filter((name) => name !== null);

function showView({ address, found, all, incidents }) {
  const own = events.filter((event) => event.group === address.name && event.cluster === address.cluster);
  switch (address.view) {
    case "group": showGroup(found, own, incidents.incidents, state.lists.groups ?? "#/", Number(address.params.get("at"))); break;
    case "topic": showTopic(found, events, state.lists.topics); break;
    case "topics": if (found) showTopics(found, address.params); break;
    case "clusters": showClusters(found, all, events); break;
    case "groups": showGroups(found, address.params, namesOf(all)); break;
  }
  showStories(incidents, address);
  drawPlots();
}

// The focus stays where it is, also if its element has moved.
function keepFocus(change) {
  const focused = document.activeElement;
  change();
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

const redraw = () => state.last && keepFocus(() => showView(state.last));

async function show() {
  clearTimeout(state.timer);
  abortRequests();
  const asked = ++state.asked;
  Object.assign(state, { isLoading: true, isWanted: false });
  const address = readAddress();
  const key = [address.view, address.cluster, address.name].join("\n");
  if (key !== state.shown) clear();
  showParts(address);
  let isReading = false;
  try {
    const clusters = fetchJson("api/v1/clusters");
    const [all, found, incidents, fresh] = await Promise.all([
      clusters,
      fetchView(address, clusters),
      fetchJson(incidentsPath(address)),
      fetchEvents(),
      loadChoices().catch(() => {}),
    ]);
    if (asked !== state.asked) return; // the user chose another view meanwhile
    isReading = showUnknown(all);
    showClusterNames(all, address);
    Object.assign(state, { last: { address, found, all, incidents } });
    const start = performance.now();
    keepFocus(() => showView(state.last));
    performance.clearMeasures(REFRESH);
    performance.measure(REFRESH, { start, detail: asked });
    fresh.forEach(hearIncident);
    state.shown = key;
    byId("skeleton").hidden = true;
    byId("main").setAttribute("aria-busy", "false");
    document.title = address.name === undefined ? "koff" : `${visible(address.name)} – koff`;
    const good = { at_ms: performance.now(), time: moment(Date.now()).textContent };
    Object.assign(state, { good, failure: "", isLost: false });
    focusLeft();
    if (!document.hidden) openStream(hear);
  } catch (error) {
    if (asked !== state.asked) return;
    const text = error instanceof TypeError ? `a response of koff cannot be shown (${error.message})` : error.message;
    Object.assign(state, { failure: text, isLost: !error.isResponse });
  }
  showAge();
  state.isLoading = false;
  state.timer = setTimeout(show, state.isWanted || isReading ? BUSY_MS : REFRESH_MS);
}

function showClusterNames(all, address) {
  const names = namesOf(all);
  if (names.join("\n") === state.names.join("\n")) return;
  state.names = names;
  setOptions(byId("filters").elements.cluster, names, visible);
  showParts(address);
  fillFilters(address);
}

// Back in the list, the focus is on the group or topic that the user looked at.
function focusLeft() {
  const left = state.left && [...byId("main").querySelectorAll(".go")].find((each) => each.getAttribute("href") === state.left);
  state.left = "";
  if (left && document.activeElement === byId("main")) left.focus();
}

// Nothing of one group may be seen at the address of another, also if that cannot be loaded.
function clear() {
  Object.assign(state, { shown: "", last: null });
  for (const id of ["group", "topics", "overview"]) byId(id).replaceChildren(element("p", { className: "soft", textContent: "…" }));
  byId("events").replaceChildren();
}

function hear(event, isNew) {
  if (isNew) hearIncident(event);
  showSoon();
}

// After an event. What is under way is finished first, and many events do not put it off: else a slow network, or a
// busy cluster, would leave the page as it is.
function showSoon() {
  if (state.isWanted) return;
  state.isWanted = true;
  if (state.isLoading) return;
  clearTimeout(state.timer);
  state.timer = setTimeout(show, SOON_MS);
}

async function loadChoices() {
  if (state.hasChoices) return;
  const schema = await fetchJson("api/openapi.json");
  const parameters = schema.paths["/api/v1/groups"].get.parameters;
  const found = parameters.find((parameter) => parameter.name === "cause");
  setOptions(byId("filters").elements.cause, found?.schema.items?.enum ?? found?.schema.enum ?? [], explain);
  state.hasChoices = true;
  fillFilters(readAddress());
}

// --- What a person does --------------------------------------------------------------------------------------

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", ({ target }) => {
  const value = target.type === "checkbox" ? (target.checked ? "1" : "") : target.value;
  const isTyped = target.type === "search";
  setParams({ [target.name]: value, ...(target.name === "sort" ? { order: "" } : {}) }, { isSameStep: isTyped && state.isTyping });
  state.isTyping = isTyped;
});
byId("filters").addEventListener("change", () => (state.isTyping = false));
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("login").elements.token.value.trim());
  byId("login").hidden = true;
  closeStream();
  show();
});
byId("main").addEventListener("click", async ({ target }) => {
  const { copy: command, more, sort, order, save } = target.dataset;
  if (command !== undefined) {
    await copy(command).then(() => (target.textContent = "Copied"), () => (target.textContent = "Select it, and copy"));
    target.focus();
  } else if (more !== undefined) {
    toggleDetails(more);
    redraw();
  } else if (sort !== undefined) setParams({ sort: sort === "worst" ? "" : sort, order });
  else if (save !== undefined) saveSeen(save);
});
byId("chooser").addEventListener("change", () => {
  chooseColumns();
  redraw();
});
byId("zone").addEventListener("click", () => {
  localStorage.setItem("utc", isUtc() ? "" : "1");
  forgetPlots();
  showParts(readAddress());
  redraw();
});
byId("previous").addEventListener("click", () => setParams({ offset: String(Math.max(0, Number(byId("pages").dataset.first) - PAGE) || "") }));
byId("next").addEventListener("click", () => setParams({ offset: String(Number(byId("pages").dataset.first) + PAGE) }));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is the address of what is shown
  byId("main").focus();
});
addEventListener("addresschange", show);
addEventListener("hashchange", ({ oldURL }) => {
  const left = new URL(oldURL).hash;
  const [before, now] = [readAddress(left), readAddress()];
  state.isTyping = false;
  if (!(before.view in PARENTS)) state.lists[before.view] = left || "#/";
  fillFilters(now);
  if (before.view !== now.view || before.name !== now.name || before.cluster !== now.cluster) {
    state.left = PARENTS[before.view] === now.view ? left.split("?")[0] : "";
    scrollTo(0, 0);
    if (document.activeElement?.name !== "name") byId("main").focus({ preventScroll: true });
  }
  show();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) closeStream();
  else show();
});
const isWide = matchMedia("(min-width: 900px)");
const openChoices = () => (byId("choices").open = isWide.matches);
isWide.addEventListener("change", openChoices);
openChoices();
for (const kind of ["online", "offline"]) addEventListener(kind, showSoon);
listenToKeys(goBack);
setInterval(showAge, 1000);
fillFilters(readAddress());
show();
