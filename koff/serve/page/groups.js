// The list of groups.

import { apiPath } from "./api.js";
import { byId, element, groupLink, number, patch, seconds, sparkline, status } from "./build.js";

export const PAGE = 100;
const COLUMNS = [
  { title: "Status", sort: "status", cell: (group) => status(group.status) },
  { title: "Group", sort: "name", kind: "name", cell: (group) => groupLink(group.cluster, group.group) },
  { title: "Lag", sort: "lag", kind: "number", cell: (group) => number(group.lag, group.reason) },
  { title: "Seconds", sort: "time_lag_s", kind: "number", cell: (group) => seconds(group.time_lag_s) },
  { title: "Last hour", kind: "trend", cell: (group) => sparkline(group.trend) },
  { title: "Members", kind: "number", cell: (group) => number(group.members) },
  { title: "State", cell: (group) => group.state ?? "–" },
  { title: "Cluster", kind: "name", isShown: (clusters) => clusters.length > 1, cell: (group) => group.cluster },
  { title: "Why it lags", kind: "why", cell: (group) => (group.causes ? (group.causes[0]?.text ?? "") : group.reason) },
];
let rows = new Map();

export function groupsPath(params) {
  const query = { limit: PAGE };
  for (const name of ["cluster", "name", "status", "cause", "sort", "order", "offset"]) {
    if (params.get(name)) query[name] = params.get(name);
  }
  if (params.get("lagging")) query.min_lag = 1;
  return apiPath("groups", query);
}

function showHead(columns, params, setParams) {
  const sort = params.get("sort") ?? "lag";
  const isUp = params.get("order") ? params.get("order") === "asc" : sort === "name";
  const cells = columns.map((column) => {
    const cell = element("th", { scope: "col", className: column.kind === "number" ? "number" : "" });
    if (!column.sort) {
      cell.textContent = column.title;
      return cell;
    }
    const isSorted = column.sort === sort;
    if (isSorted) cell.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const button = element("button", { type: "button", textContent: column.title });
    button.onclick = () => setParams({ sort: column.sort, order: isSorted ? (isUp ? "desc" : "asc") : "" });
    cell.append(button);
    return cell;
  });
  const row = byId("groups").tHead.rows[0];
  const focused = [...row.cells].findIndex((cell) => cell.contains(document.activeElement));
  if (row.isEqualNode(element("tr", {}, ...cells.map((cell) => cell.cloneNode(true))))) {
    // The same to see, but a click means another order.
    cells.forEach((cell, at) => cell.firstChild.onclick && (row.cells[at].firstChild.onclick = cell.firstChild.onclick));
    return;
  }
  row.replaceChildren(...cells);
  if (focused >= 0) row.cells[focused]?.querySelector("button")?.focus();
}

function fill(cell, content) {
  const made = content instanceof Node ? content : document.createTextNode(content ?? "");
  if (cell.childNodes.length === 1) patch(cell.firstChild, made);
  else cell.replaceChildren(made);
}

export function showGroups(page, params, clusters, setParams) {
  const columns = COLUMNS.filter((column) => column.isShown?.(clusters) ?? true);
  showHead(columns, params, setParams);
  const body = byId("groups").tBodies[0];
  const wanted = page.groups.map((group) => {
    const key = `${group.cluster}\n${group.group}\n${columns.length}`;
    const row = rows.get(key) ?? element("tr", {}, ...columns.map((column) => element("td", { className: column.kind ?? "" })));
    columns.forEach((column, at) => fill(row.cells[at], column.cell(group)));
    return [key, row];
  });
  rows = new Map(wanted);
  wanted.forEach(([, row], at) => {
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  while (body.rows.length > wanted.length) body.lastChild.remove();
  const first = Number(params.get("offset") ?? 0);
  const unknown = page.unknown ? `; ${page.unknown.toLocaleString("en")} have no known lag` : "";
  byId("count").textContent = wanted.length
    ? `${(first + 1).toLocaleString("en")} to ${(first + wanted.length).toLocaleString("en")} of ${page.total.toLocaleString("en")} groups${unknown}`
    : `no group fits${unknown}`;
  byId("previous").disabled = first === 0;
  byId("next").disabled = page.next_offset === null;
  byId("pages").dataset.first = first;
}
