// One group in depth.

import { byId, duration, element, facts, link, number, patchChildren, seconds, status, table, topicLink, visible } from "./build.js";
import { figure } from "./plot.js";

// `back` is the address of the list from which the user came.
export function showGroup(found, events, back) {
  const group = found.group;
  const key = `${found.cluster}\n${group.group}`;
  const unknown = group.unknown ? `, and ${group.unknown} partitions without a known lag` : "";
  patchChildren(byId("group"), [
    element("p", {}, link("← all groups", back)),
    element("h2", { textContent: visible(group.group) }),
    facts([
      ["Status", status(group.status)],
      ["Lag", group.lag === null ? `unknown: ${group.reason}` : `${group.lag.toLocaleString("en")} offsets${unknown}`],
      ["Oldest", seconds(group.time_lag_s)],
      ["Pace", pace(group)],
      ["State", [group.type, group.state, group.protocol].filter(Boolean).join(", ")],
      ["Members", number(group.members)],
      ["Epoch", number(group.epoch)],
      ["Coordinator", number(group.coordinator)],
    ]),
    element("section", { className: "causes" }, ...showCauses(group.causes)),
    element("section", { className: "courses" }, ...(found.last_hour ? [
      figure(`${key}\nlag`, "Lag", found.last_hour, "lag", (value) => value.toLocaleString("en"), events),
      figure(`${key}\nseconds`, "Seconds", found.last_hour, "time_lag_s", duration, events),
    ].filter(Boolean) : [])),
    element("section", { className: "commands" }, ...showCommands(found.commands)),
    element("h2", { textContent: "Partitions" }),
    table("Partitions", [
      ["Topic", "name", (row) => topicLink(found.cluster, row.topic)],
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
    element("p", { className: "soft", textContent: "Lost: offsets that left the log before they were committed. Margin: how many offsets the log start may advance until records are lost." }),
    element("section", {}, ...showMembers(found)),
  ]);
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

function showCommands(commands) {
  if (!commands.length) return [];
  const items = commands.map((command) => {
    const button = element("button", { type: "button", textContent: "Copy" });
    button.dataset.copy = command;
    return element("li", {}, element("code", { textContent: command }), button);
  });
  return [
    element("h2", { textContent: "Commands of Kafka" }),
    element("p", { className: "soft", textContent: "Set BROKERS to the addresses of your brokers first. Nothing is changed: resets are dry runs, --execute does them." }),
    element("ul", {}, ...items),
  ];
}

function showMembers(found) {
  if (!found.members?.length) return [];
  const name = (each) => each.topic ?? each.topic_id;
  return [
    element("h2", { textContent: "Members" }),
    table("Members", [
      ["Client", "name", (member) => member.client_id],
      ["Host", "name", (member) => member.client_host],
      ["State", "", (member) => (member.present ? member.state : "left for a while")],
      ["Partitions", "number", (member) => number(member.assigned.reduce((sum, each) => sum + each.partitions.length, 0))],
      ["Assigned", "why", (member) => member.assigned.map((each) => `${name(each)} ${each.partitions.join(",")}`).join("; ")],
    ], found.members),
  ];
}
