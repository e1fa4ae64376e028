// The list of groups: the worst first, and quiet.

import { addressWith, toggle } from "./address.js";
import { apiPath } from "./api.js";
import { buildCsv, chosenColumns, COLUMNS, download, showChooser } from "./columns.js";
import { byId, element, facts, link, patchChildren, setOptions } from "./dom.js";
import { QuietList } from "./order.js";
import { duration, explain, groupAddress, groupLink, lastKnown, moment, seconds, soft, sparkline, status, visible } from "./words.js";

export const PAGE = 100;
export const STATUSES = ["ERR", "WARN", "UNKNOWN", "OK"];
const PASSED = ["cluster", "name", "label", "status", "withheld", "cause", "state", "type", "sort", "order", "offset"];
const HEADS = [
  ["Verdict", "worst", "verdict"],
  ["Group", "name", "name"],
  ["What is wrong", "", "why"],
  ["Time lag", "time_lag_s", "late number"],
  ["Last hour", "", "trend"],
];
const opened = new Set(); // keys of the rows whose details are open
let list = null;
let seen = { groups: [], columns: [] };

export function groupsPath(params) {
  const query = { limit: PAGE };
  for (const name of PASSED) if (params.get(name)) query[name] = params.get(name);
  if (params.get("lagging")) query.min_lag = 1;
  return apiPath("groups", query);
}

export const keyOf = (group) => `${group.cluster}\n${group.group}`;

// --- The strip: how many groups have which verdict -------------------------------------------------------------

function count(name, value, href, isChosen) {
  const shown = name === "withheld" ? element("span", { className: "soft", textContent: "withheld" }) : status(name);
  const made = link("", href, { className: `count${isChosen ? " chosen" : ""}${value ? "" : " none"}` });
  if (isChosen) made.setAttribute("aria-current", "true");
  made.append(element("b", { textContent: value === null ? "?" : value.toLocaleString("en") }), " ", shown);
  return made;
}

function counts(label, values, params, cluster, note) {
  const isOwn = (params.get("cluster") ?? "") === cluster;
  const chosen = isOwn ? (params.get("status") ?? "") : "";
  const links = STATUSES.map((name) => {
    const address = addressWith({ cluster, status: toggle(chosen, name) });
    return count(name, values[name], address, chosen.split(",").includes(name));
  });
  const isWithheld = isOwn && Boolean(params.get("withheld"));
  links.push(count("withheld", values.withheld, addressWith({ cluster, withheld: isWithheld ? "" : "true" }), isWithheld));
  const head = link(label, addressWith({ cluster, status: "", withheld: "" }), { className: `whole${isOwn ? " chosen" : ""}` });
  return element("li", {}, head, links, note && soft(note));
}

// Since when koff does not know a cluster; null if it does.
export function unknownSince(cluster) {
  if (cluster.ready) return null;
  const known = cluster.groups === null ? "unknown" : "not current";
  const since_ms = cluster.unready_since_ms;
  return element("span", { className: "error" },
    `${visible(cluster.cluster ?? "?")}: ${known}`,
    since_ms === null ? null : [" since ", moment(since_ms, { withSeconds: false })],
    ` (${cluster.readiness.replace(/^not ready: /, "")})`);
}

export function showStrip(found, params) {
  const known = found.filter((each) => each.OK !== null);
  const sum = (name) => (found.length && !known.length ? null : known.reduce((all, each) => all + each[name], 0));
  const all = Object.fromEntries([...STATUSES, "withheld"].map((name) => [name, sum(name)]));
  const missing = found.length - known.length;
  const note = missing && known.length ? `without ${missing} unknown ${missing === 1 ? "cluster" : "clusters"}` : "";
  const rows = [counts("All groups", all, params, "", note)];
  const single = (each) => counts(visible(each.cluster), each, params, each.cluster, each.OK === null ? "unknown" : "");
  if (found.length > 1) rows.push(...found.map(single));
  patchChildren(byId("strip"), rows);
}

// --- The table -----------------------------------------------------------------------------------------------

const role = (made, name) => (made.setAttribute("role", name), made);

function showHead(columns, params) {
  const sort = params.get("sort") ?? "worst";
  const isUp = params.get("order") ? params.get("order") === "asc" : sort === "name";
  const cells = [...HEADS, ...columns.map((column) => [column.title, column.sort, `${column.kind ?? ""} extra`])].map(([title, by, kind]) => {
    const cell = role(element("th", { scope: "col", className: kind }), "columnheader");
    const order = by === sort ? (isUp ? "desc" : "asc") : "";
    if (!by) cell.textContent = title;
    else cell.append(element("button", { type: "button", textContent: title, dataset: { sort: by, order } }));
    if (by === sort) cell.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    return cell;
  });
  const details = element("span", { className: "hidden", textContent: "Details" });
  cells.push(role(element("th", { scope: "col", className: "more" }, details), "columnheader"));
  patchChildren(byId("groups").tHead, [role(element("tr", {}, cells), "row")]);
}

const late = (group) => (group.time_lag_s === null ? lastKnown(group, "time_lag_s", duration) : seconds(group.time_lag_s));

function buildRow({ group, key, isGone }, columns, clusters) {
  const isOpen = opened.has(key);
  const isTwice = columns.some((column) => column.name === "cluster");
  const cluster = clusters.length > 1 && element("span", { className: `soft ${isTwice ? "twice" : ""}`, textContent: ` ${visible(group.cluster)}` });
  const ariaLabel = `${isOpen ? "Less" : "More"} of ${visible(group.group)}`;
  const more = element("button", { type: "button", textContent: isOpen ? "−" : "+", ariaLabel, ariaExpanded: String(isOpen), dataset: { more: key } });
  const cells = [
    element("td", { className: "verdict" }, status(group.status)),
    element("td", { className: "name" }, groupLink(group.cluster, group.group), cluster),
    element("td", { className: "why" }, isGone ? soft("not on this page any more: ") : null, group.sentence),
    element("td", { className: "late number" }, late(group)),
    element("td", { className: "trend" }, sparkline(group.trend)),
    ...columns.map((column) => element("td", { className: `${column.kind ?? ""} extra` }, column.cell(group))),
    element("td", { className: "more" }, more),
  ];
  return role(element("tr", { className: `row ${isGone ? "gone" : ""}`, dataset: { key } }, cells.map((cell) => role(cell, "cell"))), "row");
}

// What is behind the button of a row: all that the list knows of the group.
function buildDetails({ group, key }, width) {
  const pairs = COLUMNS.map((column) => [column.title, column.cell(group)]);
  const causes = (group.causes ?? []).map((cause) => element("p", {},
    element("b", { textContent: `${explain(cause.cause)}: ` }), cause.text, soft(` What helps: ${cause.advice}`)));
  const whole = link("All of this group", groupAddress(group.cluster, group.group));
  const cell = element("td", { colSpan: width }, causes, facts(pairs), element("p", {}, whole));
  return role(element("tr", { className: "details", dataset: { key: `${key}\nmore` } }, role(cell, "cell")), "row");
}

export function showGroups(page, params, clusters) {
  list ??= new QuietList(byId("list"));
  const columns = chosenColumns(clusters);
  const query = groupsPath(params);
  const wanted = page.groups.map((group) => ({ key: keyOf(group), status: group.status, group }));
  const { rows, isPaused, waiting } = list.arrange(query, wanted, { isBySeverity: (params.get("sort") ?? "worst") === "worst" });
  seen = { groups: rows.map((row) => row.group), columns };
  showChooser(clusters);
  showLabels(page.labels, params);
  showStrip(page.counts, params);
  showHead(columns, params);
  const width = HEADS.length + columns.length + 1;
  patchChildren(byId("groups").tBodies[0], rows.flatMap((row) => [
    buildRow(row, columns, clusters),
    ...(opened.has(row.key) ? [buildDetails(row, width)] : []),
  ]));
  byId("groups").setAttribute("aria-rowcount", String(page.total + 1));
  byId("note").textContent = isPaused ? `order paused while you are in the list${waiting ? `: ${waiting} to move` : ""}` : "";
  showPages(page, rows.length, Number(params.get("offset") ?? 0));
}

function showLabels(labels, params) {
  const select = byId("filters").elements.label;
  setOptions(select, labels, visible);
  select.value = params.get("label") ?? "";
  select.parentElement.hidden = !labels.length;
}

function showPages(page, rows, first) {
  const unknown = page.unknown ? `; ${page.unknown.toLocaleString("en")} have no known lag` : "";
  byId("count").textContent = rows
    ? `${(first + 1).toLocaleString("en")} to ${(first + rows).toLocaleString("en")} of ${page.total.toLocaleString("en")} groups${unknown}`
    : `${page.counts.every((each) => each.OK !== null) ? "no group fits" : "no group is known that fits"}${unknown}`;
  byId("previous").disabled = first === 0;
  byId("next").disabled = page.next_offset === null;
  byId("pages").dataset.first = first;
}

// Opens or closes the details of a row.
export function toggleDetails(key) {
  if (!opened.delete(key)) opened.add(key);
}

export function saveSeen(format) {
  const { groups, columns } = seen;
  if (format === "json") download("koff-groups.json", "application/json", `${JSON.stringify(groups, null, 2)}\n`);
  else download("koff-groups.csv", "text/csv", buildCsv(groups, columns));
}
