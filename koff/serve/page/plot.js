// Plots of the last hour by uPlot, with what happened marked on the time line.

import { element } from "./dom.js";
import { duration, isUtc } from "./words.js";

const HEIGHT = 170;
const SHORTEST_S = 300;
const AROUND_S = 900; // of a time that the address asks for, before it and after it
// A label of the time line has minutes, and room for "06:44 PM".
const LABEL = { space: 66, incrs: [60, 120, 180, 300, 600, 900, 1800, 3600] };
const MARKS = {
  rebalanced: ["R", "--link", "rebalanced"],
  members_changed: ["M", "--link", "members changed: a deployment?"],
  offsets_reset: ["↶", "--warn", "offsets went back"],
  records_lost: ["✕", "--err", "records lost"],
  records_skipped: ["↷", "--warn", "records skipped"],
  open_transaction: ["T", "--warn", "open transaction"],
  incident_opened: ["●", "--soft", "incident opened"],
  incident_raised: ["●", "--soft", "incident raised"],
  incident_closed: ["●", "--soft", "incident closed"],
};
const plots = new Map(); // by key: { box, plot, data, marks }

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const zone = () => (isUtc() ? "UTC" : undefined);
const showTime = (at_s, more) =>
  new Date(at_s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: zone(), ...more });
const showMinute = (at_s) => showTime(at_s);
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
const compact = (value) => value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${12 * devicePixelRatio}px system-ui`;
  ctx.textAlign = "center";
  for (const { at_s, kind } of marks) {
    const [sign, name] = MARKS[kind];
    const x = Math.round(plot.valToPos(at_s, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = color(name);
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(sign, x, bbox.top - 4 * devicePixelRatio);
  }
  ctx.restore();
}

const draw = ({ label, ink, dash }, show) =>
  ({ label, dash, stroke: color(ink), width: dash ? 1 : 2, points: { show: false }, value: (_, value) => (value === null ? "–" : show(value)) });

function create(entry, show) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  const options = {
    width: Math.max(entry.box.clientWidth, 200),
    height: HEIGHT,
    padding: [18, 32, 0, 0],
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: true, range: () => entry.span }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.05] } },
    axes: [
      { ...axis, ...LABEL, values: (_, splits) => splits.map(showMinute) },
      { ...axis, size: 64, values: (_, values) => values.map((value) => compact(value)) },
    ],
    series: [
      { label: "Time", value: (_, at_s) => (at_s === null ? "–" : showTime(at_s, { second: "2-digit", timeZoneName: "short" })) },
      ...entry.curves.map((curve) => draw(curve, show)),
    ],
    hooks: { draw: [(plot) => drawMarks(plot, entry.marks)] },
  };
  entry.plot = new uPlot(options, entry.data, entry.box);
}

const most = (values) => Math.max(...values.filter((value) => value !== null));

function summarize([{ values }, ...compared], show) {
  const last = (each) => (each.at(-1) === null ? "unknown" : show(each.at(-1)));
  return [`now ${last(values)}`, `at most ${show(most(values))}`, ...compared.map((curve) => `${curve.label} ${last(curve.values)}`)].join(", ");
}

const summarizeRates = (curves, show) => curves.map(({ label, values }) => `${label} at most ${show(most(values))}`).join(", ");

export const markEvents = (events) => events.map((event) => ({ kind: event.kind, at_s: Date.parse(event.time) / 1000 }));

// A figure of the last hour, or of the time around `at_ms`. `key` says which plot it is: the figure of a plot that
// is shown stays. `marks` are moments ({ kind, at_s }). The curves ({ label, ink, values, dash }) have a value a step;
// `summary` says in a line what they show.
function figure(key, title, course, curves, show, { marks: given = [], at_ms = 0, summary = summarize } = {}) {
  const { values } = curves[0];
  if (values.every((value) => value === null)) return null;
  const first_s = course.end_ms / 1000 - values.length * course.step_s;
  const times = values.map((_, at) => first_s + (at + 1) * course.step_s);
  const data = [times, ...curves.map((curve) => curve.values)];
  const around = at_ms / 1000 > times[0] ? [at_ms / 1000 - AROUND_S, at_ms / 1000 + AROUND_S] : null;
  // The first minutes after koff's start fill the plot, too.
  const begin_s = Math.min(times[values.findIndex((value) => value !== null)], times.at(-1) - SHORTEST_S);
  const span = around ? [Math.max(around[0], times[0]), Math.min(around[1], times.at(-1))] : [begin_s, times.at(-1)];
  const marks = given.filter((mark) => MARKS[mark.kind] && mark.at_s >= span[0] && mark.at_s <= span[1]);
  const entry = plots.get(key) ?? { box: element("div", { className: "plot" }), plot: null };
  entry.box.dataset.keep = key;
  if (entry.plot && entry.curves.length !== curves.length) {
    entry.plot.destroy();
    entry.plot = null;
  }
  Object.assign(entry, { data, marks, curves, span, redraw: () => create(entry, show) });
  plots.set(key, entry);
  if (entry.plot) entry.plot.setData(data);
  const signs = [...new Set(marks.map((mark) => mark.kind))].map((kind) => `${MARKS[kind][0]} ${MARKS[kind][2]}`);
  const shown = entry.box.isConnected ? element("div") : entry.box;
  shown.dataset.keep = key;
  return element("figure", {},
    element("figcaption", { textContent: `${title}, last hour: ${summary(curves, show)}` }),
    shown,
    signs.length ? element("p", { className: "soft marks", textContent: signs.join("   ") }) : null);
}

const DAYS = { 1: ["a day before", [2, 4]], 7: ["a week before", [8, 4]] };

// The figures of a course: `allowed` ({ label, value }) is the longest time lag that is fine. `earlier` has the same
// hour of other days.
export function figures(key, titles, course, allowed, { earlier = [], ...options } = {}) {
  const before = (name) => earlier.map((each) => ({ label: DAYS[each.days][0], dash: DAYS[each.days][1], ink: "--soft", values: each[name] }));
  const lines = allowed ? [{ label: allowed.label, ink: "--warn", dash: [6, 4], values: course.lag.map(() => allowed.value) }] : [];
  const curve = (name, label, ink = "--link") => ({ label, ink, values: course[name] });
  return [
    figure(`${key}\nseconds`, titles.time_lag_s, course, [curve("time_lag_s", titles.time_lag_s), ...lines, ...before("time_lag_s")], duration, options),
    figure(`${key}\nlag`, titles.lag, course, [curve("lag", titles.lag), ...before("lag")], number, options),
    figure(`${key}\nrates`, "Records a second", course,
      [curve("consumed_per_s", "consumed"), curve("produced_per_s", "produced", "--warn")], number, { ...options, summary: summarizeRates }),
  ];
}

// Draws the plots that have come into the document, and forgets those that have left it.
export function drawPlots() {
  for (const [key, entry] of plots) {
    if (!entry.box.isConnected) {
      entry.plot?.destroy();
      sizes.unobserve(entry.box);
      plots.delete(key);
    } else if (!entry.plot) {
      entry.redraw();
      sizes.observe(entry.box);
    }
  }
}

const sizes = new ResizeObserver(() => {
  for (const { box, plot } of plots.values()) {
    if (plot && box.clientWidth && plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: HEIGHT });
  }
});

// Lets all plots be drawn anew.
export function forgetPlots() {
  for (const entry of plots.values()) {
    entry.plot?.destroy();
    entry.plot = null;
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetPlots();
  drawPlots();
});
