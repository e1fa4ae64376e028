// The address says all of what is shown: the view, a name, and filters. Each choice of a person is a step of the history.

const NAMED = ["group", "topic"];
const LISTS = ["topics", "clusters", "events"];
export const PARENTS = { group: "groups", topic: "topics" };

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function readAddress(hash = location.hash) {
  const [path, query] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const [view, cluster, name] = path.split("/").slice(1);
  const params = new URLSearchParams(query ?? "");
  if (NAMED.includes(view) && name !== undefined) return { view, cluster: decode(cluster), name: decode(name), params };
  return { view: LISTS.includes(view) ? view : "groups", params };
}

export const listAddress = (view, params) => `#/${view === "groups" ? "" : view}${params.size ? `?${params}` : ""}`;

// The address of the present list with other parameters. "" removes one. A list begins at its first page.
export function addressWith(changes, { view, params } = readAddress()) {
  const changed = new URLSearchParams(params);
  for (const [name, value] of Object.entries({ offset: "", ...changes })) {
    if (value) changed.set(name, value);
    else changed.delete(name);
  }
  return listAddress(view in PARENTS ? PARENTS[view] : view, changed);
}

// What is typed is one step of the history, not one for each letter.
export function setParams(changes, { isSameStep = false } = {}) {
  const address = addressWith(changes);
  if (address === location.hash || (address === "#/" && !location.hash)) return;
  if (isSameStep) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  dispatchEvent(new Event("addresschange"));
}

// Another value in a list such as "ERR,WARN", or without it.
export function toggle(list, value) {
  const values = list ? list.split(",") : [];
  return (values.includes(value) ? values.filter((each) => each !== value) : [...values, value]).join(",");
}
