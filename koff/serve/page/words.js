// Names, numbers, times and codes as people read them.

import { drawing, element, link } from "./dom.js";

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

const SHORT = { "\n": "\\n", "\t": "\\t" };

// A character that cannot be seen, or that turns the text around it, is shown by its number. A name of blanks alone
// could not be seen, nor clicked.
export function visible(name) {
  const shown = name.replace(HIDDEN, (sign) => SHORT[sign] ?? `\\u{${sign.codePointAt(0).toString(16)}}`);
  return /\P{White_Space}/u.test(shown) ? shown : JSON.stringify(shown);
}

export const groupAddress = (cluster, group) => `#/group/${encodeURIComponent(cluster)}/${encodeURIComponent(group)}`;

export const groupLink = (cluster, group, text = visible(group)) => link(text, groupAddress(cluster, group), { className: "go" });

export const topicLink = (cluster, topic) =>
  link(visible(topic), `#/topic/${encodeURIComponent(cluster)}/${encodeURIComponent(topic)}`, { className: "go" });

export const soft = (text, title = "") => element("span", { className: "soft", textContent: text, title });

export const status = (name) => element("span", { className: `status ${name}`, textContent: name });

export function number(value, why = "") {
  if (value === null || value === undefined) return soft("–", why);
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

export const seconds = (value) => (value === null || value === undefined ? number(null) : duration(value));

// Who owns a group, and how to reach them in the title.
export const owner = (group) => (group.owner ? element("span", { textContent: visible(group.owner.team), title: group.owner.contact ?? "" }) : number(null));

const UNITS = [[86_400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

// In the two largest units: "4 min 10 s".
export function duration(value) {
  const whole = Math.round(value);
  const found = UNITS.find(([size]) => whole >= size);
  if (!found) return `${value < 10 ? Number(value.toFixed(1)) : whole} s`;
  const [size, unit, smaller, smallUnit] = found;
  const rest = Math.floor((whole % size) / smaller);
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
}

// "2 min old", never younger than it is.
export const age = (value) => (value < 90 ? `${Math.ceil(value)} s old` : `${Math.ceil(value / 60)} min old`);

export const isUtc = () => localStorage.getItem("utc") === "1";

// A moment in ms since 1970, with the zone; the date only if it is not today. The other zone is in the title.
export function moment(at_ms, { withSeconds = true } = {}) {
  if (Number.isNaN(at_ms)) return soft("–");
  const zone = (utc) => {
    const shown = { hour: "2-digit", minute: "2-digit", hour12: false, timeZoneName: "short", timeZone: utc ? "UTC" : undefined };
    if (withSeconds) shown.second = "2-digit";
    const isToday = new Date(at_ms).toDateString() === new Date().toDateString();
    return new Date(at_ms).toLocaleString("en-GB", isToday ? shown : { day: "numeric", month: "short", ...shown });
  };
  const iso = new Date(at_ms).toISOString();
  return element("time", { dateTime: iso, textContent: zone(isUtc()), title: isUtc() ? zone(false) : iso });
}

const CODES = {
  commits_not_current: "koff has not read its newest commits",
  end_not_current: "the end offset was not returned lately",
  rows_missing: "partitions of it may be missing",
  lags_withheld: "a lag of it is not current",
  lags_unknown: "koff knows no lag of it",
  no_partitions: "it has no commits",
  no_commit: "no commit",
  topic_gone: "the topic does not exist",
  end_unknown: "koff may not see the end offset",
  topic_recreated: "the commit is of an earlier topic of this name",
  ahead_of_log: "the commit is beyond the end of the log",
  below_log_start: "records left the log before they were committed",
};

export const explain = (code) => CODES[code] ?? code.replaceAll("_", " ");
export const explainAll = (codes) => codes.map(explain).join("; ");

// What a group has in place of a value that is not known: the newest one, with its age.
export function lastKnown(group, name, show) {
  const last = group.last_known;
  if (!last || last[name] === null) return number(null, explain(group.reason));
  return element("span", { className: "soft old", title: `not known now: ${explain(group.reason)}` }, `${show(last[name])}, ${age(last.age_s)}`);
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

export function sparkline(values) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return soft("–", "nothing is kept yet");
  const [first, last] = [known[0], known.at(-1)];
  const title = `lag in the last hour: from ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
  return drawing("svg", { viewBox: "-2 -2 104 24", width: 104, height: 24, role: "img", "aria-label": title }, ...lines(values, 100, 20));
}
