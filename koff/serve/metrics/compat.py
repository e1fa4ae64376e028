"""The metric families of kminion and kafka_exporter, under their names and labels, with koff's numbers.

- A number that koff does not serve is absent, also where these exporters say 0 or -1.
- Each series has the label `cluster` and the static labels, too.
- docs/migration/ has all families of both, also those that are not here, and why.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from koff.lag import UNKNOWN
from koff.serve.metrics import cluster, group_lags, group_members, group_offsets, topics
from koff.serve.metrics.family import Column, Family, Few
from koff.serve.metrics.labels import Exporter, Mask
from koff.serve.metrics.numbers import (
    CLUSTER,
    LISTED,
    PARTITIONS,
    SHARDS,
    Ints,
    ListedNumbers,
    PartitionNumbers,
    ShardNumbers,
)
from koff.view.cluster_view import ClusterView

# --- Groups ---------------------------------------------------------------------------------------------


@SHARDS.family(("group", "protocol", "protocol_type", "state", "coordinator"), "1")
def kminion_kafka_consumer_group_info(numbers: ShardNumbers) -> Column:
    """1 if the group is stable, else 0."""
    further = (
        [group.protocol for group in numbers.groups],
        [group.protocol_type for group in numbers.groups],
        states := [group.state for group in numbers.groups],
        numbers.find_coordinator(),
    )
    return Column(
        np.array([state == "Stable" for state in states], np.int64), numbers.current_groups, further
    )


@SHARDS.family(("group",), "members")
def kminion_kafka_consumer_group_empty_members(numbers: ShardNumbers) -> Column:
    """As koff_group_members_without_assignment, without the groups that have none."""
    column = group_members.koff_group_members_without_assignment.values(numbers)
    assert isinstance(column, Column)
    return column._replace(known=column.known & (np.asarray(column.numbers) > 0))


@SHARDS.family(("group", "topic"), "members")
def kminion_kafka_consumer_group_topic_members(numbers: ShardNumbers) -> Column:
    """Members of the group that have partitions of the topic."""
    return _count_assigned(numbers, lambda partitions: 1)


@SHARDS.family(("group", "topic"), "partitions")
def kminion_kafka_consumer_group_topic_assigned_partitions(numbers: ShardNumbers) -> Column:
    """Partitions of the topic that are assigned to members of the group."""
    return _count_assigned(numbers, len)


def _count_assigned(numbers: ShardNumbers, count: Callable[[tuple[int, ...]], int]) -> Column:
    """The sums over the members that a topic is assigned to, for topics that the group committed to."""
    ids, sums = numbers.snapshot.topic_names, Counter[tuple[int, str]]()
    for at, group in enumerate(numbers.groups):
        for member in group.members:
            for topic, partitions in member.assigned.items() if member.present else ():
                name = ids.get(topic) if group.assigned_by_id else topic
                if name is not None and partitions:
                    sums[at, name] += count(partitions)
    # The first row of each topic of a group has the name of the topic.
    first = numbers.shard.partition[np.unique(numbers.of_topics, return_index=True)[1]]
    names = [numbers.snapshot.partitions.topic[at] for at in first.tolist()]
    pairs = zip(numbers.group_of_topic.tolist(), names, strict=True)
    counts = np.array([sums[pair] for pair in pairs], np.int64)
    return Column(counts, (counts > 0) & numbers.current_groups[numbers.group_of_topic])


@SHARDS.family(("group", "topic"), "offsets")
def offset_sum(numbers: ShardNumbers) -> Column:
    """Sum of the committed offsets of the group's partitions of the topic."""
    sums, are_whole = _add_up(numbers.of_topics, numbers.committed, len(numbers.group_of_topic))
    return Column(sums, numbers.committed_topics & are_whole)


# --- Topics and the cluster -----------------------------------------------------------------------------


@LISTED.family(("topic", "partition_count", "replication_factor"), "1")
def kminion_kafka_topic_info(numbers: ListedNumbers) -> Column:
    """1 for the number of partitions and of replicas."""
    listed = numbers.facts.topics.values()
    further = [str(topic.partitions) for topic in listed], [str(topic.replicas) for topic in listed]
    return Column(1, np.ones(len(listed), np.bool_), further)


@PARTITIONS.family(("topic",), "offsets")
def kminion_kafka_topic_low_water_mark_sum(numbers: PartitionNumbers) -> Column:
    """Sum of the log start offsets of all partitions of the topic."""
    return _sum_offsets(numbers, np.where(numbers.end >= 0, numbers.partitions.start, UNKNOWN))


@PARTITIONS.family(("topic",), "offsets")
def kminion_kafka_topic_high_water_mark_sum(numbers: PartitionNumbers) -> Column:
    """Sum of the end offsets of all partitions of the topic."""
    return _sum_offsets(numbers, numbers.end)


def _sum_offsets(numbers: PartitionNumbers, offsets: Ints) -> Column:
    """The sum of each topic of which all partitions are known. koff may sample only some of them."""
    listed, names = numbers.facts.topics, dict.fromkeys(numbers.partitions.topic)
    sums, are_whole = _add_up(numbers.of_topics, offsets, len(names))
    sizes = np.array([listed[name].partitions if name in listed else 0 for name in names], np.int64)
    return Column(sums, are_whole & (sizes > 0) & (numbers.count_by_topic(offsets >= 0) == sizes))


def _add_up(index: Ints, offsets: Ints, size: int) -> tuple[Ints, Mask]:
    """The sums of the known offsets by `index`, and which of them fit into 64 bits.

    A client may commit any offset: two commits of the largest one would have a sum of -2.
    """
    known, sums = offsets >= 0, np.zeros(size, np.int64)
    np.add.at(sums, index[known], offsets[known])
    about = np.bincount(index[known], weights=offsets[known], minlength=size)
    return sums, about < 2.0**63


@LISTED.family(("topic",), "bytes")
def kminion_kafka_topic_log_dir_size_total_bytes(numbers: ListedNumbers) -> Column:
    """Sum of koff_topic_log_size_bytes over all brokers."""
    facts, sizes = numbers.facts, Counter[str]()
    for by_topic in facts.log_sizes.values():
        sizes.update(by_topic)
    # Without the size of each broker there is no sum.
    is_whole = bool(facts.log_sizes) and len(facts.log_sizes) == facts.brokers
    known = [is_whole and topic in sizes for topic in facts.topics]
    return Column(np.array([sizes[topic] for topic in facts.topics], np.int64), np.array(known, np.bool_))


@CLUSTER.family(("broker_count",), "1")
def kminion_kafka_cluster_info(view: ClusterView) -> Few:
    """1 for the number of brokers that the cluster lists."""
    return {} if view.facts.brokers is None else {view.facts.brokers: 1}


# --- The families ---------------------------------------------------------------------------------------


def _same(name: str, family: Family[Any], text: str = "") -> Family[Any]:
    """koff's family under another name."""
    return replace(family, name=name, text=text or f"As {family.name}.")


_GROUP, _TOPIC = "kminion_kafka_consumer_group", "kminion_kafka_topic"
_FAMILIES: dict[Exporter, tuple[Family[Any], ...]] = {
    "kminion": (
        kminion_kafka_consumer_group_info,
        _same(f"{_GROUP}_members", group_members.koff_group_members),
        kminion_kafka_consumer_group_empty_members,
        kminion_kafka_consumer_group_topic_members,
        kminion_kafka_consumer_group_topic_assigned_partitions,
        _same(f"{_GROUP}_topic_offset_sum", offset_sum, offset_sum.text),
        _same(f"{_GROUP}_topic_partition_lag", group_lags.koff_group_lag),
        _same(f"{_GROUP}_topic_lag", group_lags.koff_group_topic_lag),
        _same(f"{_GROUP}_offset_commits_total", group_offsets.koff_group_commits_total),
        kminion_kafka_topic_info,
        _same(f"{_TOPIC}_partition_low_water_mark", topics.koff_partition_start_offset),
        _same(f"{_TOPIC}_partition_high_water_mark", topics.koff_partition_end_offset),
        kminion_kafka_topic_low_water_mark_sum,
        kminion_kafka_topic_high_water_mark_sum,
        kminion_kafka_topic_log_dir_size_total_bytes,
        _same("kminion_kafka_broker_log_dir_size_total_bytes", cluster.koff_broker_log_size_bytes),
        kminion_kafka_cluster_info,
    ),
    "kafka_exporter": (
        _same("kafka_consumergroup_current_offset", group_lags.koff_group_committed_offset),
        _same("kafka_consumergroup_current_offset_sum", offset_sum, offset_sum.text),
        _same("kafka_consumergroup_lag", group_lags.koff_group_lag),
        _same("kafka_consumergroup_lag_sum", group_lags.koff_group_topic_lag),
        _same("kafka_consumergroup_members", group_members.koff_group_members),
        _same("kafka_brokers", cluster.koff_brokers),
        _same("kafka_topic_partitions", topics.koff_topic_partitions),
        _same("kafka_topic_partition_current_offset", topics.koff_partition_end_offset),
        _same("kafka_topic_partition_oldest_offset", topics.koff_partition_start_offset),
    ),
}
COMPAT_FAMILIES: dict[str, tuple[Family[Any], ...]] = {
    exporter: tuple(replace(family, exporter=exporter) for family in families)
    for exporter, families in _FAMILIES.items()
}
"""By exporter, the families that it serves and that koff has the numbers of."""
