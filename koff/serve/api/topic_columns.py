"""The topics of a cluster: those that the cluster lists, and those that groups read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.serve.api.cluster_objects import ReaderTotal, TopicTotal
from koff.serve.api.group_columns import GroupPlace, select_places
from koff.view.cluster_view import ClusterView


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
        self._rates = self._sum_rates(is_known)
        self._slowest = self._find_slowest()

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
                self._find_rate(name, place),
                *self._slowest.get(place, (None, None)),
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

    def _sum_rates(self, is_known: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The sum of the produce rates of each topic, and how many partitions have a rate."""
        rates, size = self._view.snapshot.partitions.produce, len(self._places)
        if rates is None:
            return np.zeros(size), np.zeros(size, np.int64)
        has_rate = is_known & rates.known
        of_topic = self._of_partition[has_rate]
        sums = np.bincount(of_topic, weights=rates.per_s[has_rate], minlength=size)
        return sums, np.bincount(of_topic, minlength=size)

    def _find_rate(self, name: str, place: int) -> float | None:
        facts = self._view.facts.topics.get(name)
        sums, known = self._rates
        return round(float(sums[place]), 3) if facts and known[place] == facts.partitions > 0 else None

    def _find_slowest(self) -> dict[int, tuple[str, int]]:
        """By topic, the group with the largest lag in it. Without topics in which a lag is withheld."""
        snapshot, size = self._view.snapshot, len(self._places)
        slowest, unclear = dict[int, tuple[str, int]](), set[int]()
        for shard in snapshot.shards.values():
            lags, topics = snapshot.lags(shard), self._of_partition[shard.partition]
            is_unclear = shard.is_withheld() | ~shard.summable_groups()[shard.group]
            unclear.update(np.unique(topics[is_unclear]).tolist())
            pairs, of_row = np.unique(shard.group.astype(np.int64) * size + topics, return_inverse=True)
            sums = np.zeros(len(pairs), np.int64)
            np.add.at(sums, of_row[lags.known], lags.published[lags.known])
            # By topic, the pair with the largest sum is the last.
            order = np.lexsort((sums, pairs % size)) if size else np.zeros(0, np.intp)
            topic = pairs[order] % size if size else order
            for at in np.flatnonzero(np.diff(topic, append=-1)).tolist():
                place, lag = int(topic[at]), int(sums[order[at]])
                if lag > slowest.get(place, ("", 0))[1]:
                    slowest[place] = shard.groups[int(pairs[order[at]]) // size].name, lag
        return {place: found for place, found in slowest.items() if place not in unclear}

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
