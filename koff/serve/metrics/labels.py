"""The texts of series: labels of rows, topics and groups, kept for as long as these are the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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


def escape_label(text: str) -> str:
    """The value of a label, escaped as the text format requires."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def join_labels(view: ClusterView) -> str:
    """The labels of a cluster, without braces: `cluster="c",region="eu"`."""
    labels = [("cluster", view.cluster or ""), *sorted(view.labels.items())]
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in labels)


def derive_labels(group: str, view: ClusterView) -> str:
    """The labels that the view gives to a group: `,team="a"`; or ""."""
    labels = view.find_labels(group).items()
    return "".join(f',{name}="{escape_label(value)}"' for name, value in labels)


class LevelLabels(NamedTuple):
    """The labels by level, and the index by which the finest belong to the coarser ones."""

    by_level: Mapping[Level, Labels]
    of_topics: NDArray[np.int64]
    """For each label of a partition, the number of its topic."""
    group_of_topic: NDArray[np.int64]
    """For each topic of a group, the number of the group."""


def build_shard_labels(cluster: str, shard: ShardSnapshot, view: ClusterView) -> LevelLabels:
    """The labels of the rows of a shard, of the topics of its groups, and of its groups.

    `cluster` is from `join_labels`.
    """
    places = view.snapshot.partitions
    groups = [
        f'{{{cluster},group="{escape_label(group.name)}"{derive_labels(group.name, view)}'
        for group in shard.groups
    ]
    rows, topics, of_topics = [], dict[tuple[int, str], int](), []
    for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
        topic, at = places.topic[number], places.partition[number]
        of_topics.append(topics.setdefault((group, topic), len(topics)))
        rows.append(f'{groups[group]},topic="{escape_label(topic)}",partition="{at}"'.encode())
    by_level: dict[Level, Labels] = {
        "partition": Labels(rows),
        "topic": Labels([f'{groups[g]},topic="{escape_label(topic)}"'.encode() for g, topic in topics]),
        "group": Labels([group.encode() for group in groups]),
    }
    group_of_topic = np.array([g for g, _ in topics], np.int64)
    return LevelLabels(by_level, np.array(of_topics, np.int64), group_of_topic)


def build_partition_labels(cluster: str, partitions: PartitionSnapshot) -> LevelLabels:
    """The labels of topic partitions, and of their topics. `cluster` is from `join_labels`."""
    topics: list[str] = list(dict.fromkeys(partitions.topic))
    numbers = {topic: number for number, topic in enumerate(topics)}
    labels = build_topic_labels(cluster, topics)
    of_topics = [numbers[topic] for topic in partitions.topic]
    pairs = zip(of_topics, partitions.partition, strict=True)
    texts = [b'%s,partition="%d"' % (labels.texts[topic], at) for topic, at in pairs]
    no_groups = np.zeros(0, np.int64)
    return LevelLabels(
        {"partition": Labels(texts), "topic": labels}, np.array(of_topics, np.int64), no_groups
    )


def build_topic_labels(cluster: str, topics: Iterable[str]) -> Labels:
    """The labels of topics. `cluster` is from `join_labels`."""
    return Labels([f'{{{cluster},topic="{escape_label(topic)}"'.encode() for topic in topics])
