"""A Kafka of three brokers behind fault proxies, with groups whose lags the test knows at every moment."""

import itertools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from koff.kafkatest import LocalKafka, wait_until
from koff.records.placement import group_partition
from tests.fault_proxy import FaultProxy, fault_proxies

Row = tuple[str, str, int]
"""Group, topic, partition."""
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50
TOPICS = {"orders": 6, "clicks": 3}
LEADERLESS = -1
"""Stands for a broker: the leader of a partition that has none."""


class Timeline:
    """A number that changes, and when each of its values was true at the earliest and at the latest."""

    def __init__(self, value: int) -> None:
        self._values = [(value, 0.0, float("inf"))]

    @property
    def newest(self) -> int:
        """The newest value."""
        return self._values[-1][0]

    def begin(self, value: int) -> None:
        """The number may have this value from now on."""
        self._values.append((value, time.monotonic(), float("inf")))

    def finish(self) -> None:
        """The number has its newest value from now on, and no other."""
        now = time.monotonic()
        earlier = [(value, since, min(until, now)) for value, since, until in self._values[:-1]]
        self._values = earlier + self._values[-1:]

    def between(self, since_s: float, until_s: float) -> set[int]:
        """All values that the number may have had at some moment between these two."""
        return {value for value, begin, end in self._values if begin <= until_s and end >= since_s}


@dataclass
class FaultCluster:
    """The cluster, and the truth about it.

    koff is given `kafka.proxied_bootstrap`. Everything else here uses the direct listeners, so a fault of a
    proxy is a fault between koff and that broker only.
    """

    kafka: LocalKafka
    proxies: list[FaultProxy]
    ends: dict[tuple[str, int], Timeline] = field(default_factory=dict)
    committed: dict[Row, Timeline] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)

    def proxy(self, broker: int) -> FaultProxy:
        """The proxy before a broker, by the broker's id."""
        return self.proxies[broker - 1]

    def set_up(self) -> None:
        """Makes topics, and groups at each coordinator: one for each leader's partitions, and one for all."""
        for topic, partitions in TOPICS.items():
            self.kafka.create_topic(topic, partitions, replicas=3)
        self.ends = {(topic, p): Timeline(0) for topic, count in TOPICS.items() for p in range(count)}
        self._commit("first", {("clicks", 0): 0})  # Kafka makes the offsets topic
        self.kafka.admin.delete_consumer_groups(["first"])["first"].result(60)
        self.restore()  # the leaders are the preferred ones from here on
        brokers = [node.id for node in self.kafka.nodes]
        for coordinator, leader in itertools.product(brokers, (*brokers, None)):
            group = self._find_name(f"at-{coordinator}-led-by-{leader or 'all'}", coordinator)
            for topic, partition in self.ends:
                if leader in (None, self.leaders[topic, partition]):
                    self.committed[group, topic, partition] = Timeline(0)
        self.advance()

    def advance(self) -> None:
        """Writes records to all partitions, and commits in all groups that have a coordinator.

        Each lag becomes a new one.
        """
        producer = self.kafka.producer({"acks": "all"})
        for number, ((topic, partition), end) in enumerate(self.ends.items()):
            for _ in range(10 + number):
                end.begin(end.newest + 1)
                producer.produce(topic, b"x", partition=partition)
        assert producer.flush(60) == 0
        for end in self.ends.values():
            end.finish()
        groups = {row[0] for row in self.committed if self.coordinator(row[0]) != LEADERLESS}
        moving = {row: offset for row, offset in self.committed.items() if row[0] in groups}
        for number, offset in enumerate(moving.values()):
            offset.begin(offset.newest + 1 + number % 5)
        for group in sorted(groups):
            self._commit(group, {row[1:]: offset.newest for row, offset in moving.items() if row[0] == group})
        for offset in moving.values():
            offset.finish()

    def lags(self, *, without: int | None = None) -> dict[Row, int]:
        """The lag of each row, but not of rows that depend on broker `without` (or are `LEADERLESS`)."""
        return {
            row: self.ends[row[1:]].newest - at.newest
            for row, at in self.committed.items()
            if without not in self.dependencies(row)
        }

    def totals(self, *, without: int | None = None) -> dict[str, int]:
        """The sum of each group's lags, but not of groups of which a row depends on broker `without`."""
        known, sums = self.lags(without=without), dict[str, int]()
        for row, lag in known.items():
            sums[row[0]] = sums.get(row[0], 0) + lag
        partial = {row[0] for row in self.committed.keys() - known.keys()}
        return {group: total for group, total in sums.items() if group not in partial}

    def dependencies(self, row: Row) -> set[int]:
        """The brokers that koff needs for a row: the leader of its partition, and that of the group's log."""
        return {self.coordinator(row[0]), self.leaders[row[1:]]}

    def coordinator(self, group: str) -> int:
        """The broker that leads the group's partition of the offsets topic; it may be `LEADERLESS`."""
        return self.leaders[OFFSETS_TOPIC, group_partition(group, OFFSETS_PARTITIONS)]

    def may_be(self, row: Row, lag: int, *, since_s: float, until_s: float) -> bool:
        """Whether the lag is that of some end offset and some commit of the time between these two."""
        if row not in self.committed:
            return False
        ends = self.ends[row[1:]].between(since_s, until_s)
        offsets = self.committed[row].between(since_s, until_s)
        return any(lag == max(0, end - offset) for end in ends for offset in offsets)

    def read_leaders(self) -> None:
        """Takes the leaders of this moment as those that rows depend on."""
        for topic in (*TOPICS, OFFSETS_TOPIC):
            found = wait_until(partial(self.kafka.leaders, topic), what=f"the leaders of {topic}")
            self.leaders |= {(topic, partition): leader for partition, leader in found.items()}

    def wait_until_led_by_others(self, broker: int, *, leaderless: Collection[str] = ()) -> None:
        """Waits until the broker leads no partition, and reads the new leaders.

        Partitions of the topics in `leaderless` may be left without a leader.
        """

        def others_lead() -> bool:
            self.read_leaders()
            unled = {topic for (topic, _), leader in self.leaders.items() if leader == LEADERLESS}
            return broker not in self.leaders.values() and unled <= set(leaderless)

        wait_until(others_lead, timeout_s=60, what=f"other leaders than broker {broker}", every_s=0.5)

    @contextmanager
    def new_topic(self, partitions: int) -> Iterator[str]:
        """A topic that is deleted at the end, with all commits in it."""
        topic = self.kafka.create_topic(partitions=partitions, replicas=3)
        try:
            yield topic
        finally:
            self.kafka.admin.delete_topics([topic])[topic].result(60)

    def restore(self) -> None:
        """Ends all faults, and waits until all replicas are in sync and the preferred ones lead."""
        for proxy in self.proxies:
            proxy.resume()
        self.kafka.resume()
        for node in self.kafka.nodes:
            if not node.running:
                node.start()
        self.kafka.wait_until_up()

        def is_whole() -> bool:
            with _direct_admin(self.kafka) as admin:
                listed = admin.list_topics(timeout=10).topics
                parts = [(t, p) for t in (*TOPICS, OFFSETS_TOPIC) for p in listed[t].partitions.values()]
                wrong = [TopicPartition(t, p.id) for t, p in parts if p.leader != p.replicas[0]]
                if wrong:
                    admin.elect_leaders(ElectionType.PREFERRED, wrong).result(60)
                return not wrong and all(len(p.isrs) == len(p.replicas) for _, p in parts)

        wait_until(_retrying(is_whole), timeout_s=90, what="all replicas in sync", every_s=0.5)
        self.read_leaders()

    def _find_name(self, prefix: str, coordinator: int) -> str:
        """A name of a group that this broker coordinates."""
        names = (f"{prefix}-{number}" for number in itertools.count())
        return next(name for name in names if self.coordinator(name) == coordinator)

    def _commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        at = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]

        def is_committed() -> bool:
            with _direct_admin(self.kafka) as admin:
                request = [ConsumerGroupTopicPartitions(group, at)]
                futures = admin.alter_consumer_group_offsets(request, request_timeout=5)
                return all(p.error is None for p in futures[group].result(60).topic_partitions)

        wait_until(_retrying(is_committed), timeout_s=60, what=f"the commit of {group}")


@contextmanager
def _direct_admin(kafka: LocalKafka) -> Iterator[AdminClient]:
    """A new client: an older one may wait for a broker that is paused."""
    yield AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


def _retrying(attempt: Callable[[], bool]) -> Callable[[], bool]:
    """False where an attempt fails or is late: brokers and coordinators may be moving."""

    def succeeds() -> bool:
        try:
            return attempt()
        except (KafkaException, KeyError, TimeoutError):
            return False

    return succeeds


@contextmanager
def fault_cluster(**config: str) -> Iterator[FaultCluster]:
    """Three brokers, each behind a proxy, with topics and groups over all of them.

    `config` is for server.properties, with "_" for ".".
    """
    with fault_proxies(3) as proxies:
        ports = [proxy.port for proxy in proxies]
        properties = {name.replace("_", "."): value for name, value in config.items()}
        properties["offsets.topic.num.partitions"] = str(OFFSETS_PARTITIONS)
        with LocalKafka(brokers=3, proxies=ports, config=properties) as kafka:
            for proxy, node in zip(proxies, kafka.nodes, strict=True):
                proxy.target = node.ports.proxied
            cluster = FaultCluster(kafka, proxies)
            cluster.set_up()
            yield cluster
