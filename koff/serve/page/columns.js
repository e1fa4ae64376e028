// What a row of the list has beside the verdict, the name, the sentence, the time lag and the trend. A person chooses
// which of it are columns, and the browser keeps that. All of it is behind the button of the row.

import { byId, element, patchChildren } from "./dom.js";
import { lastKnown, number, owner, seconds } from "./words.js";

const whole = (value) => value.toLocaleString("en");

export const COLUMNS = [
  { name: "lag", title: "Lag", sort: "lag", kind: "number", cell: (group) => (group.lag === null ? lastKnown(group, "lag", whole) : number(group.lag)) },
  { name: "cluster", title: "Cluster", kind: "name", cell: (group) => group.cluster },
  { name: "members", title: "Members", kind: "number", cell: (group) => number(group.members) },
  { name: "state", title: "State", cell: (group) => group.state ?? "–" },
  { name: "type", title: "Type", cell: (group) => group.type ?? "–" },
  { name: "partitions", title: "Partitions", kind: "number", cell: (group) => number(group.partitions) },
  { name: "withheld", title: "Withheld", kind: "number", cell: (group) => number(group.withheld) },
  { name: "allowance_s", title: "Allowed", kind: "number", cell: (group) => seconds(group.allowance_s) },
  { name: "consume_per_s", title: "Commits/s", kind: "number", cell: (group) => number(group.consume_per_s) },
  { name: "catch_up_s", title: "Caught up in", kind: "number", cell: (group) => (group.never_catches_up ? "never" : seconds(group.catch_up_s)) },
  { name: "owner", title: "Owner", kind: "name", cell: owner },
];

function readChosen() {
  const saved = localStorage.getItem("columns");
  return saved === null ? null : saved.split(",");
}

// The columns that are shown. By default: the lag, and the cluster if there are several.
export function chosenColumns(clusters) {
  const chosen = readChosen() ?? (clusters.length > 1 ? ["lag", "cluster"] : ["lag"]);
  return COLUMNS.filter((column) => chosen.includes(column.name));
}

export function showChooser(clusters) {
  const chosen = chosenColumns(clusters);
  patchChildren(byId("chooser"), COLUMNS.map((column) => {
    const box = element("input", { type: "checkbox", name: "column", value: column.name, checked: chosen.includes(column) });
    if (box.checked) box.setAttribute("checked", ""); // what `patch` compares
    return element("label", { className: "check" }, box, column.title);
  }));
}

export function chooseColumns() {
  const boxes = [...byId("chooser").querySelectorAll("input")];
  localStorage.setItem("columns", boxes.filter((box) => box.checked).map((box) => box.value).join(","));
}

// --- What is seen, as a file ---------------------------------------------------------------------------------

const ALWAYS = ["cluster", "group", "status", "sentence", "time_lag_s"];

// A program for tables would compute a cell that begins with one of these.
function quoteCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function buildCsv(groups, columns) {
  const names = [...new Set([...ALWAYS, ...columns.map((column) => column.name)])];
  return [names, ...groups.map((group) => names.map((name) => group[name]?.team ?? group[name]))].map((row) => row.map(quoteCell).join(",")).join("\r\n") + "\r\n";
}

export function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

