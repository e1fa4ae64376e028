// Builds what is shown. Text is only ever set as text: names of groups and topics may be anything.

export const byId = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function link(text, href) {
  return element("a", { href, textContent: text });
}

// A name of blanks alone could not be seen, nor clicked.
export function visible(name) {
  return /[^\p{White_Space}\p{C}]/u.test(name) ? name : JSON.stringify(name);
}

export function groupLink(cluster, group, text = visible(group)) {
  return link(text, `#/group/${encodeURIComponent(cluster)}/${encodeURIComponent(group)}`);
}

export function topicLink(cluster, topic) {
  return link(visible(topic), `#/topic/${encodeURIComponent(cluster)}/${encodeURIComponent(topic)}`);
}

export function status(name) {
  return element("span", { className: `status ${name}`, textContent: name });
}

export function number(value, why = "") {
  if (value === null || value === undefined) return element("span", { className: "soft", textContent: "–", title: why });
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

export function seconds(value) {
  return value === null || value === undefined ? number(null) : duration(value);
}

export function duration(value) {
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

export function sparkline(values) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return element("span", { className: "soft", textContent: "–" });
  const [first, last] = [known[0], known.at(-1)];
  const title = `lag in the last hour: from ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
  return drawing("svg", { viewBox: "-2 -2 104 24", width: 104, height: 24, role: "img", "aria-label": title },
    ...lines(values, 100, 20));
}

function cell(content, kind) {
  const made = element("td", { className: kind ?? "" });
  made.append(content ?? "");
  return made;
}

const MOST_ROWS = 500;

// A table. A column is [title, kind, content of the cell of a row]. More rows than that would take the browser too long.
export function table(label, columns, rows) {
  const head = element("tr", {}, ...columns.map(([title, kind]) => element("th", { scope: "col", className: kind ?? "", textContent: title })));
  const body = rows.slice(0, MOST_ROWS).map((row) => element("tr", {}, ...columns.map(([, kind, content]) => cell(content(row), kind))));
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  const left_out = rows.length - body.length;
  const caption = left_out ? `The first ${body.length} of ${rows.length.toLocaleString("en")}: the API has all` : "";
  if (caption) made.prepend(element("caption", { textContent: caption }));
  return element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: label }, made);
}

export function facts(pairs) {
  return element("dl", { className: "facts" }, ...pairs.filter(Boolean).flatMap(([name, value]) => {
    const text = element("dd");
    text.append(value);
    return [element("dt", { textContent: name }), text];
  }));
}

// Makes `before` what `made` is, and leaves alone what is the same: so the keyboard's focus, a selection and the
// place in a scrolled table stay. An element with `data-keep` cares for itself.
export function patch(before, made) {
  if (before.isEqualNode(made)) return;
  if (before.nodeType !== Node.ELEMENT_NODE || before.nodeName !== made.nodeName) {
    before.replaceWith(made);
    return;
  }
  if (before.dataset?.keep || made.dataset?.keep) {
    if (before.dataset.keep !== made.dataset.keep) before.replaceWith(made);
    return;
  }
  for (const { name } of [...before.attributes]) if (!made.hasAttribute(name)) before.removeAttribute(name);
  for (const { name, value } of made.attributes) if (before.getAttribute(name) !== value) before.setAttribute(name, value);
  patchChildren(before, [...made.childNodes]);
}

export function patchChildren(parent, wanted) {
  wanted.forEach((made, at) => {
    const before = parent.childNodes[at];
    if (before) patch(before, made);
    else parent.append(made);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

export function setOptions(select, values) {
  const fixed = [...select.options].filter((option) => option.value === "");
  const shown = [...select.options].slice(fixed.length).map((option) => option.value);
  if (shown.join("\n") === values.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...fixed, ...values.map((value) => element("option", { value, textContent: value })));
  select.value = chosen;
}
