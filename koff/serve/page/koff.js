// The page of koff. It shows what the API says, and computes nothing itself.

import { abortRequests, apiPath, closeStream, events, fetchEvents, fetchJson, isLive, openStream } from "./api.js";
import { byId, element, groupLink, patchChildren, setOptions } from "./build.js";
import { fetchClusters, showClusters } from "./clusters.js";
import { showGroup } from "./group.js";
import { PAGE, groupsPath, showGroups } from "./groups.js";
import { drawPlots } from "./plot.js";
import { showTopic, showTopics, topicsPath } from "./topics.js";

const REFRESH_MS = 5000;
const STALE_MS = 20_000;
const SOON_MS = 300;
const BUSY_MS = 1000;
const SHOWN_EVENTS = 30;
const PARENTS = { group: "groups", topic: "topics" };
const state = { timer: 0, asked: 0, good: null, failure: "", causes: false, names: [], isLost: false, shown: "", lists: {}, left: "", isLoading: false, isWanted: false };

// --- The address: what is shown ------------------------------------------------------------------------------

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function readAddress(hash = location.hash) {
  const [path, query] = hash.replace(/^#/, "").split("?");
  const [view, cluster, name] = path.split("/").slice(1);
  const params = new URLSearchParams(query ?? "");
  if ((view === "group" || view === "topic") && name !== undefined) return { view, cluster: decode(cluster), name: decode(name), params };
  return { view: view === "topics" || view === "clusters" ? view : "groups", params };
}

function setParams(changes) {
  const { view, params } = readAddress();
  for (const [name, value] of Object.entries({ offset: "", ...changes })) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  history.replaceState(null, "", `#/${view === "topics" ? "topics" : ""}${params.size ? `?${params}` : ""}`);
  show();
}

// Back to the list, as it was when the user left it.
function goBack({ view, cluster }) {
  const query = view === "topic" ? `topics?${new URLSearchParams({ cluster })}` : "";
  location.hash = state.lists[PARENTS[view]] ?? `#/${query}`;
}

// --- What every view has -------------------------------------------------------------------------------------

function showParts({ view, params }) {
  byId("list").hidden = view !== "groups";
  byId("group").hidden = view !== "group";
  byId("topics").hidden = view !== "topics" && view !== "topic";
  byId("overview").hidden = view !== "clusters";
  byId("filters").hidden = view !== "groups" && view !== "topics";
  const tab = PARENTS[view] ?? view;
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.view === tab) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  for (const label of document.querySelectorAll("#filters [data-of=groups]")) label.hidden = view !== "groups";
  for (const field of byId("filters").elements) {
    if (field === document.activeElement && field.type === "search") continue;
    if (field.type === "checkbox") field.checked = Boolean(params.get(field.name));
    else field.value = params.get(field.name) ?? (field.name === "cluster" && view === "topics" ? state.names[0] : "") ?? "";
  }
}

function showChips(all, names) {
  patchChildren(byId("clusters"), all.clusters.map((cluster) =>
    element("li", {}, `${cluster.cluster ?? "?"}: `, element("span", {
      className: `status ${cluster.ready ? "OK" : "ERR"}`,
      textContent: cluster.ready ? "ready" : cluster.readiness,
    })),
  ));
  const select = byId("filters").elements.cluster;
  setOptions(select, names);
  select.parentElement.hidden = names.length < 2;
}

function listEvents({ view, cluster, name }) {
  return view === "group" ? events.filter((event) => event.group === name && event.cluster === cluster) : events;
}

function showEvents(address) {
  const items = listEvents(address).slice(-SHOWN_EVENTS).reverse().map((event) => {
    const time = element("time", { dateTime: event.time, textContent: new Date(event.time).toLocaleTimeString() });
    const target = event.group && address.view !== "group" ? groupLink(event.cluster, event.group, event.text) : event.text;
    return element("li", { className: { error: "ERR", warning: "WARN" }[event.severity] ?? "" }, time, " ", target);
  });
  if (!items.length) items.push(element("li", { className: "soft", textContent: "nothing since koff started" }));
  patchChildren(byId("events"), items);
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
  if (isWrong) byId("error").textContent = `${text}${state.failure || "koff has not responded since"}`;
  byId("error").hidden = !isWrong;
}

// --- The loop ------------------------------------------------------------------------------------------------

async function fetchView({ view, cluster, name, params }, names) {
  switch (view) {
    case "group": return fetchJson(apiPath("group", { cluster, group: name }));
    case "topic": return fetchJson(apiPath("topic", { cluster, topic: name, limit: 1000 }));
    case "topics": return names.length ? fetchJson(topicsPath(params, names)) : null;
    case "clusters": return fetchClusters(names);
    default: return fetchJson(groupsPath(params));
  }
}

function showView(address, found, all, names) {
  switch (address.view) {
    case "group": return showGroup(found, listEvents(address), state.lists.groups ?? "#/");
    case "topic": return showTopic(found, state.lists.topics);
    case "topics": return found && showTopics(found, address.params);
    case "clusters": return showClusters(found, all, events);
    default: return showGroups(found, address.params, names, setParams);
  }
}

async function show() {
  clearTimeout(state.timer);
  abortRequests();
  const asked = ++state.asked;
  Object.assign(state, { isLoading: true, isWanted: false });
  const address = readAddress();
  const key = [address.view, address.cluster, address.name].join("\n");
  if (key !== state.shown) clear();
  showParts(address);
  try {
    const all = await fetchJson("api/v1/clusters");
    const names = all.clusters.map((cluster) => cluster.cluster).filter((name) => name !== null);
    const [found] = await Promise.all([fetchView(address, names), fetchEvents(), loadCauses().catch(() => {})]);
    if (asked !== state.asked) return; // the user chose another view meanwhile
    state.names = names;
    showChips(all, names);
    showParts(address);
    showView(address, found, all, names);
    state.shown = key;
    drawPlots();
    showEvents(address);
    document.title = address.name === undefined ? "koff" : `${address.name} – koff`;
    const good = { at_ms: performance.now(), time: new Date().toLocaleTimeString() };
    Object.assign(state, { good, failure: "", isLost: false });
    focusLeft();
    if (!document.hidden) openStream(showSoon);
  } catch (error) {
    if (asked !== state.asked) return;
    const text = error instanceof TypeError ? `a response of koff cannot be shown (${error.message})` : error.message;
    Object.assign(state, { failure: text, isLost: !error.isResponse });
  }
  showAge();
  state.isLoading = false;
  state.timer = setTimeout(show, state.isWanted ? BUSY_MS : REFRESH_MS);
}

// Back in the list, the focus is on the group or topic that the user looked at.
function focusLeft() {
  const left = state.left && [...byId("main").querySelectorAll("td a")].find((link) => link.getAttribute("href") === state.left);
  state.left = "";
  if (left && document.activeElement === byId("main")) left.focus();
}

// Nothing of one group may be seen at the address of another, also if that cannot be loaded.
function clear() {
  state.shown = "";
  for (const id of ["group", "topics", "overview"]) byId(id).replaceChildren(element("p", { className: "soft", textContent: "…" }));
  byId("events").replaceChildren();
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

async function loadCauses() {
  if (state.causes) return;
  const schema = await fetchJson("api/openapi.json");
  const parameters = schema.paths["/api/v1/groups"].get.parameters;
  const found = parameters.find((parameter) => parameter.name === "cause");
  setOptions(byId("filters").elements.cause, found?.schema.items?.enum ?? found?.schema.enum ?? []);
  state.causes = true;
}

async function copy(text) {
  // Without TLS there is no such clipboard, and the browser may forbid it.
  if (await navigator.clipboard?.writeText(text).then(() => true, () => false)) return;
  const field = element("textarea", { value: text, ariaLabel: "copied" });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (!isCopied) throw new Error("not copied");
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", ({ target }) => setParams({ [target.name]: target.type === "checkbox" ? (target.checked ? "1" : "") : target.value }));
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("login").elements.token.value.trim());
  byId("login").hidden = true;
  closeStream();
  show();
});
byId("group").addEventListener("click", async ({ target }) => {
  if (target.dataset.copy === undefined) return;
  await copy(target.dataset.copy).then(() => (target.textContent = "Copied"), () => (target.textContent = "Select it, and copy"));
  target.focus();
});
byId("previous").addEventListener("click", () => setParams({ offset: String(Math.max(0, Number(byId("pages").dataset.first) - PAGE) || "") }));
byId("next").addEventListener("click", () => setParams({ offset: String(Number(byId("pages").dataset.first) + PAGE) }));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is the address of what is shown
  byId("main").focus();
});
addEventListener("hashchange", ({ oldURL }) => {
  const left = new URL(oldURL).hash;
  const { view } = readAddress(left);
  if (view === "groups" || view === "topics") state.lists[view] = left || "#/";
  state.left = PARENTS[view] === readAddress().view ? left : "";
  scrollTo(0, 0);
  if (document.activeElement?.name !== "name") byId("main").focus({ preventScroll: true });
  show();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const address = readAddress();
  const { view } = address;
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement?.tagName)) {
    event.preventDefault();
    if (view in PARENTS) goBack(address);
    else if (byId("filters").hidden) location.hash = "#/";
    byId("filters").hidden = false;
    byId("filters").elements.name.focus();
  } else if (event.key === "Escape" && view in PARENTS) goBack(address);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) closeStream();
  else show();
});
setInterval(showAge, 1000);
show();
