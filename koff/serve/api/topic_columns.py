"""The topics of a cluster: those that the cluster lists, and those that groups read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koff.serve.api.cluster_objects import ReaderTotal, TopicTotal
from koff.serve.api.group_columns import GroupPlace, select_places
from koff.serve.view import ClusterView


class TopicColumns:
    """The topics of a view, by name."""

    def __init__(self, view: ClusterView) -> None:
        self._view, partitions = view, view.snapshot.partitions
        names = sorted({*view.facts.topics, *_list_read_topics(view)})
        self._places = {name: place for place, name in enumerate(names)}
        of_partition = np.array([self._places.get(topic, -1) for topic in partitions.topic], np.int64)
        is_known = (partitions.end >= 0) & ~partitions.gone & ~view.snapshot.withheld_ends()
        is_known &= (of_partition >= 0) & (np.array(partitions.partition, np.int64) >= 0)
        size = len(names)
        self._known_ends = np.bincount(of_partition[is_known], minlength=size)
        self._end_sums = np.zeros(size, np.int64)
        np.add.at(self._end_sums, of_partition[is_known], partitions.end[is_known])
        self._of_partition = of_partition
        self._readers = self._count_readers()

    @property
    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        return list(self._places)

    def build(self, names: Sequence[str]) -> list[TopicTotal]:
        """These topics, which must be in `names`."""
        places = [(name, self._places[name]) for name in names]
        return [
            TopicTotal(
                name,
                self._view.facts.topics.get(name),
                int(self._readers[place]),
                int(self._end_sums[place]),
                int(self._known_ends[place]),
            )
            for name, place in places
        ]

    def list_readers(self, topic: str) -> list[GroupPlace]:
        """The groups that committed to the topic, by name."""
        if topic not in self._places:
            return []
        place, shards = self._places[topic], self._view.snapshot.shards
        readers = [
            GroupPlace(self._view, number, group)
            for number, shard in shards.items()
            for group in np.unique(shard.group[self._of_partition[shard.partition] == place]).tolist()
        ]
        return sorted(readers, key=lambda reader: reader.name)

    def build_readers(self, topic: str, places: Sequence[GroupPlace]) -> list[ReaderTotal]:
        """These groups with their rows of the topic."""
        if not places:
            return []
        # Without the rows of other topics: a page may have 1000 groups.
        selected = select_places(places, self._of_partition == self._places[topic])
        whole = {
            group.name: bool(is_whole)
            for shard in selected.shards.values()
            for group, is_whole in zip(shard.groups, shard.summable_groups(), strict=True)
        }
        readers = {name: ReaderTotal(name, [], is_whole) for name, is_whole in whole.items()}
        for row in selected.rows():
            if row.topic == topic:
                readers[row.group].rows.append(row)
        return [readers[place.name] for place in places]

    def _count_readers(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        size = len(self._places)
        counts = np.zeros(size, np.int64)
        for shard in self._view.snapshot.shards.values():
            topics = self._of_partition[shard.partition]
            pairs = np.unique(shard.group.astype(np.int64) * size + topics)
            counts += np.bincount(pairs % size, minlength=size) if size else 0
        return counts


def _list_read_topics(view: ClusterView) -> set[str]:
    """The topics of the rows: a partition that is no longer used may still have its offsets."""
    topics = view.snapshot.partitions.topic
    used = [np.unique(shard.partition) for shard in view.snapshot.shards.values()]
    return {topics[number] for number in np.concatenate([np.zeros(0, np.int32), *used]).tolist()}
