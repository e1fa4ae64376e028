// One group in depth: what is wrong, what to do, and what shows it.

import { byId, element, facts, link, patchChildren } from "./dom.js";
import { showMembers, showPartitions } from "./partitions.js";
import { figures, markEvents } from "./plot.js";
import { duration, explain, lastKnown, moment, number, seconds, soft, status, visible } from "./words.js";

const whole = (value) => value.toLocaleString("en");
const ALLOWED = { floor: "the least that koff allows", usual: "twice what is usual", retention: "half of the retention", objective: "its objective" };

// `back` is the address of the list from which the user came, `at_ms` the time that the address asks for.
export function showGroup(found, events, incidents, back, at_ms) {
  const group = { ...found.group, last_known: found.last_known };
  patchChildren(byId("group"), [
    element("p", {}, link("← all groups", back)),
    element("h2", { textContent: visible(group.group) }),
    element("p", { className: "verdict" }, status(group.status), " ", group.sentence),
    ...showCauses(group.causes),
    found.runbook_url ? element("p", {}, link("Runbook", found.runbook_url, { target: "_blank", rel: "noopener" })) : null,
    ...showCommands(found.commands),
    showTime(found.last_hour, at_ms),
    element("section", { className: "courses" }, showCourses(found, group, events, incidents, at_ms)),
    showBudget(found.budget),
    showFacts(group, found.partitions),
    ...showPartitions(found, group),
    ...showMembers(found, group),
  ]);
}

function showFacts(group, rows) {
  const unknown = group.unknown ? `, and ${group.unknown} partitions without a known lag` : "";
  return facts([
    ["Lag", group.lag === null ? lastKnown(group, "lag", whole) : `${whole(group.lag)} offsets${unknown}`],
    ["Time lag", group.time_lag_s === null ? lastKnown(group, "time_lag_s", duration) : seconds(group.time_lag_s)],
    ["Allowed", group.allowance_s === null ? number(null) : `${duration(group.allowance_s)}: ${ALLOWED[group.allowance_from]}`],
    ["Consumed", rate(group.consume_per_s)],
    ["Produced", rate(sumRates(rows))],
    ["Forecast", forecast(group)],
    ["State", [group.type, group.state, group.protocol].filter(Boolean).join(", ") || number(null)],
    ["Members", number(group.members)],
    ["Epoch", number(group.epoch)],
    ["Coordinator", number(group.coordinator)],
    ["Owner", [group.owner?.team, group.owner?.contact].filter(Boolean).map(visible).join(", ") || number(null)],
  ]);
}

const percent = (value) => `${(value * 100).toLocaleString("en", { maximumFractionDigits: 2 })} %`;

// How much is left of the time in which the group may miss its objective, as a bar.
function showBudget(budget) {
  if (!budget) return null;
  const left = Math.max(budget.left, 0);
  const allowed = `the ${percent(1 - budget.target)} of 30 days in which it may miss its objective`;
  const windows = budget.windows.filter((each) => each.late !== null).map((each) =>
    `${duration(each.window_s)}: late for ${percent(each.late)}, burn rate ${number(each.burn_rate)}; ${percent(each.known)} is known`);
  return element("section", { className: "budget" },
    element("h2", { textContent: "Error budget" }),
    element("p", { textContent: budget.left < 0 ? `It has been late for longer than ${allowed}.` : `${percent(left)} is left of ${allowed}.` }),
    element("progress", { max: 1, value: left, ariaLabel: `${percent(left)} of the error budget is left` }),
    element("ul", { className: "soft" }, windows.map((text) => element("li", { textContent: text }))));
}

const rate = (value) => (value === null ? number(null) : `${value.toLocaleString("en", { maximumFractionDigits: 1 })} offsets a second`);

// Of all partitions, or unknown.
function sumRates(rows) {
  const isKnown = rows.length && rows.every((row) => row.produce_per_s !== null);
  return isKnown ? rows.reduce((sum, row) => sum + row.produce_per_s, 0) : null;
}

function forecast(group) {
  if (group.never_catches_up) return "at these rates it never catches up";
  if (group.catch_up_s === null) return soft("unknown: its rates are not known", explain(group.reason));
  return group.catch_up_s ? `caught up in about ${duration(group.catch_up_s)}, if the rates of the last minutes last` : "it keeps up";
}

function showCauses(causes) {
  if (causes === null) return [element("p", { className: "soft", textContent: "Why it lags is not known: its lag is withheld." })];
  return causes.map((cause) => element("div", { className: "cause" },
    element("p", {}, element("strong", { textContent: explain(cause.cause) }),
      ` explains ${Math.round(cause.share * 100)} % of the lag (${whole(cause.offsets)} offsets)`),
    element("p", { textContent: cause.text }),
    element("p", {}, element("strong", { textContent: "What helps: " }), cause.advice)));
}

function showCommands(commands) {
  if (!commands.length) return [];
  const items = commands.map((command) => element("li", {},
    element("code", { textContent: command }),
    element("button", { type: "button", textContent: "Copy", dataset: { copy: command } })));
  return [element("section", { className: "commands" },
    element("h2", { textContent: "Commands of Kafka" }),
    element("p", {}, soft("Set BROKERS to the addresses of your brokers first. Nothing is changed: resets are dry runs, --execute does them.")),
    element("ul", {}, items))];
}

function showTime(course, at_ms) {
  if (!at_ms) return null;
  const first_ms = course ? course.end_ms - course.lag.length * course.step_s * 1000 : Infinity;
  const kept = at_ms >= first_ms ? "The plots show the half hour around " : "koff keeps the lags of the last hour only, so there is no plot of ";
  return element("p", { className: "note" }, kept, moment(at_ms), ". ", link("Show the last hour", location.hash.split("?")[0]));
}

function showCourses(found, group, events, incidents, at_ms) {
  const course = found.last_hour;
  if (!course) return [];
  const key = `${found.cluster}\n${group.group}`;
  const marks = [...markEvents(events), ...incidents.flatMap(markSteps)];
  const label = group.allowance_from === "objective" ? "objective" : "allowed";
  const allowed = group.allowance_s === null ? null : { label, value: group.allowance_s };
  return figures(key, { time_lag_s: "Time lag", lag: "Lag" }, course, allowed, { marks, at_ms, earlier: found.earlier });
}

// What an open transaction did is known from the causes of an incident only.
const markSteps = (incident) => incident.steps
  .filter((step) => step.cause === "open_transaction")
  .map((step) => ({ kind: step.cause, at_s: step.at_ms / 1000 }));

