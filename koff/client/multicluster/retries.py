"""The thread that tries a writer's messages again."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from koff.client.foreign_errors import start_thread
from koff.client.multicluster.pending_writes import PendingWrite, WriteCall


class RetryThread:
    """Hands writes that are due to `send_due`. `lock` guards its queue; it is the writer's lock.

    `fail` gets the writes that nobody would settle after an error that nobody expected.
    """

    def __init__(
        self,
        lock: threading.RLock,
        send_due: Callable[[Sequence[PendingWrite]], None],
        fail: Callable[[Sequence[PendingWrite], BaseException], None],
    ) -> None:
        self._lock, self._changed = lock, threading.Condition(lock)
        self._send_due, self._fail = send_due, fail
        self._queue = _RetryQueue()
        self._all_due = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="koff-write-again", daemon=True)

    def start(self) -> None:
        start_thread(self._thread, "a writer cannot be made")

    def stop(self) -> None:
        """Ends the thread. The caller has waited until every write was settled."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def add(self, write: PendingWrite, due_at: float) -> None:
        """Queues the write until `due_at` (monotonic)."""
        with self._lock:
            self._queue.add(write, due_at)
            self._changed.notify_all()

    def remove(self, call: WriteCall) -> None:
        """Removes the writes of the call. Those that are handed out now are not in the queue."""
        with self._lock:
            self._queue.remove(call)

    def make_due(self) -> None:
        """Makes all writes due now."""
        with self._lock:
            self._all_due = True
            self._changed.notify_all()

    def _run(self) -> None:
        due: list[PendingWrite] = []
        while not self._stopped:
            try:
                due = self._wait_until_due()
                self._send_due(due)
            except BaseException as fault:  # the thread must not end: the callers wait for their results
                with suppress(BaseException):
                    with self._lock:
                        due += self._queue.pop_all()
                    self._fail([write for write in due if not write.in_librdkafka], fault)

    def _wait_until_due(self) -> list[PendingWrite]:
        """Waits for writes that are due; returns them in their original order. Empty after `stop`."""
        with self._lock:
            while not self._stopped:
                now = time.monotonic()
                if self._all_due:
                    self._all_due = False
                    self._queue.make_due(now)
                if due := self._queue.pop_due(now):
                    return due
                next_due_at = self._queue.next_due_at()
                self._changed.wait(None if next_due_at is None else next_due_at - now)
        return []


class _RetryQueue:
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
