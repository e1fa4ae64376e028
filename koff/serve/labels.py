"""The texts of series: labels of rows, topics and groups, kept for as long as these are the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koff.tracker import ShardSnapshot, Snapshot
from koff.tracker.topic_partitions import PartitionSnapshot


@dataclass(frozen=True, slots=True)
class ShardLabels:
    """The texts between the metric's name and the number, for one shard: `{label="value",...} `.

    One text for each row (group, topic, partition), each topic of a group, and each group.
    """

    layout: object
    rows: list[str]
    topics: list[str]
    topic_of_row: NDArray[np.int64]
    group_of_topic: NDArray[np.int64]
    groups: list[str]


@dataclass(frozen=True, slots=True)
class PartitionLabels:
    """The same for the topic partitions of a snapshot, and for their topics."""

    names: tuple[list[str], list[int]]
    """Topic and partition of each partition number."""
    partitions: list[str]
    topics: list[str]
    topic_of_partition: NDArray[np.int64]

    def fits(self, partitions: PartitionSnapshot) -> bool:
        """Whether these are the labels of the partitions of that snapshot."""
        # Names are shared by the snapshots of a tracker, so most comparisons are of the same objects.
        return self.names == (partitions.topic, partitions.partition)


def escape_label(text: str) -> str:
    """The value of a label, escaped as the text format requires."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def build_shard_labels(cluster: str, shard: ShardSnapshot, snapshot: Snapshot) -> ShardLabels:
    """The labels of a shard. `cluster` is escaped."""
    groups = [f'{{cluster="{cluster}",group="{escape_label(group.name)}' for group in shard.groups]
    rows, topics, topic_of_row = [], dict[tuple[int, str], int](), []
    for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
        topic = snapshot.partitions.topic[number]
        topic_of_row.append(topics.setdefault((group, topic), len(topics)))
        partition = snapshot.partitions.partition[number]
        rows.append(f'{groups[group]}",topic="{escape_label(topic)}",partition="{partition}"}} ')
    return ShardLabels(
        shard.layout,
        rows,
        [f'{groups[group]}",topic="{escape_label(topic)}"}} ' for group, topic in topics],
        np.array(topic_of_row, np.int64),
        np.array([group for group, _ in topics], np.int64),
        [f'{group}"}} ' for group in groups],
    )


def build_partition_labels(cluster: str, partitions: PartitionSnapshot) -> PartitionLabels:
    """The labels of topic partitions. `cluster` is escaped."""
    names: list[str] = list(dict.fromkeys(partitions.topic))
    numbers = {topic: number for number, topic in enumerate(names)}
    topics = [f'{{cluster="{cluster}",topic="{escape_label(topic)}' for topic in names]
    topic_of_partition = [numbers[topic] for topic in partitions.topic]
    pairs = zip(topic_of_partition, partitions.partition, strict=True)
    return PartitionLabels(
        (partitions.topic, partitions.partition),
        [f'{topics[topic]}",partition="{partition}"}} ' for topic, partition in pairs],
        [f'{topic}"}} ' for topic in topics],
        np.array(topic_of_partition, np.int64),
    )
