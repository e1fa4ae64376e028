"""The limit on series: keeps those of the groups, topics and partitions with the largest lags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.serve.compat import COMPAT_LISTED_SERIES
from koff.serve.families import Family
from koff.serve.labels import Kept, Labels
from koff.serve.series import LISTED_SERIES, SEVERAL, ClusterNumbers, PartitionNumbers, ShardNumbers

Lags = NDArray[np.float64]
Ranked = tuple[Labels, Lags]
"""Labels, and the lag of each: -1 if it is unknown."""


def limit_series(
    limit: int,
    families: Iterable[Family],
    numbers: ClusterNumbers,
) -> None:
    """Sets which series are kept, so that there are `limit` at most, besides those of the cluster.

    Counts as if every series had a number. Coarse series come first: those of groups, of topics, of the
    topics of groups, of the partitions of groups, and of partitions.
    """
    shards, partitions, facts = numbers.shards, numbers.partitions, numbers.view.facts
    of_partitions = _rank_partitions(shards, partitions)
    of_topics = _sum(of_partitions, partitions.labels.topic_of_partition, len(partitions.labels.topics))
    by_topic = dict(zip(dict.fromkeys(partitions.partitions.topic), of_topics.tolist(), strict=True))
    of_listed = np.array([by_topic.get(topic, -1.0) for topic in facts.topics])
    rows = [np.where(s.lags.known, s.lag, -1.0) for s in shards]
    pairs = list(zip(shards, rows, strict=True))
    counts, left = _count_by_kind(families, len(facts.log_sizes)), limit
    for kind, ranked in (
        ("group", [(s.labels.groups, _sum(r, s.shard.group, len(s.labels.groups))) for s, r in pairs]),
        ("listed", [(numbers.listed, of_listed)]),
        ("topic", [(partitions.labels.topics, of_topics)]),
        (
            "group topic",
            [(s.labels.topics, _sum(r, s.labels.topic_of_row, len(s.labels.topics))) for s, r in pairs],
        ),
        ("group topic partition", [(s.labels.rows, r) for s, r in pairs]),
        ("topic partition", [(partitions.labels.partitions, of_partitions)]),
    ):
        if counts[kind]:
            left -= counts[kind] * _keep_largest(ranked, left // counts[kind])


def _count_by_kind(families: Iterable[Family], brokers: int) -> Counter[str]:
    """How many series each group, topic, or partition may have: by the labels that name it."""
    counts: Counter[str] = Counter()
    for family in families:
        names = [label for label in family.labels if label in ("group", "topic", "partition")]
        is_listed = family.name in LISTED_SERIES or family.name in COMPAT_LISTED_SERIES
        kind = "listed" if is_listed else " ".join(names)
        counts[kind] += brokers if "broker" in family.labels else SEVERAL.get(family.name, 1)
    return counts


def _keep_largest(ranked: Sequence[Ranked], most: int) -> int:
    """Keeps so many of the labels: those with the largest lags. Returns how many are kept."""
    lags = [lag for _, lag in ranked]
    if (count := sum(map(len, lags))) <= most:
        return count
    # Of equal lags, the first are kept at each scrape.
    largest = np.argsort(-np.concatenate(lags), kind="stable")[:most]
    kept = np.zeros(count, np.bool_)
    kept[largest] = True
    sizes = np.cumsum([len(lag) for lag in lags])[:-1]
    for (labels, _), mask in zip(ranked, np.split(kept, sizes), strict=True):
        labels.kept = Kept(mask)
    return most


def _rank_partitions(shards: Iterable[ShardNumbers], partitions: PartitionNumbers) -> Lags:
    """The largest lag of a group in each partition."""
    lags = np.full(len(partitions.labels.partitions), -1.0)
    for numbers in shards:
        known = numbers.lags.known
        np.maximum.at(lags, numbers.shard.partition[known], numbers.lag[known])
    return lags


def _sum(lags: Lags, index: NDArray[np.integer[Any]], size: int) -> Lags:
    """The known lags summed by `index`."""
    known = lags >= 0
    sums = np.bincount(index[known], weights=lags[known], minlength=size)
    return np.where(np.bincount(index[known], minlength=size) > 0, sums, -1.0)
