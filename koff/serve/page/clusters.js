// All clusters at a glance, and how koff itself is.

import { apiPath, fetchJson } from "./api.js";
import { byId, duration, element, facts, link, number, patchChildren, status } from "./build.js";
import { figure } from "./plot.js";

const STATUSES = ["ERR", "WARN", "OK", "UNKNOWN"];

export async function fetchClusters(names) {
  return Promise.all(names.map(async (name) => {
    const counts = STATUSES.map((each) => fetchJson(apiPath("groups", { cluster: name, limit: 1, status: each })));
    const [cluster, ...pages] = await Promise.all([fetchJson(apiPath("cluster", { cluster: name })), ...counts]);
    return { cluster, counts: pages.map((page) => page.total) };
  }));
}

export function showClusters(found, all, events) {
  const unreached = all.clusters.filter((cluster) => cluster.cluster === null);
  patchChildren(byId("overview"), [
    element("h2", { textContent: "Clusters" }),
    element("p", {}, `${all.readiness}. `, all.memory_bytes === null ? "" : `koff uses ${number(all.memory_bytes / 2 ** 20)} MiB of memory.`),
    ...unreached.map((cluster) => element("p", { className: "error", textContent: cluster.readiness })),
    ...found.map(({ cluster, counts }) => showCluster(cluster, counts, events)),
  ]);
}

function showCluster(cluster, counts, events) {
  const name = cluster.cluster;
  const groups = element("span", { className: "counts" }, ...STATUSES.flatMap((each, at) => {
    if (!counts[at]) return [];
    const made = link("", `#/?${new URLSearchParams({ cluster: name, status: each })}`);
    made.append(number(counts[at]), " ", status(each));
    return [made];
  }));
  const ages = Object.entries(cluster.input_ages_s).map(([kind, age_s]) => `${kind} ${duration(age_s)}`).join(", ");
  const skipped = Object.entries(cluster.skipped).map(([kind, count]) => `${kind} ${number(count)}`).join(", ");
  const [course, own] = [cluster.last_hour, events.filter((event) => event.cluster === name && !event.group)];
  return element("section", { className: "cluster" },
    element("h3", { textContent: name }),
    cluster.ready ? null : element("p", { className: "error", textContent: cluster.readiness }),
    ...cluster.missing.map((text) => element("p", { className: "error", textContent: text })),
    facts([
      ["Groups", cluster.groups ? groups : "none"],
      ["Lags", `${number(cluster.rows)}, of which ${number(cluster.withheld)} are withheld`],
      ["Brokers", number(cluster.brokers)],
      ["Topics", cluster.topics === null ? number(null) : link(number(cluster.topics), `#/topics?${new URLSearchParams({ cluster: name })}`)],
      ["Commits from", cluster.source === "log" ? "the offsets topic" : "the coordinators"],
      ["Behind", cluster.behind_offsets === null ? number(null) : `${number(cluster.behind_offsets)} offsets of the log`],
      ["Held back", cluster.held_back_offsets ? `${number(cluster.held_back_offsets)} offsets behind open transactions, for ${duration(cluster.held_back_s)}` : "nothing"],
      cluster.backfill_remaining_offsets ? ["History", `${number(cluster.backfill_remaining_offsets)} offsets to read`] : null,
      ["Not current", `${number(cluster.partitions_not_current)} partitions of internal topics`],
      ["Undecodable", `${number(cluster.undecodable)} records`],
      skipped ? ["Skipped", skipped] : null,
      ["Age of input", ages || "–"],
    ]),
    element("div", { className: "courses" }, ...(course ? [
      figure(`${name}\nlag of all`, "Lag of all groups", course, "lag", (value) => value.toLocaleString("en"), own),
      figure(`${name}\nlongest`, "Longest time lag", course, "time_lag_s", duration, own),
    ].filter(Boolean) : [])));
}
