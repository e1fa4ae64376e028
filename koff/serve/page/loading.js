// How far koff has read a cluster whose groups it does not know yet.

import { duration, visible } from "./words.js";

const begun = new Map(); // by cluster: when its first number was seen, and which

export function describeReading(clusters) {
  return clusters.filter((each) => each.groups === null && each.partitions && each.partitions_not_current).map(describe).join(" ");
}

function describe(cluster) {
  const name = cluster.cluster ?? "?";
  const read = cluster.partitions - cluster.partitions_not_current;
  const left = estimateLeft(name, cluster.behind_offsets);
  return `${visible(name)}: reading ${read} of ${cluster.partitions} partitions${left ? `, about ${left} left` : ""}.`;
}

// From how fast the offsets became fewer since they were seen first.
function estimateLeft(name, behind) {
  const now_s = performance.now() / 1000;
  if (behind === null) return "";
  if (!begun.has(name) || begun.get(name).behind < behind) begun.set(name, { at_s: now_s, behind });
  const first = begun.get(name);
  const rate = (first.behind - behind) / (now_s - first.at_s);
  return rate > 0 ? duration(behind / rate) : "";
}
