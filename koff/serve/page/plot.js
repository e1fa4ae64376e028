// Plots of the last hour by uPlot, with what happened marked on the time line.

import { element } from "./dom.js";
import { isUtc } from "./words.js";

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

const compared = ({ label, value }, show) =>
  ({ label, stroke: color("--warn"), width: 1, dash: [6, 4], points: { show: false }, value: () => show(value) });

function create(entry, label, show) {
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
      { label, stroke: color("--link"), width: 2, points: { show: false }, value: (_, value) => (value === null ? "–" : show(value)) },
      ...(entry.line ? [compared(entry.line, show)] : []),
    ],
    hooks: { draw: [(plot) => drawMarks(plot, entry.marks)] },
  };
  entry.plot = new uPlot(options, entry.data, entry.box);
}

export const markEvents = (events) => events.map((event) => ({ kind: event.kind, at_s: Date.parse(event.time) / 1000 }));

// A figure of values of the last hour, or around `at_ms`. `key` says which plot it is: the figure of a plot that is
// shown stays. `marks` are moments ({ kind, at_s }), `line` is a value ({ value, label }) to compare with.
export function figure(key, title, course, name, show, { marks: given = [], at_ms = 0, line = null } = {}) {
  const values = course[name];
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const allowed = line ? `, ${line.label} ${show(line.value)}` : "";
  const now = values.at(-1) === null ? "unknown" : show(values.at(-1));
  const summary = `${title}, last hour: now ${now}, at most ${show(Math.max(...known))}${allowed}`;
  const first_s = course.end_ms / 1000 - values.length * course.step_s;
  const times = values.map((_, at) => first_s + (at + 1) * course.step_s);
  const data = [times, values, ...(line ? [times.map(() => line.value)] : [])];
  const around = at_ms / 1000 > times[0] ? [at_ms / 1000 - AROUND_S, at_ms / 1000 + AROUND_S] : null;
  // The first minutes after koff's start fill the plot, too.
  const begin_s = Math.min(times[values.findIndex((value) => value !== null)], times.at(-1) - SHORTEST_S);
  const span = around ? [Math.max(around[0], times[0]), Math.min(around[1], times.at(-1))] : [begin_s, times.at(-1)];
  const marks = given.filter((mark) => MARKS[mark.kind] && mark.at_s >= span[0] && mark.at_s <= span[1]);
  const entry = plots.get(key) ?? { box: element("div", { className: "plot" }), plot: null };
  entry.box.dataset.keep = key;
  if (entry.plot && Boolean(entry.line) !== Boolean(line)) {
    entry.plot.destroy();
    entry.plot = null;
  }
  Object.assign(entry, { data, marks, line, span, redraw: () => create(entry, title, show) });
  plots.set(key, entry);
  if (entry.plot) entry.plot.setData(data);
  const signs = [...new Set(marks.map((mark) => mark.kind))].map((kind) => `${MARKS[kind][0]} ${MARKS[kind][2]}`);
  const shown = entry.box.isConnected ? element("div") : entry.box;
  shown.dataset.keep = key;
  return element("figure", {},
    element("figcaption", { textContent: summary }),
    shown,
    signs.length ? element("p", { className: "soft marks", textContent: signs.join("   ") }) : null);
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
