"""The texts of series: labels of rows, topics and groups, kept for as long as these are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from koff.tracker import ShardSnapshot
from koff.tracker.topic_partitions import PartitionSnapshot
from koff.view.cluster_view import ClusterView

Mask = NDArray[np.bool_]
Level = Literal["partition", "topic", "group", "cluster"]
"""What a family has a series of, in the words of `granularity`. Families of a cluster are always served."""
Exporter = Literal["koff", "kminion", "kafka_exporter"]

LABEL_NAMES: dict[Exporter, dict[str, str]] = {
    "koff": {},
    "kminion": {
        "group": "group_id",
        "topic": "topic_name",
        "partition": "partition_id",
        "coordinator": "coordinator_id",
        "broker": "broker_id",
    },
    "kafka_exporter": {"group": "consumergroup"},
}
"""By exporter, how it calls koff's labels. Names that are not here are the same."""


@dataclass(slots=True)
class Labels:
    """The bytes after the metric's name, without the brace at the end: `{label="value",...`."""

    texts: list[bytes]
    kept: Mask | None = None
    """Which series the limit on series keeps. None: all."""
    left_out: int = 0
    """How many series the limit has left out."""
    _renamed: dict[Exporter, list[bytes]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def rename(self, exporter: Exporter) -> list[bytes]:
        """The texts with the exporter's names of the labels."""
        if exporter == "koff":
            return self.texts
        if exporter not in self._renamed:
            texts = self.texts
            for name, renamed in LABEL_NAMES[exporter].items():
                # A value cannot have this text: in values, a quote has a backslash in front of it.
                old, new = f',{name}="'.encode(), f',{renamed}="'.encode()
                texts = [text.replace(old, new, 1) for text in texts]
            self._renamed[exporter] = texts
        return self._renamed[exporter]


@dataclass(frozen=True, slots=True)
class ShardLabels:
    """The labels of one shard: of each row (group, topic, partition), topic of a group, and group."""

    layout: object
    by_level: Mapping[Level, Labels]
    topic_of_row: NDArray[np.int64]
    group_of_topic: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionLabels:
    """The same for the topic partitions of a snapshot, and for their topics."""

    names: tuple[list[str], list[int]]
    """Topic and partition of each partition number."""
    by_level: Mapping[Level, Labels]
    topic_of_partition: NDArray[np.int64]

    def fits(self, partitions: PartitionSnapshot) -> bool:
        """Whether these are the labels of the partitions of that snapshot."""
        # Names are shared by the snapshots of a tracker, so most comparisons are of the same objects.
        return self.names == (partitions.topic, partitions.partition)


def escape_label(text: str) -> str:
    """The value of a label, escaped as the text format requires."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def join_labels(view: ClusterView) -> str:
    """The labels of a cluster, without braces: `cluster="c",region="eu"`."""
    labels = [("cluster", view.cluster or ""), *sorted(view.labels.items())]
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in labels)


def derive_labels(group: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The labels that the first pattern found in the name of the group gives: `,team="a"`; or "".

    A part that matched nothing gives no label: for Prometheus, an empty label is an absent one.
    """
    for pattern in patterns:
        if found := pattern.search(group):
            labels = found.groupdict().items()
            return "".join(f',{name}="{escape_label(value)}"' for name, value in labels if value)
    return ""


def build_shard_labels(cluster: str, shard: ShardSnapshot, view: ClusterView) -> ShardLabels:
    """The labels of a shard. `cluster` is from `join_labels`."""
    places = view.snapshot.partitions
    groups = [
        f'{{{cluster},group="{escape_label(group.name)}"{derive_labels(group.name, view.group_labels)}'
        for group in shard.groups
    ]
    rows, topics, topic_of_row = [], dict[tuple[int, str], int](), []
    for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
        topic, at = places.topic[number], places.partition[number]
        topic_of_row.append(topics.setdefault((group, topic), len(topics)))
        rows.append(f'{groups[group]},topic="{escape_label(topic)}",partition="{at}"'.encode())
    return ShardLabels(
        shard.layout,
        {
            "partition": Labels(rows),
            "topic": Labels([f'{groups[g]},topic="{escape_label(topic)}"'.encode() for g, topic in topics]),
            "group": Labels([group.encode() for group in groups]),
        },
        np.array(topic_of_row, np.int64),
        np.array([g for g, _ in topics], np.int64),
    )


def build_partition_labels(cluster: str, partitions: PartitionSnapshot) -> PartitionLabels:
    """The labels of topic partitions. `cluster` is from `join_labels`."""
    topics: list[str] = list(dict.fromkeys(partitions.topic))
    numbers = {topic: number for number, topic in enumerate(topics)}
    of_topics = build_topic_labels(cluster, topics)
    topic_of_partition = np.array([numbers[topic] for topic in partitions.topic], np.int64)
    pairs = zip(topic_of_partition.tolist(), partitions.partition, strict=True)
    texts = [b'%s,partition="%d"' % (of_topics.texts[topic], at) for topic, at in pairs]
    names = (partitions.topic, partitions.partition)
    return PartitionLabels(names, {"partition": Labels(texts), "topic": of_topics}, topic_of_partition)


def build_topic_labels(cluster: str, topics: Iterable[str]) -> Labels:
    """The labels of topics. `cluster` is from `join_labels`."""
    return Labels([f'{{{cluster},topic="{escape_label(topic)}"'.encode() for topic in topics])
