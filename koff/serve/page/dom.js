// Builds what is shown, and changes what is there into it. Text is only ever set as text.

export const byId = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const { dataset, ...others } = properties;
  const made = Object.assign(document.createElement(name), others);
  Object.assign(made.dataset, dataset);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const link = (text, href, more = {}) => element("a", { href, textContent: text, ...more });

const SVG = "http://www.w3.org/2000/svg";

export function drawing(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Makes `before` what `made` is, and leaves alone what is the same: so the keyboard's focus, a selection and the
// place in a scrolled table stay. An element with `data-keep` cares for itself. Whether details are open is up to
// the reader.
function patch(before, made) {
  if (before.isEqualNode(made)) return;
  if (before.nodeType !== Node.ELEMENT_NODE || before.nodeName !== made.nodeName) {
    before.replaceWith(made);
    return;
  }
  if (before.dataset?.keep || made.dataset?.keep) {
    if (before.dataset.keep !== made.dataset.keep) before.replaceWith(made);
    return;
  }
  for (const { name } of [...before.attributes]) if (name !== "open" && !made.hasAttribute(name)) before.removeAttribute(name);
  for (const { name, value } of made.attributes) if (before.getAttribute(name) !== value) before.setAttribute(name, value);
  patchChildren(before, [...made.childNodes]);
}

// The same for all children. Those with the same `data-key` are the same, wherever they are.
export function patchChildren(parent, wanted) {
  const made = wanted.filter((child) => child !== null && child !== undefined && child !== false);
  const keys = new Set(made.map((child) => child.dataset?.key).filter(Boolean));
  const keyed = new Map();
  for (const child of [...parent.children]) {
    const { key } = child.dataset;
    if (key && keys.has(key)) keyed.set(key, child);
    else if (key) child.remove();
  }
  made.forEach((child, at) => {
    const own = keyed.get(child.dataset?.key);
    const here = parent.childNodes[at] ?? null;
    if (own) {
      if (here !== own) move(parent, own, here);
      patch(own, child);
    } else if (here && !here.dataset?.key && !child.dataset?.key) patch(here, child);
    else parent.insertBefore(typeof child === "string" ? document.createTextNode(child) : child, here);
  });
  while (parent.childNodes.length > made.length) parent.lastChild.remove();
}

// Newer browsers can move an element without a loss of the focus.
function move(parent, child, before) {
  if (parent.moveBefore) parent.moveBefore(child, before);
  else parent.insertBefore(child, before);
}

export function setOptions(select, values, show = (value) => value) {
  const fixed = [...select.options].filter((option) => option.value === "");
  const shown = [...select.options].slice(fixed.length).map((option) => option.value);
  if (shown.join("\n") === values.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...fixed, ...values.map((value) => element("option", { value, textContent: show(value) })));
  select.value = chosen;
}

const MOST_ROWS = 500;

// A table. A column is [title, kind, content of the cell of a row]. More rows than that would take the browser too long.
export function table(label, columns, rows, keyOf = () => undefined) {
  const head = element("tr", {}, columns.map(([title, kind]) => element("th", { scope: "col", className: kind ?? "", textContent: title })));
  const body = rows.slice(0, MOST_ROWS).map((row) => {
    const made = element("tr", {}, columns.map(([, kind, content]) => element("td", { className: kind ?? "" }, content(row) ?? "")));
    if (keyOf(row)) made.dataset.key = keyOf(row);
    return made;
  });
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, body));
  const caption = `The first ${body.length} of ${rows.length.toLocaleString("en")}: the API has all`;
  if (rows.length > body.length) made.prepend(element("caption", { textContent: caption }));
  return element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `${label}, table` }, made);
}

export function facts(pairs) {
  return element("dl", { className: "facts" }, pairs.filter(Boolean).flatMap(([name, value]) => [
    element("dt", { textContent: name }),
    element("dd", {}, value),
  ]));
}
