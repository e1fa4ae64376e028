"""The limit on series: keeps those of the groups, topics and partitions with the largest lags."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.serve.metrics.family import Family
from koff.serve.metrics.labels import Labels, Level
from koff.serve.metrics.numbers import (
    LISTED,
    PARTITIONS,
    SHARDS,
    ClusterNumbers,
    PartitionNumbers,
    ShardNumbers,
)

Lags = NDArray[np.float64]
Ranked = tuple[Labels, Lags]
"""Labels, and the lag of each: -1 if it is unknown."""
Costs = NDArray[np.int64]
"""How many series each label may have."""


def limit_series(limit: int, families: Iterable[Family[Any]], numbers: ClusterNumbers) -> None:
    """Sets which series are kept, so that there are `limit` at most, besides those of the cluster.

    Counts as if every series had a number. Coarse series come first: those of groups, of topics, of the
    topics of groups, of the partitions of groups, and of partitions.
    """
    for labels in numbers.list_labels():
        labels.kept, labels.left_out = None, 0
    partitions, left = numbers.partitions, limit
    of_partitions = _rank_partitions(numbers.shards, partitions)
    of_topics = _sum(of_partitions, partitions.of_topics, len(partitions.labels["topic"]))
    by_topic = dict(zip(dict.fromkeys(partitions.partitions.topic), of_topics.tolist(), strict=True))
    of_listed = np.array([by_topic.get(topic, -1.0) for topic in numbers.view.facts.topics])
    families = list(families)
    counts = _count_by_kind(families, len(numbers.view.facts.log_sizes))
    of_members = sum("member_id" in family.labels for family in families)
    for subject, level, ranked in (
        (SHARDS, "group", [_rank_sums(each, "group", each.of_groups) for each in numbers.shards]),
        (LISTED, "topic", [(numbers.listed.labels["topic"], of_listed)]),
        (PARTITIONS, "topic", [(partitions.labels["topic"], of_topics)]),
        (SHARDS, "topic", [_rank_sums(each, "topic", each.of_topics) for each in numbers.shards]),
        (SHARDS, "partition", [(each.labels["partition"], _list_lags(each)) for each in numbers.shards]),
        (PARTITIONS, "partition", [(partitions.labels["partition"], of_partitions)]),
    ):
        costs = [np.full(len(labels), counts[subject.name, level]) for labels, _ in ranked]
        if level == "group" and of_members:
            members = map(_count_members, numbers.shards)
            costs = [cost + of_members * count for cost, count in zip(costs, members, strict=True)]
        left -= _keep_largest(ranked, costs, left)


def _count_members(numbers: ShardNumbers) -> Costs:
    return np.array([len(group.members) for group in numbers.groups], np.int64)


def _count_by_kind(families: Iterable[Family[Any]], brokers: int) -> Counter[tuple[str, str]]:
    """By subject and level, how many series each group, topic, or partition may have."""
    counts = Counter[tuple[str, str]]()
    for family in families:
        if family.subject.cut:
            counts[family.subject.name, family.level] += brokers if "broker" in family.labels else family.most
    return counts


def _keep_largest(ranked: Sequence[Ranked], costs: Sequence[Costs], most: int) -> int:
    """Keeps the labels with the largest lags, of `most` series together. Returns how many series are kept."""
    lags, cost = [lag for _, lag in ranked], np.concatenate([np.zeros(0, np.int64), *costs])
    if (count := int(cost.sum())) <= most:
        return count
    # Of equal lags, the first are kept at each scrape.
    largest = np.argsort(-np.concatenate(lags), kind="stable")
    kept = np.zeros(len(cost), np.bool_)
    kept[largest] = np.cumsum(cost[largest]) <= most
    sizes = np.cumsum([len(lag) for lag in lags])[:-1]
    for (labels, _), mask in zip(ranked, np.split(kept, sizes), strict=True):
        labels.kept = mask
    return int(cost[kept].sum())


def _rank_partitions(shards: Iterable[ShardNumbers], partitions: PartitionNumbers) -> Lags:
    """The largest lag of a group in each partition."""
    lags = np.full(len(partitions.labels["partition"]), -1.0)
    for numbers in shards:
        known = numbers.lags.known
        np.maximum.at(lags, numbers.shard.partition[known], numbers.lag[known])
    return lags


def _rank_sums(numbers: ShardNumbers, level: Level, index: NDArray[np.integer[Any]]) -> Ranked:
    labels = numbers.labels[level]
    return labels, _sum(_list_lags(numbers), index, len(labels))


def _list_lags(numbers: ShardNumbers) -> Lags:
    return np.where(numbers.lags.known, numbers.lag, -1.0)


def _sum(lags: Lags, index: NDArray[np.integer[Any]], size: int) -> Lags:
    """The known lags summed by `index`."""
    known = lags >= 0
    sums = np.bincount(index[known], weights=lags[known], minlength=size)
    return np.where(np.bincount(index[known], minlength=size) > 0, sums, -1.0)
