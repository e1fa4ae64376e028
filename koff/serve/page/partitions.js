// The partitions of a group, the worst first, and the members that have them.

import { element, table } from "./dom.js";
import { duration, explainAll, number, seconds, soft, status, topicLink, visible } from "./words.js";

const FEW = 12;
const MOST_CELLS = 5000;
const LEVELS = ["nothing", "up to half of what is allowed", "up to what is allowed", "late", "five times what is allowed, or more"];
const RANK = { ERR: 3, WARN: 2, UNKNOWN: 1, OK: 0 };

const byMost = (name) => (one, other) => (other[name] ?? -1) - (one[name] ?? -1);
const byVerdict = (one, other) => RANK[other.status] - RANK[one.status];
const byPlace = (one, other) => one.topic.localeCompare(other.topic) || one.partition - other.partition;
const byAll = (...orders) => (one, other) => orders.reduce((found, order) => found || order(one, other), 0);

// How late a partition is, as one of `LEVELS`; null if that is unknown.
function findLevel(row, allowance_s) {
  if (row.time_lag_s === null || !allowance_s) return row.lag === 0 ? 0 : null;
  const late = row.time_lag_s / allowance_s;
  return late > 5 ? 4 : late > 1 ? 3 : late > 0.5 ? 2 : row.lag ? 1 : 0;
}

// A cell for each partition, by topic and number: so a skew is seen at a glance.
function showMap(rows, allowance_s) {
  const cells = [...rows].sort(byPlace).slice(0, MOST_CELLS);
  const counts = [0, 0, 0, 0, 0];
  const made = cells.map((row) => {
    const level = findLevel(row, allowance_s);
    if (level !== null) counts[level] += 1;
    const late = row.time_lag_s === null ? explainAll(row.reasons) || "not known" : duration(row.time_lag_s);
    const title = `${visible(row.topic)}-${row.partition}: ${late}, lag ${row.lag ?? "not known"}`;
    return element("i", { className: `level-${level ?? "none"}`, title });
  });
  const unknown = cells.length - counts.reduce((sum, each) => sum + each, 0);
  const legend = LEVELS.map((text, level) => `${counts[level]} ${text}`).concat(unknown ? [`${unknown} not known`] : []).join(", ");
  const map = element("div", { className: "map", role: "img", ariaLabel: `Time lag of ${cells.length} partitions: ${legend}` }, made);
  const sign = (level, text) => element("span", { className: "key" }, element("i", { className: `level-${level}` }), ` ${text}`);
  const signs = LEVELS.map((text, level) => sign(level, `${counts[level]} ${text}`));
  const key = element("p", { className: "soft" }, signs, sign("none", `${unknown} not known`));
  return element("figure", {}, element("figcaption", { textContent: "Time lag of each partition" }), map, key);
}

export function showPartitions(found, group) {
  const rows = [...found.partitions].sort(byAll(byVerdict, byMost("time_lag_s"), byMost("lag")));
  return [
    element("h2", { textContent: "Partitions" }),
    rows.length > FEW ? showMap(rows, group.allowance_s) : null,
    table("Partitions", [
      ["Topic", "name", (row) => topicLink(found.cluster, row.topic)],
      ["Partition", "number", (row) => number(row.partition)],
      ["Verdict", "", (row) => status(row.status)],
      ["Time lag", "number", (row) => seconds(row.time_lag_s)],
      ["Lag", "number", (row) => number(row.lag, explainAll(row.reasons))],
      ["Member", "name", (row) => (row.client_id === null ? "–" : `${visible(row.client_id)} ${visible(row.client_host)}`)],
      ["Consumed/s", "number", (row) => number(row.consume_per_s)],
      ["Produced/s", "number", (row) => number(row.produce_per_s)],
      ["Committed", "number", (row) => number(row.committed)],
      ["End", "number", (row) => number(row.end)],
      ["Lost", "number", (row) => number(row.lost)],
      ["Margin", "number", (row) => number(row.retention_margin)],
      ["Note", "", (row) => explainAll(row.reasons)],
    ], rows, (row) => `${row.topic}\n${row.partition}`),
    element("p", {}, soft("The worst first. Lost: offsets that left the log before they were committed. "
      + "Margin: how many offsets the log start may advance until records are lost.")),
  ];
}

// What a member has, and how late it is. It is slow if it is late, and others are not.
function sumMember(member, rows) {
  const own = rows.filter((row) => row.member_id === member.member_id);
  const isKnown = own.every((row) => row.lag !== null);
  const late = own.filter((row) => row.status === "ERR" || row.status === "WARN").length;
  return {
    member,
    late,
    partitions: member.assigned.reduce((sum, each) => sum + each.partitions.length, 0),
    lag: isKnown ? own.reduce((sum, row) => sum + row.lag, 0) : null,
    time_lag_s: own.some((row) => row.time_lag_s === null) ? null : Math.max(0, ...own.map((row) => row.time_lag_s)),
  };
}

export function showMembers(found, group) {
  if (found.members === null) return [soft("Its members are not known now.")];
  if (!found.members.length) return [];
  const slow = new Set((group.causes ?? []).filter((cause) => cause.cause === "slow_member").map((cause) => cause.member_id));
  const members = found.members.map((member) => sumMember(member, found.partitions)).sort(byAll(byMost("late"), byMost("lag")));
  const isSlow = (each) => slow.has(each.member.member_id) || (each.late && members.some((other) => other.partitions && !other.late));
  const name = (each) => visible(each.topic ?? each.topic_id);
  return [
    element("h2", { textContent: "Members" }),
    table("Members", [
      ["Client", "name", ({ member }) => visible(member.client_id)],
      ["Host", "name", ({ member }) => visible(member.client_host)],
      ["State", "", ({ member }) => (member.present ? member.state : "left for a while")],
      ["Partitions", "number", (each) => number(each.partitions)],
      ["Late", "number", (each) => number(each.late)],
      ["Lag", "number", (each) => number(each.lag)],
      ["Time lag", "number", (each) => seconds(each.time_lag_s)],
      ["Slow", "", (each) => (isSlow(each) ? element("strong", { className: "ERR", textContent: "slower than others" }) : "")],
      ["Assigned", "why", ({ member }) => member.assigned.map((each) => `${name(each)} ${each.partitions.join(",")}`).join("; ")],
    ], members, ({ member }) => member.member_id),
  ];
}
