// All clusters at a glance, and how koff itself is.

import { apiPath, fetchJson } from "./api.js";
import { byId, element, facts, link, patchChildren } from "./dom.js";
import { STATUSES, unknownSince } from "./groups.js";
import { figures, markEvents } from "./plot.js";
import { duration, groupLink, number, soft, status, visible } from "./words.js";

const MOST_UNUSED = 50;

export async function fetchClusters(names) {
  const each = (path, more) => Promise.all(names.map((name) => fetchJson(apiPath(path, { cluster: name, ...more }))));
  const [page, clusters, unused] = await Promise.all([
    fetchJson(apiPath("groups", { limit: 1 })), each("cluster"), each("unused", { limit: MOST_UNUSED }),
  ]);
  const counts = new Map(page.counts.map((each) => [each.cluster, each]));
  return clusters.map((cluster, at) => ({ cluster, counts: counts.get(cluster.cluster), unused: unused[at] }));
}

export function showClusters(found, all, events) {
  const unreached = all.clusters.filter((cluster) => cluster.cluster === null);
  patchChildren(byId("overview"), [
    element("h2", { textContent: "Clusters" }),
    element("p", {}, `${all.readiness}. `, all.memory_bytes === null ? "" : `koff uses ${number(all.memory_bytes / 2 ** 20)} MiB of memory.`),
    ...unreached.map((cluster) => element("p", { className: "error", textContent: cluster.readiness })),
    ...found.map((each) => showCluster(each, events)),
  ]);
}

function countGroups(name, counts) {
  return element("span", { className: "counts" }, STATUSES.filter((each) => counts[each]).map((each) => {
    const made = link("", `#/?${new URLSearchParams({ cluster: name, status: each })}`);
    made.append(number(counts[each]), " ", status(each));
    return made;
  }));
}

// Of a cluster that koff does not know, nothing is shown as known.
function showCluster({ cluster, counts, unused }, events) {
  const name = cluster.cluster;
  const course = cluster.last_hour;
  const marks = markEvents(events.filter((event) => event.cluster === name && !event.group));
  return element("section", { className: "cluster", dataset: { key: name } },
    element("h3", { textContent: visible(name) }),
    cluster.ready ? null : element("p", {}, unknownSince(cluster)),
    cluster.missing.map((text) => element("p", { className: "error", textContent: text })),
    cluster.groups === null ? null : showFacts(cluster, counts),
    showUnused(name, unused),
    element("div", { className: "courses" }, course
      ? figures(name, { time_lag_s: "Longest time lag", lag: "Lag of all groups" }, course, null, { marks })
      : []));
}

// Groups that nobody uses, with what deleting each would lose. koff deletes nothing.
function showUnused(cluster, { total, unused }) {
  if (!total) return null;
  const items = unused.map((each) => element("li", {},
    groupLink(cluster, each.name), `: ${each.text}. Deleting it loses ${each.loses}. `,
    each.command ? element("button", { type: "button", textContent: "Copy the command", dataset: { copy: each.command } }) : null));
  const more = total > unused.length ? element("p", { className: "soft", textContent: `and ${number(total - unused.length)} more` }) : null;
  return element("details", {},
    element("summary", { textContent: `To clean up: ${total === 1 ? "one group" : `${total.toLocaleString("en")} groups`}` }),
    element("ul", {}, items), more,
    element("p", {}, soft("koff unused checks topics, too.")));
}

function showFacts(cluster, counts) {
  const topics = `#/topics?${new URLSearchParams({ cluster: cluster.cluster })}`;
  const held = `${number(cluster.held_back_offsets)} offsets behind open transactions, for ${duration(cluster.held_back_s)}`;
  const ages = Object.entries(cluster.input_ages_s).map(([kind, age_s]) => `${kind.replaceAll("_", " ")} ${duration(age_s)}`).join(", ");
  const skipped = Object.entries(cluster.skipped).map(([kind, count]) => `${kind} ${number(count)}`).join(", ");
  return facts([
    ["Groups", cluster.groups ? countGroups(cluster.cluster, counts) : "none"],
    ["Lags", `${number(cluster.rows)}, of which ${number(cluster.withheld)} are withheld`],
    ["Brokers", number(cluster.brokers)],
    ["Topics", cluster.topics === null ? number(null) : link(number(cluster.topics), topics)],
    ["Commits from", cluster.source === "log" ? "the offsets topic" : "the coordinators"],
    ["Behind", cluster.behind_offsets === null ? number(null) : `${number(cluster.behind_offsets)} offsets of the log`],
    ["Held back", cluster.held_back_offsets ? held : "nothing"],
    cluster.backfill_remaining_offsets ? ["History", `${number(cluster.backfill_remaining_offsets)} offsets to read`] : null,
    ["Not current", `${number(cluster.partitions_not_current)} of ${number(cluster.partitions)} partitions of internal topics`],
    ["Undecodable", `${number(cluster.undecodable)} records`],
    skipped ? ["Skipped", skipped] : null,
    ["Age of input", ages || "–"],
  ]);
}
