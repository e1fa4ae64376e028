// The page of koff. It shows what the API says, and computes nothing itself. Text is only ever set as text:
// names of groups and topics may be anything.

const REFRESH_MS = 5000;
const PAGE = 100;
const MOST_EVENTS = 30;
const COLUMNS = [
  { title: "Status", sort: "status", cell: (group) => status(group.status) },
  { title: "Group", sort: "name", kind: "name", cell: (group) => link(group.group, addressOf(group.cluster, group.group)) },
  { title: "Cluster", kind: "name", cell: (group) => group.cluster, isShown: () => state.clusters.length > 1 },
  { title: "Lag", sort: "lag", kind: "number", cell: (group) => number(group.lag, group.reason) },
  { title: "Seconds", sort: "time_lag_s", kind: "number", cell: (group) => seconds(group.time_lag_s) },
  { title: "Last hour", kind: "trend", cell: (group) => sparkline(group.trend) },
  { title: "Members", kind: "number", cell: (group) => number(group.members) },
  { title: "State", cell: (group) => group.state ?? "–" },
  { title: "Why it lags", kind: "why", cell: (group) => (group.causes ? (group.causes[0]?.text ?? "") : group.reason) },
];

const state = { clusters: [], events: [], cursor: null, timer: 0, asked: 0, rows: new Map() };
const byId = (id) => document.getElementById(id);

// --- The address: what is shown ------------------------------------------------------------------------------

function readAddress() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const params = new URLSearchParams(query ?? "");
  return parts[0] === "group" && parts.length === 3 ? { group: parts[2], cluster: parts[1], params } : { params };
}

function addressOf(cluster, group) {
  return `#/group/${encodeURIComponent(cluster)}/${encodeURIComponent(group)}`;
}

function setParams(changes) {
  const { params } = readAddress();
  for (const [name, value] of Object.entries({ offset: "", ...changes })) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  history.replaceState(null, "", `#/${params.size ? `?${params}` : ""}`);
  show();
}

// --- The API -------------------------------------------------------------------------------------------------

async function fetchJson(path) {
  // Relative: koff may be behind a prefix.
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(new URL(path, document.baseURI), { headers });
  if (response.status === 401) byId("login").hidden = false;
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  throw new Error(body.detail ?? `koff responds with ${response.status}`);
}

function groupsPath(params) {
  const query = new URLSearchParams({ limit: PAGE });
  for (const name of ["name", "status", "cause", "sort", "order", "offset"]) {
    if (params.get(name)) query.set(name, params.get(name));
  }
  if (params.get("lagging")) query.set("min_lag", 1);
  const cluster = params.get("cluster");
  return cluster ? `api/v1/clusters/${encodeURIComponent(cluster)}/groups?${query}` : `api/v1/groups?${query}`;
}

// --- Building what is shown ----------------------------------------------------------------------------------

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function link(text, href) {
  return element("a", { href, textContent: text });
}

function status(name) {
  return element("span", { className: `status ${name}`, textContent: name });
}

function number(value, why = "") {
  if (value === null || value === undefined) return element("span", { className: "soft", textContent: "–", title: why });
  return value.toLocaleString("en");
}

function seconds(value) {
  return value === null || value === undefined ? number(null) : duration(value);
}

function duration(value) {
  const whole = Math.round(value);
  if (whole < 60) return `${value < 10 ? value.toFixed(1) : whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

const SVG = "http://www.w3.org/2000/svg";

function drawing(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The parts of a course between unknown values, as lines in a box of this size. A single value is a short line.
function lines(values, width, height) {
  const highest = Math.max(1, ...values.filter((value) => value !== null));
  const x = (at) => ((at / Math.max(values.length - 1, 1)) * width).toFixed(1);
  const y = (value) => (height - (value / highest) * height).toFixed(1);
  const parts = [];
  let points = [];
  for (let at = 0; at <= values.length; at++) {
    if (at < values.length && values[at] !== null) points.push(`${x(at)},${y(values[at])}`);
    else if (points.length) {
      if (points.length === 1) points.push(points[0]);
      parts.push(drawing("polyline", { points: points.join(" ") }));
      points = [];
    }
  }
  return parts;
}

function sparkline(values) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return element("span", { className: "soft", textContent: "–" });
  const [first, last] = [known[0], known.at(-1)];
  const title = `lag in the last hour: from ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
  return drawing("svg", { viewBox: "-2 -2 104 24", width: 104, height: 24, role: "img", "aria-label": title },
    ...lines(values, 100, 20));
}

function course(title, values, show) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const highest = Math.max(...known);
  return element("figure", {},
    element("figcaption", { textContent: `${title}, last hour: now ${show(known.at(-1))}, at most ${show(highest)}` }),
    drawing("svg", { viewBox: "-2 -2 604 104", preserveAspectRatio: "none", class: "course", role: "img", "aria-label": title },
      drawing("line", { x1: 0, y1: 100, x2: 600, y2: 100 }), ...lines(values, 600, 100)),
  );
}

function fill(cell, content) {
  // A cell that says the same stays as it is: so do the selection and the focus of the keyboard.
  const made = content instanceof Node ? content : document.createTextNode(content ?? "");
  const before = cell.firstChild;
  if (before && before.isEqualNode(made) && cell.childNodes.length === 1) return;
  cell.replaceChildren(made);
}

function table(columns, rows) {
  const head = element("tr", {}, ...columns.map(([title, kind]) => element("th", { scope: "col", className: kind ?? "", textContent: title })));
  const body = rows.map((row) =>
    element("tr", {}, ...columns.map(([, kind, cell]) => {
      const made = element("td", { className: kind ?? "" });
      fill(made, cell(row));
      return made;
    })),
  );
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { className: "scroll", tabIndex: 0 }, made);
}

// --- The list of groups --------------------------------------------------------------------------------------

function shownColumns() {
  return COLUMNS.filter((column) => column.isShown?.() ?? true);
}

function showHead(params) {
  const sort = params.get("sort") ?? "lag";
  const isUp = params.get("order") ? params.get("order") === "asc" : sort === "name";
  const cells = shownColumns().map((column) => {
    const cell = element("th", { scope: "col", className: column.kind === "number" ? "number" : "" });
    if (!column.sort) {
      cell.textContent = column.title;
      return cell;
    }
    const isSorted = column.sort === sort;
    if (isSorted) cell.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const other = isSorted ? (isUp ? "desc" : "asc") : "";
    const button = element("button", { type: "button", textContent: column.title });
    button.addEventListener("click", () => setParams({ sort: column.sort, order: other }));
    cell.append(button);
    return cell;
  });
  const row = byId("groups").tHead.rows[0];
  const made = element("tr", {}, ...cells);
  if (!row.isEqualNode(made)) row.replaceChildren(...made.childNodes);
}

function showGroups(page, params) {
  showHead(params);
  const body = byId("groups").tBodies[0];
  const columns = shownColumns();
  const rows = page.groups.map((group) => {
    const key = `${group.cluster}\n${group.group}\n${columns.length}`;
    const row = state.rows.get(key) ?? element("tr", {}, ...columns.map((column) => element("td", { className: column.kind ?? "" })));
    columns.forEach((column, at) => fill(row.cells[at], column.cell(group)));
    return [key, row];
  });
  state.rows = new Map(rows);
  const wanted = rows.map(([, row]) => row);
  wanted.forEach((row, at) => {
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  while (body.rows.length > wanted.length) body.lastChild.remove();
  const first = Number(params.get("offset") ?? 0);
  const last = first + page.groups.length;
  const unknown = page.unknown ? `; ${page.unknown.toLocaleString("en")} have no known lag` : "";
  byId("count").textContent = page.total ? `${first + 1} to ${last} of ${page.total.toLocaleString("en")} groups${unknown}` : `no group fits${unknown}`;
  byId("previous").disabled = first === 0;
  byId("next").disabled = page.next_offset === null;
  byId("pages").dataset.first = first;
}

function showFilters(params) {
  const form = byId("filters");
  for (const field of form.elements) {
    if (field === document.activeElement && field.type === "search") continue;
    if (field.type === "checkbox") field.checked = Boolean(params.get(field.name));
    else field.value = params.get(field.name) ?? "";
  }
}

function setOptions(select, values) {
  const shown = [...select.options].slice(1).map((option) => option.value);
  if (shown.join("\n") === values.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...values.map((value) => element("option", { value, textContent: value })));
  select.value = chosen;
}

function showClusters(found) {
  state.clusters = found.clusters;
  const items = found.clusters.map((cluster) =>
    element("li", { title: cluster.readiness ?? "" }, `${cluster.cluster ?? "?"}: `, element("span", {
      className: `status ${cluster.ready ? "OK" : "ERR"}`,
      textContent: cluster.ready ? "ready" : "not ready",
    })),
  );
  const list = byId("clusters");
  const made = element("ul", {}, ...items);
  if (list.innerText !== made.innerText || list.childElementCount !== items.length) list.replaceChildren(...items);
  const named = found.clusters.map((cluster) => cluster.cluster).filter(Boolean);
  setOptions(byId("filters").elements.cluster, named);
  byId("filters").elements.cluster.parentElement.hidden = named.length < 2;
}

// --- One group -----------------------------------------------------------------------------------------------

function showGroup(found) {
  const group = found.group;
  const facts = [
    ["Status", status(group.status)],
    ["Lag", group.lag === null ? `unknown: ${group.reason}` : `${group.lag.toLocaleString("en")} offsets${group.unknown ? `, and ${group.unknown} partitions without a known lag` : ""}`],
    ["Oldest", seconds(group.time_lag_s)],
    ["Pace", pace(group)],
    ["State", [group.type, group.state, group.protocol].filter(Boolean).join(", ")],
    ["Members", number(group.members)],
    ["Epoch", number(group.epoch)],
    ["Coordinator", number(group.coordinator)],
  ];
  const article = byId("group");
  const made = element("article", {},
    element("p", {}, link("← all groups", "#/")),
    element("h2", { textContent: group.group }),
    element("dl", { className: "facts" }, ...facts.flatMap(([name, value]) => {
      const text = element("dd");
      fill(text, value);
      return [element("dt", { textContent: name }), text];
    })),
    ...showCauses(group.causes),
    ...(found.last_hour
      ? [element("div", { className: "courses" },
          course("Lag", found.last_hour.lag, (value) => value.toLocaleString("en")),
          course("Seconds", found.last_hour.time_lag_s, duration))]
      : []),
    element("h2", { textContent: "Partitions" }),
    table([
      ["Topic", "name", (row) => row.topic],
      ["Partition", "number", (row) => number(row.partition)],
      ["Committed", "number", (row) => number(row.committed)],
      ["End", "number", (row) => number(row.end)],
      ["Lag", "number", (row) => number(row.lag, row.reasons.join(" "))],
      ["Seconds", "number", (row) => seconds(row.time_lag_s)],
      ["Lost", "number", (row) => number(row.lost)],
      ["Margin", "number", (row) => number(row.retention_margin)],
      ["Status", "", (row) => status(row.status)],
      ["Member", "name", (row) => (row.client_id ? `${row.client_id} ${row.client_host}` : "–")],
      ["Why", "", (row) => row.reasons.join(" ")],
    ], found.partitions),
    ...showMembers(found.members),
  );
  if (!article.isEqualNode(made)) article.replaceChildren(...made.childNodes);
}

function pace(group) {
  if (group.consume_per_s === null) return "unknown";
  const rate = `commits ${group.consume_per_s.toLocaleString("en", { maximumFractionDigits: 1 })} offsets a second`;
  if (group.never_catches_up) return `${rate}: at these rates it never catches up`;
  return group.catch_up_s ? `${rate}: caught up in ${duration(group.catch_up_s)}` : rate;
}

function showCauses(causes) {
  if (causes === null) return [element("p", { className: "soft", textContent: "Why it lags is not known: its lag is withheld." })];
  if (!causes.length) return [];
  return [
    element("h2", { textContent: "Why it lags" }),
    ...causes.map((cause) => {
      const filled = element("i");
      filled.style.width = `${Math.round(cause.share * 100)}%`;
      return element("div", { className: "cause" },
        element("p", {}, element("strong", { textContent: cause.cause }), ` explains ${Math.round(cause.share * 100)} % of the lag (${cause.offsets.toLocaleString("en")} offsets)`),
        element("div", { className: "bar" }, filled),
        element("p", { textContent: cause.text }),
        element("p", { className: "soft", textContent: `What helps: ${cause.advice}` }),
      );
    }),
  ];
}

function showMembers(members) {
  if (!members?.length) return [];
  return [
    element("h2", { textContent: "Members" }),
    table([
      ["Client", "name", (member) => member.client_id],
      ["Host", "name", (member) => member.client_host],
      ["State", "", (member) => (member.present ? member.state : "left for a while")],
      ["Assigned", "why", (member) => member.assigned.map((each) => `${each.topic ?? each.topic_id} ${each.partitions.join(",")}`).join("; ")],
    ], members),
  ];
}

// --- Events --------------------------------------------------------------------------------------------------

async function fetchEvents() {
  const query = new URLSearchParams({ limit: 1000 });
  if (state.cursor) query.set("since", state.cursor);
  const found = await fetchJson(`api/v1/events?${query}`).catch(() => null); // koff may serve no events
  if (!found?.events.length) return;
  state.cursor = found.events.at(-1).id;
  state.events = [...state.events, ...found.events].slice(-1000);
}

function showEvents(address) {
  const chosen = address.group
    ? state.events.filter((event) => event.group === address.group && event.cluster === address.cluster)
    : state.events;
  const items = chosen.slice(-MOST_EVENTS).reverse().map((event) => {
    const time = element("time", { dateTime: event.time, textContent: new Date(event.time).toLocaleTimeString() });
    const target = event.group && !address.group ? link(event.text, addressOf(event.cluster, event.group)) : event.text;
    return element("li", { className: { error: "ERR", warning: "WARN" }[event.severity] ?? "" }, time, target);
  });
  if (!items.length) items.push(element("li", { className: "soft", textContent: "nothing since koff started" }));
  const made = element("ol", {}, ...items);
  if (!byId("events").isEqualNode(made)) byId("events").replaceChildren(...items);
}

// --- The loop ------------------------------------------------------------------------------------------------

async function show() {
  clearTimeout(state.timer);
  const asked = ++state.asked;
  const address = readAddress();
  byId("list").hidden = Boolean(address.group);
  byId("group").hidden = !address.group;
  if (!address.group) showFilters(address.params);
  try {
    const path = address.group
      ? `api/v1/clusters/${encodeURIComponent(address.cluster)}/groups/${encodeURIComponent(address.group)}`
      : groupsPath(address.params);
    const [clusters, found] = await Promise.all([fetchJson("api/v1/clusters"), fetchJson(path), fetchEvents()]);
    if (asked !== state.asked) return; // the user went on meanwhile
    showClusters(clusters);
    if (address.group) showGroup(found);
    else showGroups(found, address.params);
    showEvents(address);
    document.title = address.group ? `${address.group} – koff` : "koff";
    byId("error").hidden = true;
    byId("fresh").textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    if (asked !== state.asked) return;
    byId("error").textContent = `What is shown may be old: ${error.message}`;
    byId("error").hidden = false;
  }
  state.timer = setTimeout(show, REFRESH_MS);
}

async function loadCauses() {
  const schema = await fetchJson("api/openapi.json");
  const parameters = schema.paths["/api/v1/groups"].get.parameters;
  const found = parameters.find((parameter) => parameter.name === "cause");
  setOptions(byId("filters").elements.cause, found?.schema.items?.enum ?? found?.schema.enum ?? []);
  showFilters(readAddress().params);
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", ({ target }) => setParams({ [target.name]: target.type === "checkbox" ? (target.checked ? "1" : "") : target.value }));
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("login").elements.token.value.trim());
  byId("login").hidden = true;
  loadCauses().catch(() => {});
  show();
});
byId("previous").addEventListener("click", () => setParams({ offset: String(Math.max(0, Number(byId("pages").dataset.first) - PAGE) || "") }));
byId("next").addEventListener("click", () => setParams({ offset: String(Number(byId("pages").dataset.first) + PAGE) }));
addEventListener("hashchange", () => {
  scrollTo(0, 0);
  show();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement?.tagName)) {
    event.preventDefault();
    if (readAddress().group) location.hash = "#/";
    byId("list").hidden = false;
    byId("filters").elements.name.focus();
  } else if (event.key === "Escape" && readAddress().group) location.hash = "#/";
});
document.addEventListener("visibilitychange", () => document.hidden || show());
loadCauses().catch(() => {});
show();
