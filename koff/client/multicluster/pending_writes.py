"""Messages of a writer that no cluster has acknowledged yet, and the calls that they belong to."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from koff.client.message import Message
from koff.client.multicluster.errors import WriteError, WriteErrors


class WriteCall:
    """The messages of one `write_messages` call, and the result of each."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.errors: list[WriteError | None] = [None] * len(messages)
        self.unsettled = len(messages)
        self.done = threading.Event()

    def build_errors(self) -> WriteErrors | None:
        """The errors of the call, None if all messages were written."""
        return WriteErrors(self.errors) if any(self.errors) else None


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A message that no cluster has acknowledged yet.

    - `sequence`: its number among all messages of the writer; `index`: its index in its `call`.
    - `due_at`: when to try again (monotonic).
    - `in_librdkafka`: librdkafka has it, and has not reported its result.
    - `in_doubt`: a cluster may have written it, but its acknowledgement did not arrive.
    - `refused_by`: clusters that will never take it.
    - `settled`: its call has its result; what comes later does not count.
    """

    message: Message
    sequence: int
    index: int
    call: WriteCall
    started_at: float
    attempts: int = 0
    due_at: float = 0.0
    in_librdkafka: bool = False
    in_doubt: bool = False
    settled: bool = False
    reason: str = ""
    last_target: object = None  # the `WriteTarget` that sent it last
    refused_by: set[object] = field(default_factory=set)


class RetryQueue:
    """Writes that wait for their next try, by time. Not safe for threads: the writer's lock guards it."""

    def __init__(self) -> None:
        # The sequence makes the entries unique: `PendingWrite` itself cannot be compared.
        self._heap: list[tuple[float, int, PendingWrite]] = []

    def add(self, write: PendingWrite, due_at: float) -> None:
        """Queues the write until `due_at` (monotonic)."""
        heapq.heappush(self._heap, (due_at, write.sequence, write))

    def make_due(self, now: float) -> None:
        """Makes all writes due now."""
        # All times become equal, so a list that is sorted by sequence is a heap.
        writes = sorted((write for *_, write in self._heap), key=_read_sequence)
        self._heap = [(now, write.sequence, write) for write in writes]

    def pop_due(self, now: float) -> list[PendingWrite]:
        """The writes that are due, in their original order."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[-1])
        return sorted(due, key=_read_sequence)

    def remove(self, call: WriteCall) -> None:
        """Removes the writes of the call."""
        self._heap = [entry for entry in self._heap if entry[-1].call is not call]
        heapq.heapify(self._heap)

    def pop_all(self) -> list[PendingWrite]:
        """All writes."""
        heap, self._heap = self._heap, []
        return [write for *_, write in heap]

    def next_due_at(self) -> float | None:
        """When the next write is due; None if there is none."""
        return self._heap[0][0] if self._heap else None


def _read_sequence(write: PendingWrite) -> int:
    return write.sequence
