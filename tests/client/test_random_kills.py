"""Leaders, coordinators, ZooKeeper and whole clusters are killed at random moments, under all traffic.

Nothing that was acknowledged is lost, and nothing is left unread. A merged stream repeats nothing. A group
repeats only what another assignment, or another claim, reads again.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from koff.client import BrokerConf, ClusterConf, ConsumerConf, Message, OffsetCoordinatorConf, dial, merge
from koff.client.broker.interfaces import OffsetCoordinator
from koff.client.multicluster import CommitError, Reader, ReaderConf, ReadErrors
from koff.client.zookeeper import ConsumerGroupConf
from koff.errors import Closed, ConnectError
from koff.kafkatest import LocalKafka, LocalZooKeeper, wait_until
from koff.kafkatest.node import KafkaNode
from koff.records.placement import group_partition
from tests.client import numbered_messages
from tests.zookeeper_workers import Record, Worker, stop_all

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

PARTITIONS = 3
GROUP, ALONE = "readers", "alone"
LONGEST_S = 3.0
"""How long servers are down, and how long there is between two kills, at most."""
KINDS = ("leader", "coordinator", "zookeeper", "cluster")


class GroupReader:
    """A member of a Kafka group, which commits after each read."""

    def __init__(self, cluster: ClusterConf, topic: str) -> None:
        conf = ReaderConf(topic, group_id=GROUP)
        self.read: dict[tuple[int, int], list[Message]] = defaultdict(list)
        """By partition and number of the assignment."""
        self._reader = Reader({"c": cluster}, conf)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._reader.close()
        self._thread.join(60)

    def _run(self) -> None:
        while True:
            try:
                messages = self._reader.fetch_message()
                for message in messages:
                    self.read[message.partition, message.assignment].append(message)
                self._reader.commit_messages(*messages, timeout_s=10)
            except (CommitError, ReadErrors):
                continue
            except Closed:
                return

    def check_order(self) -> None:
        """Within an assignment, nothing is repeated."""
        for messages in self.read.values():
            offsets = [message.offset for message in messages]
            assert offsets == sorted(set(offsets))


class Committer:
    """Commits 1, 2, 3, ... for a group without members."""

    def __init__(self, coordinator: OffsetCoordinator, topic: str) -> None:
        self.tried = self.acknowledged = 0
        self._coordinator, self._topic = coordinator, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            self.tried += 1
            try:
                self._coordinator.commit(self._topic, 0, self.tried)
            except ConnectError:
                continue
            self.acknowledged = self.tried

    def close(self) -> None:
        self._over.set()
        self._thread.join(120)
        stored, _ = self._coordinator.offset(self._topic, 0)
        assert self.acknowledged <= stored <= self.tried


class Life:
    """A cluster and a ZooKeeper with all kinds of traffic, and who is killed."""

    def __init__(self, kafka: LocalKafka, zookeeper: LocalZooKeeper, dice: random.Random) -> None:
        self.kafka, self.zookeeper, self._dice = kafka, zookeeper, dice
        self.topic = kafka.create_topic(
            partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"}
        )
        self.record, self._pause = Record(), threading.Event()

    @contextmanager
    def go_on(self) -> Iterator[None]:
        """Lets all write and read inside the block; at the end, all is accounted for."""
        cluster = ClusterConf(self.kafka.bootstrap, connect_timeout_s=3.0)
        with ExitStack() as opened:
            opened.callback(stop_all)
            broker = opened.enter_context(dial(self.kafka.bootstrap, BrokerConf(dial_timeout_s=3)))
            consumers = [broker.consumer(ConsumerConf(self.topic, n)) for n in range(PARTITIONS)]
            merged = opened.enter_context(numbered_messages.Reader(merge(*consumers)))
            self.members = [GroupReader(cluster, self.topic) for _ in range(2)]
            for member in self.members:
                opened.callback(member.close)
            conf = ConsumerGroupConf(cluster=cluster, session_timeout_s=3.0, commit_interval_s=0.5)
            workers = [
                Worker("workers", self.topic, self.zookeeper.hosts, conf, self.record) for _ in range(2)
            ]
            committer = Committer(broker.offset_coordinator(OffsetCoordinatorConf(ALONE)), self.topic)
            self.writers = [numbered_messages.Writer(broker, self.topic, n) for n in range(PARTITIONS)]
            with ExitStack() as writing:
                for writer in self.writers:
                    writing.enter_context(writer)
                self.wait_for_progress()
                yield
                self.wait_for_progress()
            self.ends = [broker.offset_latest(self.topic, n) for n in range(PARTITIONS)]
            committer.close()
            wait_until(lambda: self._reached(merged.seen), timeout_s=90, what="the merged stream")
            wait_until(lambda: self._read() >= self._all(), timeout_s=90, what="the group")
            wait_until(lambda: self._handed() >= self._all(), timeout_s=90, what="the group on ZooKeeper")
            trusted = lambda: all(worker.group.session.trusted for worker in workers)  # noqa: E731
            wait_until(trusted, timeout_s=60, what="sessions with ZooKeeper")
            for worker in workers:
                worker.leave()
        assert not merged.errors
        for writer in self.writers:
            numbered_messages.account(writer, merged.seen[writer.partition])
        for member in self.members:
            member.check_order()
        self.record.check_claims(late=1)

    def kill(self, kind: str) -> None:
        """Kills a server of that kind, at a random moment for a random time."""
        self._wait_a_moment()
        if kind == "zookeeper":
            self.zookeeper.kill()
            self._wait_a_moment()
            self.zookeeper.start()
        else:
            victims = self._choose_victims(kind)
            for node in victims:
                node.kill()
            self._wait_a_moment()
            for node in victims:
                node.start()
            self.kafka.wait_until_up()
        self.wait_for_progress()

    def _choose_victims(self, kind: str) -> list[KafkaNode]:
        if kind == "cluster":
            return self._dice.sample(self.kafka.nodes, len(self.kafka.nodes))
        topic, number = self.topic, self._dice.randrange(PARTITIONS)
        if kind == "coordinator":
            topic = "__consumer_offsets"
            number = group_partition(self._dice.choice([GROUP, ALONE]), len(self._leaders(topic)))
        return [self.kafka.nodes[self._leaders(topic)[number] - 1]]

    def _leaders(self, topic: str) -> dict[int, int]:
        def find() -> dict[int, int]:
            leaders = self.kafka.leaders(topic)
            return leaders if min(leaders.values(), default=-1) > 0 else {}

        return wait_until(find, what=f"leaders of {topic}")

    def _wait_a_moment(self) -> None:
        self._pause.wait(self._dice.uniform(0.0, LONGEST_S))

    def wait_for_progress(self) -> None:
        """Until each partition takes messages, and each group reads them."""
        numbered_messages.progress(self.writers)
        for seen in (self._read, self._handed):
            before = len(seen())
            wait_until(partial(self._has_more, seen, before), timeout_s=100, what="messages to flow")

    def _has_more(self, seen: Callable[[], set[Any]], before: int) -> bool:
        return len(seen()) > before + 20

    def _all(self) -> set[tuple[int, int]]:
        return {(n, offset) for n in range(PARTITIONS) for offset in range(self.ends[n])}

    def _reached(self, seen: dict[int, list[Message]]) -> bool:
        return all(seen[n] and seen[n][-1].offset + 1 >= self.ends[n] for n in range(PARTITIONS))

    def _read(self) -> set[tuple[int, int]]:
        lists = [messages for member in self.members for messages in list(member.read.values())]
        return {(message.partition, message.offset) for messages in lists for message in list(messages)}

    def _handed(self) -> set[tuple[int, int]]:
        with self.record.lock:
            return {(each.partition, each.offset) for each in self.record.handed}


def run_kills(more_kafka: Callable[..., LocalKafka], kinds: list[str], seed: int) -> None:
    with LocalZooKeeper() as zookeeper:
        life = Life(more_kafka(brokers=3), zookeeper, random.Random(seed))
        with life.go_on():
            for kind in kinds:
                life.kill(kind)


def test_one_of_each_kind_is_killed(more_kafka):
    run_kills(more_kafka, random.Random(7).sample(KINDS, len(KINDS)), seed=7)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_ten_of_a_kind_are_killed(more_kafka, kind, seed):
    run_kills(more_kafka, [kind] * 10, seed)
