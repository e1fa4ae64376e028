"""What is known of one of a reader's configurations, and the messages that wait to be read."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from koff.client.message import Message
from koff.client.multicluster.balancers import size
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.stats import ReaderStats
from koff.errors import KoffError

log = structlog.get_logger(component="client.multicluster")


@dataclass(slots=True, eq=False)
class Slot:
    """One configuration: where its reader stands, what it counted, why it failed.

    `generation` goes up with each `set_offset`: what was fetched before is then of no use.
    """

    conf: ReaderConf
    offset: int
    lag: int = -1
    generation: int = 0
    error: KoffError | None = None
    failure: str = ""
    queued: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cluster's."""
        return self.conf.name or self.conf.brokers

    @property
    def partition(self) -> int:
        """-1 with a group."""
        return -1 if self.conf.group_id else self.conf.partition or 0

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def stats(self) -> ReaderStats:
        """What happened since the last call."""
        counts, self.counts = self.counts, {}
        return ReaderStats(
            cluster=self.name,
            topic=self.conf.topic,
            partition=self.partition,
            offset=self.offset,
            lag=self.lag,
            queue_length=self.queued,
            queue_capacity=self.conf.queue_capacity,
            failure=self.failure,
            **counts,
        )


@dataclass(slots=True, eq=False)
class InboxBatch:
    """Messages of one partition in log order, fetched when the partition ended at `end`."""

    slot: Slot
    generation: int
    messages: Sequence[Message]
    end: int = -1


class Inbox:
    """What all readers have fetched and nobody has read yet; for threads.

    Each failure is told once; one that lasts is put in again. `failure` stays until something is read.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.lock = threading.RLock()
        self.closed = False
        self._filled = threading.Condition(self.lock)
        self._taken = threading.Condition(self.lock)
        self._slots = slots
        self._batches: deque[InboxBatch] = deque()

    def put(self, batches: Iterable[InboxBatch]) -> None:
        """Adds what was fetched."""
        with self.lock:
            for batch in batches:
                if batch.generation == batch.slot.generation:
                    batch.slot.queued += len(batch.messages)
                    self._batches.append(batch)
                    self.well(batch.slot)
            self._filled.notify_all()

    def fail(self, slot: Slot, error: KoffError) -> None:
        """Writes down why that reader cannot read."""
        with self.lock:
            if not slot.failure:
                log.warning("reader failed", cluster=slot.name, topic=slot.conf.topic, reason=str(error))
            slot.error, slot.failure = error, str(error)
            slot.count("errors")
            self._filled.notify_all()

    def well(self, slot: Slot) -> None:
        """That reader can read."""
        with self.lock:
            if slot.failure:
                log.info("reader reads again", cluster=slot.name, topic=slot.conf.topic)
            slot.error, slot.failure = None, ""

    def take(self, timeout_s: float | None) -> tuple[list[InboxBatch], list[KoffError]]:
        """The next batches of one cluster, or the errors of all readers; neither after timeout or end.

        Only batches that are neighbours come together, so that each cluster has its turn.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.lock:
            while not self.closed:
                if self._batches:
                    return self._next(), []
                errors = [slot.error for slot in self._slots if slot.error is not None]
                if len(errors) == len(self._slots):
                    for slot in self._slots:
                        slot.error = None
                    return [], errors
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._filled.wait(left)
        return [], []

    def room(self, slots: Sequence[Slot], patience_s: float) -> int:
        """How many messages the queues of these readers have room for, waiting a little when it is none."""
        with self.lock:
            if self._room(slots) <= 0:
                self._taken.wait(patience_s)
            return max(self._room(slots), 0)

    def drop(self, useless: Callable[[InboxBatch], bool]) -> None:
        """Forgets such batches."""
        with self.lock:
            kept = deque(batch for batch in self._batches if not useless(batch))
            for batch in self._batches:
                if useless(batch):
                    batch.slot.queued -= len(batch.messages)
            self._batches = kept
            self._taken.notify_all()

    def close(self) -> None:
        """Wakes whoever waits."""
        with self.lock:
            self.closed = True
            self._batches.clear()
            self._filled.notify_all()
            self._taken.notify_all()

    @staticmethod
    def _room(slots: Sequence[Slot]) -> int:
        return sum(slot.conf.queue_capacity - slot.queued for slot in slots)

    def _next(self) -> list[InboxBatch]:
        taken = [self._batches.popleft()]
        name = taken[0].slot.name
        while self._batches and self._batches[0].slot.name == name:
            taken.append(self._batches.popleft())
        for batch in taken:
            slot, last = batch.slot, batch.messages[-1]
            slot.queued -= len(batch.messages)
            slot.count("messages", len(batch.messages))
            slot.count("bytes", sum(map(size, batch.messages)))
            if not slot.conf.group_id:
                slot.offset = last.offset + 1
                slot.lag = max(batch.end - slot.offset, 0)
        self._taken.notify_all()
        return taken
