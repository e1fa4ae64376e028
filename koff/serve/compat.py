"""The metric families of kminion and kafka_exporter, under their names and labels, with koff's numbers.

- A number that koff does not serve is absent, also where these exporters say 0 or -1.
- Each series has the label `cluster` and the static labels, too.
- docs/migration.md has all families of both, also those that are not here, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.serve.families import Family, Kind
from koff.serve.labels import (
    Kept,
    LabelNames,
    Labels,
    Mask,
    PartitionLabels,
    ShardLabels,
    build_partition_labels,
    build_shard_labels,
    build_topic_labels,
    escape_label,
)
from koff.serve.series import (
    LISTED_SERIES,
    PARTITION_SERIES,
    SHARD_SERIES,
    ClusterNumbers,
    PartitionNumbers,
    Series,
    ShardNumbers,
    select_series,
)
from koff.view.cluster_view import ClusterFacts, ClusterView

LABEL_NAMES = {
    "kminion": LabelNames("group_id", "topic_name", "partition_id"),
    "kafka_exporter": LabelNames(group="consumergroup"),
}
"""By exporter, how it calls the labels of groups, topics and partitions."""


class RenamedLabels:
    """The labels of one cluster under an exporter's names. Kept from one scrape to the next."""

    def __init__(self, names: LabelNames) -> None:
        self._names = names
        self._shards: dict[int, ShardLabels] = {}
        self._partitions: PartitionLabels | None = None
        self._listed: tuple[object, Labels] | None = None

    def rename(self, cluster: str, numbers: ClusterNumbers) -> ClusterNumbers:
        """The same numbers with these labels. `cluster` is from `join_labels`."""
        self._shards = {each.number: self._rename_shard(cluster, each) for each in numbers.shards}
        shards = []
        for each in numbers.shards:
            renamed = copy(each)  # shares what was computed already
            renamed.labels = self._shards[each.number]
            shards.append(renamed)
        partitions = copy(numbers.partitions)
        partitions.labels = self._rename_partitions(cluster, numbers.partitions)
        topics = numbers.view.facts.topics
        if self._listed is None or self._listed[0] is not topics:
            self._listed = topics, build_topic_labels(cluster, topics, self._names)
        _copy_kept(numbers.listed, self._listed[1])
        return ClusterNumbers(numbers.view, shards, partitions, self._listed[1])

    def list_labels(self) -> Iterator[Labels]:
        """All labels."""
        for shard in self._shards.values():
            yield from (shard.groups, shard.topics, shard.rows)
        if self._partitions is not None:
            yield from (self._partitions.partitions, self._partitions.topics)
        if self._listed is not None:
            yield self._listed[1]

    def _rename_shard(self, cluster: str, numbers: ShardNumbers) -> ShardLabels:
        own, renamed = numbers.labels, self._shards.get(numbers.number)
        if renamed is None or renamed.layout is not own.layout:
            renamed = build_shard_labels(cluster, numbers.shard, numbers.view, self._names)
        for old, new in (
            (own.groups, renamed.groups),
            (own.topics, renamed.topics),
            (own.rows, renamed.rows),
        ):
            _copy_kept(old, new)
        return renamed

    def _rename_partitions(self, cluster: str, numbers: PartitionNumbers) -> PartitionLabels:
        own, renamed = numbers.labels, self._partitions
        if renamed is None or not renamed.fits(numbers.partitions):
            renamed = self._partitions = build_partition_labels(cluster, numbers.partitions, self._names)
        _copy_kept(own.partitions, renamed.partitions)
        _copy_kept(own.topics, renamed.topics)
        return renamed


def _copy_kept(own: Labels, renamed: Labels) -> None:
    """The limit on series keeps the same of both. Each counts what it leaves out."""
    renamed.kept = None if own.kept is None else Kept(own.kept.mask)


# --- Groups ---------------------------------------------------------------------------------------------


def _group_info(numbers: ShardNumbers) -> Series:
    """1 if the group is stable, else 0."""
    coordinator, groups = numbers.find_coordinator(), numbers.shard.groups
    texts = [
        f'{text[:-2]},protocol="{escape_label(group.protocol)}",'
        f'protocol_type="{escape_label(group.protocol_type)}",'
        f'state="{group.state}",coordinator_id="{coordinator}"}} '
        for text, group in zip(numbers.labels.groups.texts, groups, strict=True)
    ]
    stable = np.array([group.state == "Stable" for group in groups], np.int64)
    return select_series(replace(numbers.labels.groups, texts=texts), stable, numbers.current_groups)


def _committed_sum(numbers: ShardNumbers) -> Series:
    labels = numbers.labels
    sums, are_whole = _add_up(labels.topic_of_row, numbers.committed, len(labels.topics))
    return select_series(labels.topics, sums, numbers.committed_topics & are_whole)


def _topic_members(numbers: ShardNumbers) -> Series:
    return _count_assigned(numbers, lambda partitions: 1)


def _assigned_partitions(numbers: ShardNumbers) -> Series:
    return _count_assigned(numbers, len)


def _count_assigned(numbers: ShardNumbers, count: Callable[[tuple[int, ...]], int]) -> Series:
    """The sums over the members that a topic is assigned to, for topics that the group committed to."""
    labels, shard, ids = numbers.labels, numbers.shard, numbers.snapshot.topic_names
    sums = Counter[tuple[int, str]]()
    for at, group in enumerate(shard.groups):
        for member in group.members:
            for topic, partitions in member.assigned.items() if member.present else ():
                name = ids.get(topic) if group.assigned_by_id else topic
                if name is not None and partitions:
                    sums[at, name] += count(partitions)
    # The first row of each topic of a group has the name of the topic.
    first = shard.partition[np.unique(labels.topic_of_row, return_index=True)[1]]
    names = [numbers.snapshot.partitions.topic[at] for at in first.tolist()]
    counts = np.array(
        [sums[pair] for pair in zip(labels.group_of_topic.tolist(), names, strict=True)], np.int64
    )
    return select_series(labels.topics, counts, (counts > 0) & numbers.current_groups[labels.group_of_topic])


def _empty_members(numbers: ShardNumbers) -> Series:
    texts, counts = SHARD_SERIES["koff_group_members_without_assignment"](numbers)
    series = [(text, count) for text, count in zip(texts, counts, strict=True) if count != "0"]
    return [text for text, _ in series], [count for _, count in series]


# --- Topics and the cluster -----------------------------------------------------------------------------


def _sum_ends(numbers: PartitionNumbers) -> Series:
    return _sum_offsets(numbers, numbers.end)


def _sum_starts(numbers: PartitionNumbers) -> Series:
    return _sum_offsets(numbers, np.where(numbers.end >= 0, numbers.partitions.start, UNKNOWN))


def _sum_offsets(numbers: PartitionNumbers, offsets: NDArray[np.int64]) -> Series:
    """The sum of each topic of which all partitions are known. koff may sample only some of them."""
    labels, topics = numbers.labels, numbers.facts.topics
    sums, are_whole = _add_up(labels.topic_of_partition, offsets, len(labels.topics))
    names = dict.fromkeys(numbers.partitions.topic)
    sizes = np.array([topics[name].partitions if name in topics else 0 for name in names], np.int64)
    are_whole &= (sizes > 0) & (numbers.count_by_topic(offsets >= 0) == sizes)
    return select_series(labels.topics, sums, are_whole)


def _add_up(
    index: NDArray[np.int64], offsets: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], Mask]:
    """The sums of the known offsets by `index`, and which of them fit into 64 bits.

    A client may commit any offset: two commits of the largest one would have a sum of -2.
    """
    known, sums = offsets >= 0, np.zeros(size, np.int64)
    np.add.at(sums, index[known], offsets[known])
    about = np.bincount(index[known], weights=offsets[known], minlength=size)
    return sums, about < 2.0**63


def _topic_info(labels: Labels, facts: ClusterFacts) -> Series:
    texts = [
        f'{text[:-2]},partition_count="{topic.partitions}",replication_factor="{topic.replicas}"}} '
        for text, topic in zip(labels.texts, facts.topics.values(), strict=True)
    ]
    ones = np.ones(len(texts), np.int64)
    return select_series(replace(labels, texts=texts), ones, ones > 0)


def _brokers(cluster: str, view: ClusterView) -> Series:
    brokers = view.facts.brokers
    return ([], []) if brokers is None else ([f'{{cluster="{cluster}"}} '], [str(brokers)])


def _cluster_info(cluster: str, view: ClusterView) -> Series:
    brokers = view.facts.brokers
    return ([], []) if brokers is None else ([f'{{cluster="{cluster}",broker_count="{brokers}"}} '], ["1"])


def _topic_log_sizes(labels: Labels, facts: ClusterFacts) -> Series:
    """The sums over all brokers; none if the sizes of a broker are missing."""
    sizes = Counter[str]()
    for by_topic in facts.log_sizes.values():
        sizes.update(by_topic)
    numbers = np.array([sizes[topic] for topic in facts.topics], np.int64)
    is_whole = bool(facts.log_sizes) and len(facts.log_sizes) == facts.brokers
    known = [is_whole and topic in sizes for topic in facts.topics]
    return select_series(labels, numbers, np.array(known, np.bool_))


def _broker_log_sizes(cluster: str, view: ClusterView) -> Series:
    sizes = sorted(view.facts.log_sizes.items())
    texts = [f'{{cluster="{cluster}",broker_id="{broker}"}} ' for broker, _ in sizes]
    return texts, [str(sum(by_topic.values())) for _, by_topic in sizes]


# --- The families ---------------------------------------------------------------------------------------


def _family(name: str, labels: tuple[str, ...], text: str, kind: Kind = "gauge") -> Family:
    """A family. `labels` are koff's names of its labels: they say what it has a series of."""
    return Family(name, labels, "", text, "", "", kind=kind)


_GROUP, _GROUP_TOPIC, _ROW = ("group",), ("group", "topic"), ("group", "topic", "partition")
_TOPIC, _PARTITION = ("topic",), ("topic", "partition")
FAMILIES: dict[str, tuple[Family, ...]] = {
    "kminion": (
        _family("kminion_kafka_consumer_group_info", _GROUP, "1 if the group is stable, else 0."),
        _family("kminion_kafka_consumer_group_members", _GROUP, "As koff_group_members."),
        _family(
            "kminion_kafka_consumer_group_empty_members",
            _GROUP,
            "As koff_group_members_without_assignment, without the groups that have none.",
        ),
        _family(
            "kminion_kafka_consumer_group_topic_members",
            _GROUP_TOPIC,
            "Members of the group that have partitions of the topic.",
        ),
        _family(
            "kminion_kafka_consumer_group_topic_assigned_partitions",
            _GROUP_TOPIC,
            "Partitions of the topic that are assigned to members of the group.",
        ),
        _family(
            "kminion_kafka_consumer_group_topic_offset_sum",
            _GROUP_TOPIC,
            "Sum of the committed offsets of the group's partitions of the topic.",
        ),
        _family("kminion_kafka_consumer_group_topic_partition_lag", _ROW, "As koff_group_lag."),
        _family("kminion_kafka_consumer_group_topic_lag", _GROUP_TOPIC, "As koff_group_topic_lag."),
        _family(
            "kminion_kafka_consumer_group_offset_commits_total",
            _GROUP,
            "As koff_group_commits_total.",
            kind="counter",
        ),
        _family("kminion_kafka_topic_info", _TOPIC, "1 for the number of partitions and of replicas."),
        _family(
            "kminion_kafka_topic_partition_low_water_mark", _PARTITION, "As koff_partition_start_offset."
        ),
        _family("kminion_kafka_topic_partition_high_water_mark", _PARTITION, "As koff_partition_end_offset."),
        _family(
            "kminion_kafka_topic_low_water_mark_sum",
            _TOPIC,
            "Sum of the log start offsets of all partitions of the topic.",
        ),
        _family(
            "kminion_kafka_topic_high_water_mark_sum",
            _TOPIC,
            "Sum of the end offsets of all partitions of the topic.",
        ),
        _family(
            "kminion_kafka_topic_log_dir_size_total_bytes",
            _TOPIC,
            "Sum of koff_topic_log_size_bytes over all brokers.",
        ),
        _family("kminion_kafka_broker_log_dir_size_total_bytes", (), "As koff_broker_log_size_bytes."),
        _family("kminion_kafka_cluster_info", (), "1 for the number of brokers that the cluster lists."),
    ),
    "kafka_exporter": (
        _family("kafka_consumergroup_current_offset", _ROW, "As koff_group_committed_offset."),
        _family(
            "kafka_consumergroup_current_offset_sum",
            _GROUP_TOPIC,
            "Sum of the committed offsets of the group's partitions of the topic.",
        ),
        _family("kafka_consumergroup_lag", _ROW, "As koff_group_lag."),
        _family("kafka_consumergroup_lag_sum", _GROUP_TOPIC, "As koff_group_topic_lag."),
        _family("kafka_consumergroup_members", _GROUP, "As koff_group_members."),
        _family("kafka_brokers", (), "As koff_brokers."),
        _family("kafka_topic_partitions", _TOPIC, "As koff_topic_partitions."),
        _family("kafka_topic_partition_current_offset", _PARTITION, "As koff_partition_end_offset."),
        _family("kafka_topic_partition_oldest_offset", _PARTITION, "As koff_partition_start_offset."),
    ),
}
"""By exporter, the families that it serves and that koff has the numbers of."""
EXPORTER_OF = {family.name: exporter for exporter, families in FAMILIES.items() for family in families}

COMPAT_SHARD_SERIES: dict[str, Callable[[ShardNumbers], Series]] = {
    "kminion_kafka_consumer_group_info": _group_info,
    "kminion_kafka_consumer_group_members": SHARD_SERIES["koff_group_members"],
    "kminion_kafka_consumer_group_empty_members": _empty_members,
    "kminion_kafka_consumer_group_topic_members": _topic_members,
    "kminion_kafka_consumer_group_topic_assigned_partitions": _assigned_partitions,
    "kminion_kafka_consumer_group_topic_offset_sum": _committed_sum,
    "kminion_kafka_consumer_group_topic_partition_lag": SHARD_SERIES["koff_group_lag"],
    "kminion_kafka_consumer_group_topic_lag": SHARD_SERIES["koff_group_topic_lag"],
    "kminion_kafka_consumer_group_offset_commits_total": SHARD_SERIES["koff_group_commits_total"],
    "kafka_consumergroup_current_offset": SHARD_SERIES["koff_group_committed_offset"],
    "kafka_consumergroup_current_offset_sum": _committed_sum,
    "kafka_consumergroup_lag": SHARD_SERIES["koff_group_lag"],
    "kafka_consumergroup_lag_sum": SHARD_SERIES["koff_group_topic_lag"],
    "kafka_consumergroup_members": SHARD_SERIES["koff_group_members"],
}
COMPAT_PARTITION_SERIES: dict[str, Callable[[PartitionNumbers], Series]] = {
    "kminion_kafka_topic_partition_low_water_mark": PARTITION_SERIES["koff_partition_start_offset"],
    "kminion_kafka_topic_partition_high_water_mark": PARTITION_SERIES["koff_partition_end_offset"],
    "kminion_kafka_topic_low_water_mark_sum": _sum_starts,
    "kminion_kafka_topic_high_water_mark_sum": _sum_ends,
    "kafka_topic_partition_current_offset": PARTITION_SERIES["koff_partition_end_offset"],
    "kafka_topic_partition_oldest_offset": PARTITION_SERIES["koff_partition_start_offset"],
}
COMPAT_LISTED_SERIES: dict[str, Callable[[Labels, ClusterFacts], Series]] = {
    "kminion_kafka_topic_info": _topic_info,
    "kminion_kafka_topic_log_dir_size_total_bytes": _topic_log_sizes,
    "kafka_topic_partitions": LISTED_SERIES["koff_topic_partitions"],
}
COMPAT_CLUSTER_SERIES: dict[str, Callable[[str, ClusterView], Series]] = {
    "kminion_kafka_broker_log_dir_size_total_bytes": _broker_log_sizes,
    "kminion_kafka_cluster_info": _cluster_info,
    "kafka_brokers": _brokers,
}
