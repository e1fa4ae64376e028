"""Which broker leads each partition: what is requested of several brokers is split by it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from koff.client.cluster_conf import TopicPartition
from koff.client.metadata import Metadata, Node
from koff.client.offsets.lister import OffsetLister
from koff.records.topics import OFFSETS_TOPIC

_UNKNOWN_LEADER = -1


class Leaders:
    """The brokers and leaders of the newest list of topics. Any thread may call any method."""

    def __init__(self, lister: OffsetLister) -> None:
        self._lister = lister
        self._leaders: Mapping[str, tuple[int, ...]] = {}
        self.nodes: tuple[Node, ...] = ()
        """The brokers of the newest list."""

    def note(self, metadata: Metadata) -> Mapping[str, tuple[int, ...]]:
        """Notes a list of topics. Returns the leader of each partition, by topic; -1 without one."""
        self.nodes = metadata.brokers
        self._leaders = {
            name: tuple(partition.leader for partition in partitions)
            for name, partitions in metadata.topics.items()
        }
        return self._leaders

    def split_by_leader(self, partitions: Iterable[tuple[str, int]]) -> list[list[TopicPartition]]:
        """The partitions of each leader, as the lister or the newest list of topics knows it."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        leaders: dict[str, tuple[int, ...]] = {}
        for topic, partition in partitions:
            known = leaders.get(topic)
            if known is None:
                known = leaders[topic] = self._find_leaders(topic)
            leader = known[partition] if partition < len(known) else _UNKNOWN_LEADER
            by_leader[leader].append(TopicPartition(topic, partition))
        return list(by_leader.values())

    def _find_leaders(self, topic: str) -> tuple[int, ...]:
        return self._lister.find_leaders(topic) or self._leaders.get(topic, ())

    def split_by_coordinator(self, partitions: Iterable[int], partition_count: int) -> list[frozenset[int]]:
        """These partitions of the offsets topic by coordinator; together if the coordinators are unknown."""
        known = self._leaders.get(OFFSETS_TOPIC, ())
        is_known = len(known) == partition_count
        by_leader: dict[int, set[int]] = defaultdict(set)
        for number in partitions:
            by_leader[known[number] if is_known else _UNKNOWN_LEADER].add(number)
        return [frozenset(numbers) for numbers in by_leader.values()]
