"""What the threads of the monitor talk to, without Kafka: a cluster, logs, and the owner's inbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from koff.client import ClusterConf, Isolation, Metadata, OffsetSpec, PartitionMetadata, TopicPartition
from koff.client.cluster_conf import ListedOffset
from koff.client.log_reader import LogRead, LogStart
from koff.kafkatest import wait_until
from koff.monitor.moment import Moment
from koff.monitor.requests import Input


def at(second: float) -> Moment:
    """That moment by the clock that never steps."""
    return Moment(second, 0)


class Inbox:
    """The owner's queue. Nothing is applied until `apply`, unless `applies` is set."""

    def __init__(self, *, applies: bool = True) -> None:
        self.inputs: list[Input] = []
        self.applies = applies
        self._on_applied: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def post(self, given: Input, on_applied: Callable[[], None] | None = None) -> None:
        with self._lock:
            self.inputs.append(given)
            if on_applied is not None:
                self._on_applied.append(on_applied)
            if self.applies:
                self._apply()

    def apply(self) -> None:
        """Applies all inputs so far."""
        with self._lock:
            self._apply()

    def _apply(self) -> None:
        applied, self._on_applied = self._on_applied, []
        for on_applied in applied:
            on_applied()

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """The inputs of that type so far."""
        return [given for given in list(self.inputs) if isinstance(given, kind)]

    def wait(self, kind: type[Any], count: int = 1) -> list[Any]:
        """The inputs of that type, once there are so many."""
        wait_until(lambda: len(self.of_kind(kind)) >= count, timeout_s=20, every_s=0.005, what=kind.__name__)
        return self.of_kind(kind)


class FakeCluster:
    """A cluster. `leaders` has each topic, with the leader of each partition. Partition p ends at 100 + p.

    Requests to a leader in `hanging` wait until its event is set.
    """

    def __init__(self, leaders: Mapping[str, Sequence[int]] | None = None) -> None:
        self.conf = ClusterConf("127.0.0.1:1")
        self.leaders = dict(leaders or {})
        self.hanging: dict[int, threading.Event] = {}
        self.calls: list[tuple[list[TopicPartition], Any, Isolation]] = []
        self.brokers, self.lister = None, self
        self.starts: dict[TopicPartition, int | str] = {}
        self.fault: Exception | None = None
        self.denied: set[str] = set()
        self.metadata: Metadata | None = None

    def fetch_metadata(self) -> Metadata:
        if self.fault is not None:
            raise self.fault
        if self.metadata is not None:
            return self.metadata
        topics = {
            name: tuple(PartitionMetadata(p, leader) for p, leader in enumerate(leaders))
            for name, leaders in self.leaders.items()
        }
        return Metadata("id", 1, (), topics, {name: f"id of {name}" for name in topics})

    def find_denied_topics(self, names: Iterable[str]) -> set[str]:
        return self.denied.intersection(names)

    def find_leaders(self, topic: str) -> tuple[int, ...]:
        return ()

    def refresh_leaders(self, *, timeout_s: float) -> None:
        """They stay."""

    def close(self) -> None:
        """Nothing is open."""

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: Any = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ListedOffset | str]:
        wanted = list(partitions)
        self.calls.append((wanted, spec, isolation))
        for topic, partition in wanted:
            if (release := self.hanging.get(self.leaders[topic][partition])) is not None:
                release.wait()
        if self.fault is not None:
            raise self.fault
        return {at: ListedOffset(100 + at.partition, 7) for at in wanted}

    def fetch_offsets(
        self, partitions: Iterable[TopicPartition], spec: Any = OffsetSpec.LATEST
    ) -> dict[TopicPartition, int | str]:
        if self.fault is not None:
            raise self.fault
        return {at: self.starts.get(at, 0) for at in partitions}


class FakeLog:
    """A `LogReader` that hands over what a test gives it. `made` has all of them, the newest last."""

    made: list[FakeLog]

    def __init__(self, lister: Any, topic: str, *, gather_s: float = 0.0, ends_s: float = 0.0) -> None:
        self.topic = topic
        self.unreachable: Exception | None = None
        self.assigned: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.history: list[tuple[str, Any]] = []
        self.waiting: list[LogRead | Exception] = []
        self.is_closed = False
        self.add_fault: Exception | None = None
        self._given = threading.Condition()
        type(self).made.append(self)

    def give(self, *given: LogRead | Exception) -> None:
        """These are the results of the next fetches."""
        with self._given:
            self.waiting += given
            self._given.notify_all()

    def add(self, starts: Mapping[int, LogStart]) -> None:
        if self.add_fault is not None:
            raise self.add_fault
        self.epochs.update({partition: start.leader_epoch for partition, start in starts.items()})
        self.history.append(("add", {partition: start.offset for partition, start in starts.items()}))
        # The last: tests wait for it.
        self.assigned.update({partition: start.offset for partition, start in starts.items()})

    def remove(self, partitions: Iterable[int]) -> None:
        for partition in (removed := list(partitions)):
            self.assigned.pop(partition, None)
        self.history.append(("remove", removed))

    def fetch(self, timeout_s: float) -> LogRead:
        with self._given:
            self._given.wait_for(lambda: self.waiting, timeout_s)
            read = self.waiting.pop(0) if self.waiting else LogRead()
        if isinstance(read, Exception):
            raise read
        for lost in read.lost:
            self.assigned.pop(lost.partition, None)
        return read

    def close(self) -> None:
        self.is_closed = True
