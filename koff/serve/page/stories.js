// What happened, as stories: an incident is one entry with a beginning, its changes, and an end. Beside them, the
// events that belong to no incident.

import { apiPath, events } from "./api.js";
import { byId, element, link, patchChildren } from "./dom.js";
import { duration, explain, groupAddress, groupLink, moment, soft, status, visible } from "./words.js";

const PAGE = 100;
const SHOWN = 12;
const BEFORE_MS = 60_000; // what led to an incident is a part of it
const OF_INCIDENTS = ["incident_opened", "incident_raised", "incident_closed"];

export function incidentsPath({ view, cluster, name, params }) {
  const query = { limit: view === "events" ? PAGE : SHOWN };
  if (view === "group") Object.assign(query, { cluster, group: name });
  if (view === "events") for (const each of ["cluster", "name", "worst", "open", "offset"]) if (params.get(each)) query[each] = params.get(each);
  return apiPath("incidents", query);
}

function fits(event, { view, cluster, name, params }) {
  if (view === "group") return event.group === name && event.cluster === cluster;
  if (view !== "events") return event.severity !== "info";
  if (params.get("worst") || params.get("open")) return false;
  return [params.get("cluster") || event.cluster].includes(event.cluster) && event.text.includes(params.get("name") ?? "");
}

export const atTime = (incident) => `${groupAddress(incident.cluster ?? "", incident.group)}?at=${incident.opened_ms}`;

// Whether the event is a part of the story of the incident.
function belongs(event, incident) {
  const at_ms = Date.parse(event.time);
  const isOfGroup = event.group === incident.group && event.cluster === incident.cluster;
  return isOfGroup && at_ms >= incident.opened_ms - BEFORE_MS && at_ms <= (incident.closed_ms ?? Infinity);
}

// The changes of an incident and what happened meanwhile, in order.
function listSteps(incident, others) {
  const steps = incident.steps.map((step) => {
    const cause = step.cause ? `${explain(step.cause)}: ` : "";
    return { at_ms: step.at_ms, parts: [status(step.status), ` ${cause}${step.text}`] };
  });
  steps.push(...others.map((event) => ({ at_ms: Date.parse(event.time), parts: [event.text] })));
  if (incident.closed_ms !== null) steps.push({ at_ms: incident.closed_ms, parts: ["over"] });
  return steps.sort((one, other) => one.at_ms - other.at_ms).map(({ at_ms, parts }) => element("li", {}, moment(at_ms), " ", parts));
}

function showIncident(incident, others, isGroup) {
  const last = incident.steps.at(-1);
  const isOpen = incident.closed_ms === null;
  const so_far_s = Math.max(0, Date.now() - incident.opened_ms) / 1000;
  const lasted = isOpen ? `, for ${duration(so_far_s)} so far` : `, lasted ${duration(incident.duration_s)}`;
  const name = isGroup ? [] : [groupLink(incident.cluster ?? "", incident.group), soft(` ${visible(incident.cluster ?? "?")} `)];
  const steps = listSteps(incident, others);
  const lost = incident.records_lost ? `, at least ${incident.records_lost.toLocaleString("en")} records lost` : "";
  const most = `At most ${incident.worst_lag.toLocaleString("en")} offsets and ${duration(incident.worst_time_lag_s)} behind${lost}.`;
  return element("li", { className: "story", dataset: { key: `${incident.key}/${incident.opened_ms}` } },
    element("p", {}, status(incident.worst), " ", name, moment(incident.opened_ms), isOpen ? null : [" to ", moment(incident.closed_ms)], soft(lasted)),
    element("p", {}, last?.text ?? ""),
    element("div", { className: "acts" },
      element("details", {},
        element("summary", { textContent: `${steps.length} ${steps.length === 1 ? "change" : "changes"}` }),
        element("ol", {}, steps),
        element("p", { className: "soft", textContent: most })),
      link("Show that time", atTime(incident), { className: "then", ariaLabel: `Show that time: ${visible(incident.group)}` })));
}

function showEvent(event, isGroup) {
  const target = event.group && !isGroup ? groupLink(event.cluster, event.group, event.text) : event.text;
  const kind = { error: "ERR", warning: "WARN" }[event.severity];
  const severity = kind && element("span", { className: `status ${kind}`, textContent: event.severity });
  return element("li", { className: "event", dataset: { key: event.id } }, severity, " ", moment(Date.parse(event.time)), " ", target);
}

// Those that last first, then by time.
export function showStories(found, address) {
  const isGroup = address.view === "group";
  const most = address.view === "events" ? PAGE : SHOWN;
  const loose = events.filter((event) => !OF_INCIDENTS.includes(event.kind));
  const stories = found.incidents.map((incident) => {
    const own = loose.filter((event) => belongs(event, incident));
    return { at_ms: incident.closed_ms === null ? Infinity : incident.opened_ms, make: () => showIncident(incident, own, isGroup) };
  });
  const isLoose = (event) => fits(event, address) && !found.incidents.some((incident) => belongs(event, incident));
  const others = loose.filter(isLoose).reverse().map((event) => ({ at_ms: Date.parse(event.time), make: () => showEvent(event, isGroup) }));
  const byTime = (one, other) => (one.at_ms === other.at_ms ? 0 : other.at_ms - one.at_ms);
  const items = [...stories, ...others].sort(byTime).slice(0, most).map((each) => each.make());
  if (!items.length) items.push(element("li", { className: "soft", textContent: "nothing since koff started" }));
  patchChildren(byId("events"), items);
  const total = `${found.total.toLocaleString("en")} ${found.total === 1 ? "incident" : "incidents"}`;
  byId("stories").textContent = address.view === "events" ? total : "";
}

// For those who listen: new incidents, and nothing else.
export function hearIncident(event) {
  if (event.kind === "incident_opened" || event.kind === "incident_raised") byId("heard").textContent = event.text;
}
