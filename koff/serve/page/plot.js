// Plots of the last hour by uPlot, with what happened marked on the time line.

import { element } from "./build.js";

const HEIGHT = 170;
const SHORTEST_S = 300;
// A label of the time line has minutes, and room for "06:44 PM".
const LABEL = { space: 66, incrs: [60, 120, 180, 300, 600, 900, 1800, 3600] };
const MARKS = {
  rebalanced: ["R", "--link", "rebalanced"],
  members_changed: ["M", "--link", "members changed"],
  offsets_reset: ["↶", "--warn", "offsets went back"],
  records_lost: ["✕", "--err", "records lost"],
  incident_opened: ["●", "--soft", "incident opened"],
  incident_raised: ["●", "--soft", "incident raised"],
  incident_closed: ["●", "--soft", "incident closed"],
};
const plots = new Map(); // by key: { box, plot, data, marks }

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const showMinute = (at_s) => new Date(at_s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
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

function create(entry, label, show) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  const options = {
    width: Math.max(entry.box.clientWidth, 200),
    height: HEIGHT,
    padding: [18, 32, 0, 0],
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: true, range: () => entry.span }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.05] } },
    axes: [{ ...axis, ...LABEL, values: (_, splits) => splits.map(showMinute) }, { ...axis, size: 64, values: (_, values) => values.map((value) => compact(value)) }],
    series: [
      { value: (_, at_s) => (at_s === null ? "–" : new Date(at_s * 1000).toLocaleTimeString()) },
      { label, stroke: color("--link"), width: 2, points: { show: false }, value: (_, value) => (value === null ? "–" : show(value)) },
    ],
    hooks: { draw: [(plot) => drawMarks(plot, entry.marks)] },
  };
  entry.plot = new uPlot(options, entry.data, entry.box);
}

// A figure of values of the last hour. `key` says which plot it is: the figure of a plot that is shown stays.
export function figure(key, title, course, name, show, events = []) {
  const values = course[name];
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const summary = `${title}, last hour: now ${values.at(-1) === null ? "unknown" : show(values.at(-1))}, at most ${show(Math.max(...known))}`;
  const first_s = course.end_ms / 1000 - values.length * course.step_s;
  const data = [values.map((_, at) => first_s + (at + 1) * course.step_s), values];
  const marks = events
    .filter((event) => MARKS[event.kind])
    .map((event) => ({ kind: event.kind, at_s: Date.parse(event.time) / 1000 }))
    .filter((mark) => mark.at_s > data[0][0]);
  // The first minutes after koff's start fill the plot, too.
  const begin_s = Math.min(data[0][values.findIndex((value) => value !== null)], data[0].at(-1) - SHORTEST_S);
  const entry = plots.get(key) ?? { box: element("div", { className: "plot" }), plot: null };
  entry.box.dataset.keep = key;
  Object.assign(entry, { data, marks, span: [begin_s, data[0].at(-1)], redraw: () => create(entry, title, show) });
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

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const entry of plots.values()) {
    entry.plot?.destroy();
    entry.plot = null;
  }
  drawPlots();
});
