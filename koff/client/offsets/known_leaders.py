"""The leaders of partitions, as the metadata of several brokers gives them. Pure: no I/O, no clock.

A broker that is cut off from the others returns old metadata. Each change of leader has a new leader epoch,
so an older epoch replaces nothing at first. Nor does another topic id: which of two ids is newer cannot be
seen. Once two brokers agree, they are believed: the topic was created again, or the cluster was restored.
The newest response counts for the brokers' addresses.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koff.client.cluster_conf import TopicPartition
from koff.client.offsets.messages import MetadataResponse, TopicMetadata
from koff.client.wire.pool import Address
from koff.proto.primitives import ZERO_UUID
from koff.proto.requests import error_name

FETCH_AGAIN_S = 1.0
"""The metadata of a topic is not fetched again before so much time has passed."""
BELIEVE_OLDER_S = 60.0
"""Older epochs may count if no broker has confirmed newer ones for so long: a cluster may be restored."""
UNUSED_S = 600.0
"""A topic that is not requested for so long is forgotten."""
UNSEEN_S = 60.0
"""A broker that no metadata has named for so long is forgotten."""
NO_LEADER = -1


@dataclass(slots=True)
class _Topic:
    requested_s: float
    fetched_s: float = float("-inf")
    confirmed_s: float = float("-inf")
    """When metadata last contradicted nothing."""
    contradicted_by: set[Address] = field(default_factory=set)
    """The brokers whose metadata has had an older epoch or another topic id since then."""
    other_id: str = ""
    """The topic id in their metadata."""
    topic_id: str = ZERO_UUID
    leaders: tuple[int, ...] = ()
    """The leader of each partition."""
    epochs: tuple[int, ...] = ()
    error: str = ""
    doubted: set[int] = field(default_factory=set)
    """The leaders that did not respond, or that said that they lead no more, since the last response."""


class KnownLeaders:
    """The brokers and the leaders. For several threads, but `add` for one at a time."""

    def __init__(self) -> None:
        self.brokers: Mapping[int, Address] = {}
        self._seen_s: dict[int, float] = {}
        self._topics: dict[str, _Topic] = {}

    def find_leaders(self, topic: str) -> tuple[int, ...]:
        """The id of each partition's leader, -1 if there is none. Empty if the topic is unknown."""
        known = self._topics.get(topic)
        return () if known is None else known.leaders

    def find_addresses(self, topic: str) -> dict[int, tuple[Address, int]]:
        """By partition, the address of its leader and the leader epoch. Without doubted leaders."""
        known = self._topics.get(topic)
        if known is None:
            return {}
        brokers, doubted = self.brokers, known.doubted
        return {
            partition: (brokers[leader], epoch)
            for partition, (leader, epoch) in enumerate(zip(known.leaders, known.epochs, strict=False))
            if leader in brokers and leader not in doubted
        }

    def split_by_address(
        self, partitions: Mapping[str, Iterable[TopicPartition]]
    ) -> tuple[dict[Address, list[TopicPartition]], list[TopicPartition], set[str]]:
        """The partitions, which are given by topic, by their leader's address; those without one; and the
        topics in which a leader is doubted."""
        parts: dict[Address, list[TopicPartition]] = defaultdict(list)
        unknown: list[TopicPartition] = []
        doubted_topics: set[str] = set()
        brokers = self.brokers
        for topic, of_topic in partitions.items():
            known = self._topics.get(topic)
            leaders, doubted = ((), set()) if known is None else (known.leaders, known.doubted)
            for at in of_topic:
                leader = leaders[at.partition] if 0 <= at.partition < len(leaders) else NO_LEADER
                address = brokers.get(leader)
                if address is not None:
                    parts[address].append(at)
                else:
                    unknown.append(at)
                if doubted and leader in doubted:
                    doubted_topics.add(topic)
        return parts, unknown, doubted_topics

    def explain_unknown(self, topic: str, partition: int) -> str:
        """Why no leader of the partition is known, as Kafka names it."""
        known = self._topics.get(topic)
        if known is not None and known.error:
            return known.error
        if known is not None and known.leaders and not 0 <= partition < len(known.leaders):
            return "UNKNOWN_TOPIC_OR_PARTITION"
        return "LEADER_NOT_AVAILABLE"

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """The leaders of these partitions did not respond, or are not the leaders any more."""
        for topic, number in partitions:
            known = self._topics.get(topic)
            if known is not None and 0 <= number < len(known.leaders):
                known.doubted.add(known.leaders[number])

    def note_requested(self, topics: Iterable[str], now_s: float) -> None:
        """The offsets of these topics are requested."""
        for name in topics:
            if (known := self._topics.get(name)) is None:
                known = self._topics[name] = _Topic(now_s)
            known.requested_s = now_s

    def find_due(self, topics: Iterable[str], now_s: float) -> list[str]:
        """Those of the topics whose metadata was not fetched a moment ago."""
        known = ((name, self._topics.get(name)) for name in topics)
        return [name for name, each in known if each is None or now_s >= each.fetched_s + FETCH_AGAIN_S]

    def forget_unused(self, now_s: float) -> None:
        """Forgets the topics that are not requested any more."""
        for name, known in self._topics.copy().items():  # a copy: other threads add topics
            if now_s >= known.requested_s + UNUSED_S:
                self._topics.pop(name, None)

    def list_topics(self) -> list[str]:
        """The topics that are requested, in the order in which they were fetched last."""
        topics = self._topics.copy()
        return sorted(topics, key=lambda name: topics[name].fetched_s)

    def add(self, metadata: MetadataResponse, source: Address, now_s: float) -> None:
        """Adds the response of the broker at `source`."""
        # A broker that is cut off does not name the brokers that were added since then.
        self._seen_s |= {broker.id: now_s for broker in metadata.brokers}
        brokers = {
            number: address
            for number, address in self.brokers.items()
            if now_s < self._seen_s[number] + UNSEEN_S
        }
        self.brokers = brokers | {broker.id: (broker.host, broker.port) for broker in metadata.brokers}
        self._seen_s = {number: self._seen_s[number] for number in self.brokers}
        # One broker may be wrong, unless it is the only one.
        needed = min(2, len(self.brokers))
        for topic in metadata.topics:
            # A topic may have been forgotten meanwhile.
            if topic.name is not None and (known := self._topics.get(topic.name)) is not None:
                _add_topic(known, topic, source, needed, now_s)


def _add_topic(known: _Topic, topic: TopicMetadata, source: Address, needed: int, now_s: float) -> None:
    """Replaces the leaders. What contradicts them counts once `needed` brokers agree on it."""
    known.fetched_s, known.doubted = now_s, set()
    known.error = error_name(topic.error_code)
    if topic.error_code:  # for example, a broker does not know a new topic yet: earlier leaders stay
        return
    # Kafka numbers the partitions from 0 without gaps.
    partitions = sorted(topic.partitions, key=lambda each: each.partition)
    if [each.partition for each in partitions] != list(range(len(partitions))):
        known.error = "INVALID_PARTITIONS"
        return
    leaders = [each.leader for each in partitions]
    epochs = [each.leader_epoch for each in partitions]
    is_other = bool(known.leaders) and topic.topic_id != known.topic_id
    is_older = len(epochs) < len(known.epochs) or any(
        epoch < before for epoch, before in zip(epochs, known.epochs, strict=False)
    )
    if is_other or is_older:
        if topic.topic_id != known.other_id:
            known.other_id, known.contradicted_by = topic.topic_id, set()
        known.contradicted_by.add(source)
        is_due = is_other or now_s >= known.confirmed_s + BELIEVE_OLDER_S
        if len(known.contradicted_by) < needed or not is_due:
            if is_other:
                return
            leaders, epochs = _merge_newer(known, leaders, epochs)
            known.leaders, known.epochs = tuple(leaders), tuple(epochs)
            return
    known.confirmed_s, known.contradicted_by, known.other_id = now_s, set(), ""
    known.topic_id = topic.topic_id
    # Both are replaced, never changed: other threads read them.
    known.leaders, known.epochs = tuple(leaders), tuple(epochs)


def _merge_newer(known: _Topic, leaders: list[int], epochs: list[int]) -> tuple[list[int], list[int]]:
    """For each partition the leader with the newer epoch."""
    for partition, before in enumerate(known.epochs):
        if partition >= len(epochs):
            leaders.append(known.leaders[partition])
            epochs.append(before)
        elif epochs[partition] < before:
            leaders[partition], epochs[partition] = known.leaders[partition], before
    return leaders, epochs
