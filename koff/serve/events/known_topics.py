"""What was last known of the topics of a cluster: which were deleted, or created again, under a group."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.serve.events.known import Ints, KnownShard, Places
from koff.tracker.topic_partitions import PartitionSnapshot
from koff.view.cluster_view import ClusterView, TopicFacts

LEFT_MS, MOST_LEFT = 120_000, 10_000
"""For so long, and so many at most, a topic is remembered to which a group has no commits any more. Kafka
deletes commits together with their topic, and a list of topics comes later."""
AGREEING = 2
"""A topic is deleted once so many lists in a row do not have it: one broker may have an old list."""
GroupTopic = tuple[str, str]


class ChangedTopics(NamedTuple):
    """Groups with the topics that were deleted, or created again.

    `new_logs` is a mask of the partition numbers of topics that were created again.
    """

    deleted: list[GroupTopic]
    recreated: list[GroupTopic]
    new_logs: NDArray[np.bool_]


class KnownTopics:
    """Follows the topics of one cluster."""

    def __init__(self) -> None:
        self._places = Places([], [])
        self._matched: dict[int, Ints | None] = {}
        self._ids = np.zeros(0, np.int64)
        """The last known topic id of each partition number, 0 if there was none."""
        self._listed: Mapping[str, TopicFacts] = {}
        self._missing: dict[str, int] = {}
        """Topics that the last lists do not have, with the count of these lists."""
        self._left: dict[GroupTopic, int] = {}

    def follow_places(self, partitions: PartitionSnapshot) -> Places:
        """Takes over the partition numbers of a snapshot, and returns them."""
        places, before = Places(partitions.topic, partitions.partition), self._places
        self._matched.clear()
        if places == before:
            return before
        self._places = places
        ids, moved = np.zeros(len(places.topics), np.int64), self.match_places(before)
        if moved is None:
            ids[: len(self._ids)] = self._ids
        else:
            ids[moved[moved >= 0]] = self._ids[moved >= 0]
        self._ids = ids
        return places

    def match_places(self, before: Places) -> Ints | None:
        """`before.match` of the present places. It is computed once for all shards."""
        if before is self._places:
            return None
        if id(before) not in self._matched:
            self._matched[id(before)] = before.match(self._places)
        return self._matched[id(before)]

    def compare(
        self, view: ClusterView, shards: Mapping[int, KnownShard], left: Iterable[GroupTopic]
    ) -> ChangedTopics:
        """What has changed. `left` are topics to which a group has no commits any more."""
        now_ms = view.snapshot.now_ms or 0
        self._left = {pair: at for pair, at in self._left.items() if now_ms - at < LEFT_MS}
        for pair in left:
            if len(self._left) < MOST_LEFT:
                self._left[pair] = now_ms
        new_logs = self._find_new_logs(view.snapshot.partitions)
        recreated = {self._places.topics[number] for number in np.flatnonzero(new_logs).tolist()}
        deleted = self._find_deleted(view)
        return ChangedTopics(
            self._find_groups(deleted, shards), self._find_groups(recreated, shards), new_logs
        )

    def _find_new_logs(self, partitions: PartitionSnapshot) -> NDArray[np.bool_]:
        ids = partitions.topic_id
        changed: NDArray[np.bool_] = (ids != 0) & (self._ids != 0) & (ids != self._ids)
        self._ids = np.where(ids != 0, ids, self._ids)
        return changed

    def _find_deleted(self, view: ClusterView) -> set[str]:
        topics = view.facts.topics
        if view.facts.brokers is None or topics is self._listed:
            return set()
        candidates = {*self._missing, *(self._listed.keys() - topics.keys())}
        self._listed = topics
        counts = {
            # A topic that koff may not describe is missing, too: it counts from when koff may.
            topic: 0 if topic in view.facts.denied else self._missing.get(topic, 0) + 1
            for topic in candidates
            if topic not in topics
        }
        self._missing = {topic: count for topic, count in counts.items() if count < AGREEING}
        return {topic for topic, count in counts.items() if count >= AGREEING}

    def _find_groups(self, topics: set[str], shards: Mapping[int, KnownShard]) -> list[GroupTopic]:
        """The groups that have commits to these topics, or had them a while ago."""
        if not topics:
            return []
        pairs = {pair for pair in self._left if pair[1] in topics}
        for pair in pairs:
            del self._left[pair]
        numbers = np.array([topic in topics for topic in self._places.topics], np.bool_)
        for shard in shards.values():
            if self.has_numbers(shard):
                pairs.update(shard.list_topics(np.flatnonzero(numbers[shard.partition]).tolist()))
        return sorted(pairs)

    def has_numbers(self, shard: KnownShard) -> bool:
        """Whether the shard has the present partition numbers: it was current in the last snapshot."""
        return shard.places is self._places
