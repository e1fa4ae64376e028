// Draws the charts of a report with uPlot, the bars in its tables, and sorts a table by a heading that is clicked.

const COLORS = ["#0072b2", "#d55e00", "#00845f", "#b8559a", "#a67c00", "#3a97d3", "#6f4aa8", "#8c564b"];
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const compact = (value) => (value === null ? "–" : value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 }));
const showTime = (at_s) => {
  const at = new Date(at_s * 1000);
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  return at_s % 86_400 ? at.toISOString().slice(11, 16) : day;
};
const listDecades = (low, high) => [0, ...Array.from({ length: 15 }, (_, n) => 10 ** (n + 1)).filter((value) => value < high)];
const isDark = matchMedia("(prefers-color-scheme: dark)");
let drawn = [];

function describeSeries(chart, { label }, at) {
  const kinds = [...new Set(chart.series.map((each) => each.label))];
  const others = label === "all others" || label === "produced";
  const stroke = others ? color("--soft") : COLORS[(chart.kind === "marks" ? kinds.indexOf(label) : at) % COLORS.length];
  const series = { label, stroke, width: 1.8, value: (_, value) => compact(value) };
  if (chart.kind === "marks") return { ...series, fill: stroke, paths: () => null, points: { show: true, size: 9, fill: stroke } };
  if (chart.kind === "bars") return { ...series, fill: stroke, paths: uPlot.paths.bars({ align: 1 }) };
  return { ...series, dash: others ? [4, 4] : undefined };
}

function draw(chart, box) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  const isMarks = chart.kind === "marks";
  const ticks = {
    marks: { splits: () => chart.rows.map((_, at) => at), values: () => chart.rows, size: 200 },
    log: { splits: (_, axis, low, high) => listDecades(low, high), filter: (_, splits) => splits },
  }[chart.kind];
  const y = isMarks ? { range: [-0.5, chart.rows.length - 0.5], dir: -1 } : { distr: chart.kind === "log" ? 4 : 1, asinh: 10, range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.05] };
  // Marks of several kinds at one moment are beside each other.
  const kinds = [...new Set(chart.series.map((each) => each.label))];
  const shift = ({ label }) => (isMarks ? (kinds.indexOf(label) - (kinds.length - 1) / 2) / 5 : 0);
  const place = (each) => each.values.map((value) => (value === null ? null : value + shift(each)));
  const data = [chart.times, ...chart.series.map(place)];
  const options = {
    width: Math.max(box.clientWidth, 200),
    height: isMarks ? 80 + 30 * chart.rows.length : chart.kind === "small" ? 180 : 300,
    tzDate: (at_s) => uPlot.tzDate(new Date(at_s * 1000), "UTC"),
    cursor: { drag: { x: true, y: false } },
    legend: { show: !isMarks },
    scales: { x: { time: true, range: (_, low, high) => (low === chart.times[0] && high === chart.times.at(-1) ? chart.span : [low, high]) }, y },
    axes: [{ ...axis, values: (_, splits) => splits.map(showTime) }, { ...axis, size: 64, values: (_, values) => values.map(compact), ...ticks }],
    series: [{ label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...chart.series.map((each, at) => describeSeries(chart, each, at))],
  };
  const plot = new uPlot(options, data, box);
  if (isMarks) {
    const names = new Map(options.series.slice(1).map((series) => [series.label, series.stroke]));
    const legend = box.appendChild(document.createElement("p"));
    for (const [label, stroke] of names) legend.appendChild(Object.assign(document.createElement("span"), { textContent: `● ${label}  ` })).style.color = stroke;
  }
  return { plot, box };
}

function drawAll() {
  for (const { plot, box } of drawn) {
    plot.destroy();
    box.replaceChildren();
  }
  const boxes = [...document.querySelectorAll("figure div")];
  drawn = JSON.parse(document.getElementById("charts").textContent).map((chart, at) => draw(chart, boxes[at]));
}

// A part of the widest bar in the column. Numbers at or below zero have none.
for (const cell of document.querySelectorAll("td.bar[data-v]")) {
  const column = [...cell.closest("tbody").rows].map((row) => Number(row.cells[cell.cellIndex].dataset.v ?? 0));
  cell.style.setProperty("--part", `${Math.max(0, (100 * Number(cell.dataset.v)) / Math.max(...column, Number.MIN_VALUE))}%`);
}

for (const table of document.querySelectorAll(".wide table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const isNumber = head.classList.contains("n");
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : isNumber;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const read = (row) => row.cells[column].dataset.v ?? (isNumber ? null : row.cells[column].textContent);
      const compare = (a, b) => (isNumber ? a - b : a.localeCompare(b));
      const rows = [...body.rows].map((row) => [read(row), row]);
      // Unknown numbers are last in both directions.
      rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : compare(a, b) * (down ? -1 : 1)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

drawAll();
isDark.addEventListener("change", drawAll);
addEventListener("resize", () => drawn.forEach(({ plot, box }) => plot.setSize({ width: Math.max(box.clientWidth, 200), height: plot.height })));
