// Topics with their readers.

import { apiPath } from "./api.js";
import { byId, element, facts, link, patchChildren, table } from "./dom.js";
import { explainAll, groupLink, moment, number, soft, topicLink, visible } from "./words.js";

const PAGE = 100;

export function topicsPath(params, clusters) {
  const query = { cluster: params.get("cluster") || clusters[0], limit: PAGE };
  for (const name of ["name", "offset"]) if (params.get(name)) query[name] = params.get(name);
  return apiPath("topics", query);
}

export function showTopics(found, params) {
  const first = Number(params.get("offset") ?? 0);
  const total = found.total.toLocaleString("en");
  const shown = ` ${first + 1} to ${first + found.topics.length} of ${total} topics of ${visible(found.cluster)} `;
  const pageLink = (text, offset) => {
    const query = new URLSearchParams(params);
    query.set("offset", offset);
    return link(text, `#/topics?${query}`);
  };
  patchChildren(byId("topics"), [
    table("Topics", [
      ["Topic", "name", (topic) => topicLink(found.cluster, topic.topic)],
      ["Partitions", "number", (topic) => number(topic.partitions)],
      ["Produced/s", "number", (topic) => number(topic.produce_per_s, "known while groups read all partitions")],
      ["Readers", "number", (topic) => number(topic.readers)],
      ["Slowest reader", "name", (topic) => (topic.slowest_reader === null ? "–" : groupLink(found.cluster, topic.slowest_reader))],
      ["Its lag", "number", (topic) => number(topic.slowest_reader_lag)],
      ["Problems", "", problems],
    ], found.topics),
    element("p", { className: "pages" },
      first ? pageLink("Previous", Math.max(0, first - PAGE)) : null,
      element("span", { textContent: found.topics.length ? shown : `no topic of ${visible(found.cluster)} fits` }),
      found.next_offset === null ? null : pageLink("Next", found.next_offset)),
  ]);
}

function problems(topic) {
  if (topic.partitions === null) return "the cluster does not list it";
  const found = [];
  if (topic.leaderless) found.push(`${topic.leaderless} partitions without a leader`);
  if (topic.under_replicated) found.push(`${topic.under_replicated} under-replicated`);
  return found.join(", ");
}

// The groups that have read the topic, and to which no member subscribes any more.
function showLeft(found, events) {
  const isOfTopic = (event) => event.cluster === found.cluster && event.details.topics.includes(found.topic);
  const left = events.filter((event) => event.kind === "topic_left" && isOfTopic(event));
  if (!left.length) return [];
  const why = " no member subscribes to it any more: this lag does not count";
  return [
    element("h2", { textContent: "Does not read it any more" }),
    element("ul", {}, left.map((event) => element("li", {}, moment(Date.parse(event.time)), " ", groupLink(event.cluster, event.group), soft(why)))),
  ];
}

export function showTopic(found, events, back) {
  const readers = [...found.groups].sort((one, other) => (other.lag ?? -1) - (one.lag ?? -1));
  const more = found.total > readers.length ? ` The list has the first ${readers.length} of ${found.total} by name.` : "";
  patchChildren(byId("topics"), [
    element("p", {}, link("← all topics", back ?? `#/topics?${new URLSearchParams({ cluster: found.cluster })}`)),
    element("h2", { textContent: visible(found.topic) }),
    facts([
      ["Partitions", number(found.partitions)],
      ["Replicas", number(found.replicas)],
      ["Produced", found.produce_per_s === null ? number(null, found.reason) : `${number(found.produce_per_s)} offsets a second`],
      problems(found) ? ["Problems", problems(found)] : null,
    ]),
    element("h2", { textContent: "Readers" }),
    element("p", { className: "soft", textContent: `The slowest first. Readers are groups that committed to the topic.${more}` }),
    table("Readers", [
      ["Group", "name", (reader) => groupLink(found.cluster, reader.group)],
      ["Lag here", "number", (reader) => number(reader.lag, explainAll(reader.reasons))],
      ["Partitions", "number", (reader) => number(reader.partitions)],
      ["Unknown", "number", (reader) => number(reader.unknown)],
      ["Note", "", (reader) => explainAll(reader.reasons)],
    ], readers, (reader) => reader.group),
    ...showLeft(found, events),
    element("h2", { textContent: "Partitions" }),
    table("Partitions", [
      ["Partition", "number", (row) => number(row.partition)],
      ["Start", "number", (row) => number(row.start)],
      ["End", "number", (row) => number(row.end)],
      ["Produced/s", "number", (row) => number(row.produce_per_s)],
    ], found.offsets),
  ]);
}
