"""The texts of series: labels of rows, topics and groups, kept for as long as these are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.tracker import ShardSnapshot
from koff.tracker.topic_partitions import PartitionSnapshot
from koff.view.cluster_view import ClusterView

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Kept:
    """Which series the limit on series keeps, and how many it has left out."""

    mask: Mask
    left_out: int = 0


@dataclass(slots=True)
class Labels:
    """The texts between the metric's name and the number: `{label="value",...} `.

    `kept` is None if all are kept.
    """

    texts: list[str]
    kept: Kept | None = None

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class ShardLabels:
    """The labels of one shard: of each row (group, topic, partition), topic of a group, and group."""

    layout: object
    rows: Labels
    topics: Labels
    topic_of_row: NDArray[np.int64]
    group_of_topic: NDArray[np.int64]
    groups: Labels


@dataclass(frozen=True, slots=True)
class PartitionLabels:
    """The same for the topic partitions of a snapshot, and for their topics."""

    names: tuple[list[str], list[int]]
    """Topic and partition of each partition number."""
    partitions: Labels
    topics: Labels
    topic_of_partition: NDArray[np.int64]

    def fits(self, partitions: PartitionSnapshot) -> bool:
        """Whether these are the labels of the partitions of that snapshot."""
        # Names are shared by the snapshots of a tracker, so most comparisons are of the same objects.
        return self.names == (partitions.topic, partitions.partition)


class LabelNames(NamedTuple):
    """How the labels of a group, a topic and a partition are called."""

    group: str = "group"
    topic: str = "topic"
    partition: str = "partition"


KOFF_NAMES = LabelNames()


def escape_label(text: str) -> str:
    """The value of a label, escaped as the text format requires."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def join_labels(cluster: str, labels: Mapping[str, str]) -> str:
    """The value of the label `cluster`, escaped, with the other labels behind it: `c",region="eu`."""
    others = (f'",{name}="{escape_label(value)}' for name, value in sorted(labels.items()))
    return escape_label(cluster) + "".join(others)


def derive_labels(group: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The labels that the first pattern found in the name of the group gives: `",team="a`; or "".

    A part that matched nothing gives no label: for Prometheus, an empty label is an absent one.
    """
    for pattern in patterns:
        if found := pattern.search(group):
            labels = found.groupdict().items()
            return "".join(f'",{name}="{escape_label(value)}' for name, value in labels if value)
    return ""


def build_shard_labels(
    cluster: str,
    shard: ShardSnapshot,
    view: ClusterView,
    names: LabelNames = KOFF_NAMES,
) -> ShardLabels:
    """The labels of a shard. `cluster` is from `join_labels`."""
    snapshot = view.snapshot
    groups = [
        f'{{cluster="{cluster}",{names.group}="{escape_label(group.name)}'
        + derive_labels(group.name, view.group_labels)
        for group in shard.groups
    ]
    rows, topics, topic_of_row = [], dict[tuple[int, str], int](), []
    for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
        topic = snapshot.partitions.topic[number]
        topic_of_row.append(topics.setdefault((group, topic), len(topics)))
        at = snapshot.partitions.partition[number]
        rows.append(f'{groups[group]}",{names.topic}="{escape_label(topic)}",{names.partition}="{at}"}} ')
    return ShardLabels(
        shard.layout,
        Labels(rows),
        Labels([f'{groups[g]}",{names.topic}="{escape_label(topic)}"}} ' for g, topic in topics]),
        np.array(topic_of_row, np.int64),
        np.array([g for g, _ in topics], np.int64),
        Labels([f'{group}"}} ' for group in groups]),
    )


def build_partition_labels(
    cluster: str, partitions: PartitionSnapshot, names: LabelNames = KOFF_NAMES
) -> PartitionLabels:
    """The labels of topic partitions. `cluster` is from `join_labels`."""
    topics: list[str] = list(dict.fromkeys(partitions.topic))
    numbers = {topic: number for number, topic in enumerate(topics)}
    of_topics = build_topic_labels(cluster, topics, names)
    topic_of_partition = np.array([numbers[topic] for topic in partitions.topic], np.int64)
    pairs = zip(topic_of_partition.tolist(), partitions.partition, strict=True)
    # Texts end in "} ": without these two characters, another label can follow.
    texts = [f'{of_topics.texts[topic][:-2]},{names.partition}="{at}"}} ' for topic, at in pairs]
    return PartitionLabels(
        (partitions.topic, partitions.partition), Labels(texts), of_topics, topic_of_partition
    )


def build_topic_labels(cluster: str, topics: Iterable[str], names: LabelNames = KOFF_NAMES) -> Labels:
    """The labels of topics. `cluster` is from `join_labels`."""
    return Labels([f'{{cluster="{cluster}",{names.topic}="{escape_label(topic)}"}} ' for topic in topics])
