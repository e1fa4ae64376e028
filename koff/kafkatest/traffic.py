"""Live traffic for a Kafka under observation: a steady producer, and consumer groups of several kinds."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException

from koff.kafkatest.kafka_cluster import KafkaCluster

_TICK_S = 0.05
_COMMIT_S = 1.0
_MAX_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class TrafficGroup:
    """A consumer group: what it reads, with how many members, and how fast."""

    name: str
    topics: Sequence[str]
    members: int = 1
    protocol: str = "classic"  # librdkafka's group.protocol; "consumer" is KIP-848's
    pace: float | None = None  # the share of the produced messages that the group reads; None: all
    leaves_after: int | None = None  # how many messages the group reads before it leaves; None: it stays
    stands_at: int | None = None  # a partition, of each topic, in which the group stays at its first commit
    about: str = ""


@dataclass(slots=True)
class Control:
    """What the members of a group are to do from now on. Any thread may set it.

    `is_away`: they leave the group, and come back when that ends. `pace` takes the place of the group's (0:
    read nothing). `rewound`: one member goes back by so many offsets, in each partition, and commits that.
    """

    is_away: bool = False
    pace: float | None = None
    rewound: int = 0


TOPICS = {"orders": 6, "payments": 3, "clicks": 4}
GROUPS = (
    TrafficGroup("keeps-up", ("orders",), about="reads all that is written"),
    TrafficGroup("falls-behind", ("orders",), pace=0.5, about="manages half of what is written"),
    TrafficGroup("stuck", ("orders",), stands_at=2, about="cannot get past a record of orders-2"),
    TrafficGroup("stopped", ("payments",), leaves_after=50, about="committed once and left"),
    TrafficGroup(
        "new-protocol", ("payments", "clicks"), protocol="consumer", about="Kafka's new protocol (KIP-848)"
    ),
    TrafficGroup("two-members", tuple(TOPICS), members=2, about="two members share three topics"),
)


class Traffic:
    """Writes `rate` messages a second over all `topics`, and runs `groups`, inside `with`.

    All clients are threads of this process. Entering creates the topics that are not there. Leaving takes a
    second or two, because members leave their groups in order.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        *,
        rate: float = 200.0,
        topics: dict[str, int] = TOPICS,
        groups: Sequence[TrafficGroup] = GROUPS,
    ) -> None:
        self._cluster = cluster
        self._rate = rate
        self._topics = topics
        self._groups = groups
        self.controls = {group.name: Control(pace=group.pace) for group in groups}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for name, partitions in self._topics.items():
            if not self._cluster.leaders(name):
                self._cluster.create_topic(name, partitions)
        self._start_thread("producer", self._produce)
        for group in self._groups:
            for number in range(1, group.members + 1):
                self._start_thread(f"{group.name}-{number}", partial(self._run_member, group, number))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10.0)

    def _start_thread(self, name: str, target: Callable[[], None]) -> None:
        # Daemon threads: a broker that does not respond must not keep the process from ending.
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _produce(self) -> None:
        producer = self._cluster.producer({"linger.ms": 20})
        names = list(self._topics)
        started_at, sent = time.monotonic(), 0
        # The number of messages follows from the time since the start, so a slow tick is made up for.
        while not self._stopping.wait(_TICK_S):
            due = int((time.monotonic() - started_at) * self._rate)
            for number in range(sent, due):
                producer.produce(names[number % len(names)], key=str(number % 997), value=f"message {number}")
            sent = due
            producer.poll(0)
        producer.flush(2)

    def _run_member(self, group: TrafficGroup, number: int) -> None:
        """Joins the group, reads and commits, and leaves the group, until that is for good."""
        while not self._stopping.is_set():
            if self.controls[group.name].is_away:
                self._stopping.wait(_TICK_S)
            elif self._live_in_group(group, number):
                return

    def _live_in_group(self, group: TrafficGroup, number: int) -> bool:
        """Joins the group, reads and commits, and leaves the group. Returns whether that is for good."""
        consumer = self._cluster.consumer(
            group.name,
            {
                "group.protocol": group.protocol,
                "client.id": f"{group.name}-{number}",
                "enable.auto.commit": False,
            },
        )
        consumer.subscribe(list(group.topics))
        try:
            standing: dict[tuple[str, int], int] = {}
            self._read_and_commit(consumer, group, standing)
            _commit(consumer, standing, group.stands_at)
        finally:
            consumer.close()
        return not self.controls[group.name].is_away

    def _read_and_commit(
        self, consumer: Consumer, group: TrafficGroup, standing: dict[tuple[str, int], int]
    ) -> None:
        """Reads and commits until the traffic stops, the group is away, or its `leaves_after` is reached."""
        control = self.controls[group.name]
        produced_per_s = self._rate * len(group.topics) / len(self._topics)
        pace, started_at = control.pace, time.monotonic()
        committed_at, read, read_at_pace = started_at, 0, 0
        while not self._stopping.is_set() and not control.is_away:
            # Read as many messages as the group's pace allows by now.
            now = time.monotonic()
            if control.pace != pace:
                pace, started_at, read_at_pace = control.pace, now, 0
            allowed = (
                _MAX_MESSAGES
                if pace is None
                else int((now - started_at) * produced_per_s * pace) - read_at_pace
            )
            if allowed > 0:
                messages = consumer.consume(min(allowed, _MAX_MESSAGES), _TICK_S)
                count = sum(message.error() is None for message in messages)
                read, read_at_pace = read + count, read_at_pace + count
            else:
                self._stopping.wait(_TICK_S)
            if control.rewound:
                control.rewound -= _rewind(consumer, control.rewound)
            # Leave or commit when that is due.
            if (
                group.leaves_after is not None
                and read >= group.leaves_after
                and _has_read_all_partitions(consumer)
            ):
                return
            if now - committed_at >= _COMMIT_S:
                committed_at = now
                _commit(consumer, standing, group.stands_at)


def _rewind(consumer: Consumer, offsets: int) -> int:
    """Goes back by so many offsets. Returns 0 if the member has no positions yet, else `offsets`."""
    positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
    for each in positions:
        each.offset = max(each.offset - offsets, 0)
        consumer.seek(each)
    if positions:
        consumer.commit(offsets=positions, asynchronous=False)
    return offsets if positions else 0


def _has_read_all_partitions(consumer: Consumer) -> bool:
    """Whether a commit now would cover each assigned partition.

    A partition without a committed offset has no lag to show.
    """
    return all(partition.offset >= 0 for partition in consumer.position(consumer.assignment()))


def _commit(consumer: Consumer, standing: dict[tuple[str, int], int], stands_at: int | None) -> None:
    """Commits the positions. In the partitions `stands_at`, commits the first position again and again.

    `standing` has the first positions.
    """
    try:
        positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        for each in positions:
            if each.partition == stands_at:
                each.offset = standing.setdefault((each.topic, each.partition), each.offset)
        if positions:
            consumer.commit(offsets=positions, asynchronous=False)
    except KafkaException:
        pass  # a rebalance under way: the next commit includes it
