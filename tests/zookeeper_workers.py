"""Instances of a group on ZooKeeper at work, and a record of what each was handed, when, by what right."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from koff.client import TopicPartition
from koff.client.zookeeper import ConsumerGroup, ConsumerGroupConf, UncleanClose, join_consumer_group
from koff.kafkatest import KafkaCluster


class Handed(NamedTuple):
    """A message as it was handed out, under the claim of that zxid."""

    at_s: float
    member: str
    partition: int
    offset: int
    claim: int
    value: bytes


@dataclass
class Record:
    """What all workers were handed. Whoever crashed writes no more."""

    handed: list[Handed] = field(default_factory=list)
    crashed: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def values(self) -> set[bytes]:
        with self.lock:
            return {each.value for each in self.handed}

    def note(self, handed: Handed) -> bool:
        """Whether it was written down."""
        with self.lock:
            if handed.member in self.crashed:
                return False
            self.handed.append(handed)
            return True

    def check_claims(self, *, late: int = 0, tolerance_s: float = 0.0) -> None:
        """No partition was ever read under two claims at a time, and under each in order.

        When a session ends, its owner may process the message that it was handed just before: then `late` is
        1. The owner of a session that somebody else ends learns it in `tolerance_s` at most.
        """
        for partition, all_ in self._by_partition().items():
            claims = sorted({each.claim for each in all_})
            before: list[float] = []
            for claim in claims:
                under = [each for each in all_ if each.claim == claim]
                assert len({each.member for each in under}) == 1, f"claim {claim} of {partition} was shared"
                offsets = [each.offset for each in under]
                assert offsets == sorted(set(offsets)), f"out of order in {partition} under {claim}"
                times = [each.at_s for each in under]
                too_late = [at_s for at_s in before if at_s > min(times) + tolerance_s]
                assert len(too_late) <= late, f"{partition} was read under two claims at once"
                before = times

    def repeated(self) -> list[list[Handed]]:
        """The messages that were handed out more than once, each time that they were."""
        times: dict[tuple[int, int], list[Handed]] = defaultdict(list)
        for each in self.handed:
            times[each.partition, each.offset].append(each)
        return [each for each in times.values() if len(each) > 1]

    def _by_partition(self) -> dict[int, list[Handed]]:
        found: dict[int, list[Handed]] = defaultdict(list)
        for each in sorted(self.handed):
            found[each.partition].append(each)
        return found


AT_WORK: list[Worker | Source] = []


def stop_all() -> None:
    """Ends those that a failed test left at work, so that they disturb no other."""
    while AT_WORK:
        left = AT_WORK[-1]
        if isinstance(left, Worker):
            left.crash()
        else:
            left.stop()


class Worker:
    """One instance that acknowledges what it is handed, until it leaves or crashes."""

    def __init__(
        self, group: str, topic: str, zookeeper: str, conf: ConsumerGroupConf, record: Record
    ) -> None:
        self._record = record
        self.group: ConsumerGroup = join_consumer_group(group, [topic], zookeeper, conf)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        AT_WORK.append(self)

    def leave(self) -> None:
        AT_WORK.remove(self)
        self.group.close()
        self._thread.join()

    def crash(self) -> None:
        """Ends without releasing or committing anything."""
        AT_WORK.remove(self)
        with self._record.lock:
            self._record.crashed.add(self.group.id)
        self.group.session.close()
        try:
            with self.group:
                raise RuntimeError
        except RuntimeError:
            self._thread.join()

    def _work(self) -> None:
        for message in self.group.messages():
            claim = self.group.claims.get(TopicPartition(message.topic, message.partition))
            if claim is None:  # it was lost just now
                continue
            handed = Handed(
                time.monotonic(),
                self.group.id,
                message.partition,
                message.offset,
                claim,
                message.value or b"",
            )
            # A message that was not written down must not be committed: another instance must get it.
            if self._record.note(handed):
                message.ack()


class Source:
    """Produces numbers to all partitions at a steady rate; `acknowledged` are those that Kafka has."""

    def __init__(self, kafka: KafkaCluster, topic: str, partitions: int, *, per_s: int = 400) -> None:
        self.acknowledged: set[bytes] = set()
        # One request at a time: a partition may refuse the first batch because its leader is not ready, and
        # accept the second, since it knows no sequence yet. librdkafka then reports both as delivered.
        self._producer = kafka.producer(
            {"acks": "all", "linger.ms": 5, "enable.idempotence": True, "max.in.flight": 1}
        )
        self._topic, self._partitions, self._per_s = topic, partitions, per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        AT_WORK.append(self)

    def stop(self) -> None:
        AT_WORK.remove(self)
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        count = 0
        while not self._stopping.wait(0.05):
            for _ in range(self._per_s // 20):
                value = b"%d" % count
                self._producer.produce(
                    self._topic, value, partition=count % self._partitions, on_delivery=self._delivered
                )
                count += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.value() or b"")


def churn(
    make: Callable[[], Worker], seconds: float, *, most: int, dice: random.Random
) -> tuple[list[Worker], dict[str, int]]:
    """Lets up to `most` workers join, leave and crash at random; those that are left, and what happened."""
    workers: list[Worker] = []
    counts = {"joined": 0, "left": 0, "crashed": 0}
    until = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < until or counts["left"] < 2 or not counts["crashed"]:
        if len(workers) < 2 or (len(workers) < most and dice.random() < 0.6):
            workers.append(make())
            counts["joined"] += 1
        else:
            worker = workers.pop(dice.randrange(len(workers)))
            if dice.random() < 0.3:
                worker.crash()
                counts["crashed"] += 1
            else:
                try:
                    worker.leave()
                finally:
                    counts["left"] += 1
        pause.wait(dice.uniform(0.0, 0.8))
    return workers, counts


__all__ = ["Handed", "Record", "Source", "UncleanClose", "Worker", "churn", "stop_all"]
