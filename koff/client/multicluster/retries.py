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
        # A heap by time. The sequence makes the entries unique: `PendingWrite` itself cannot be compared.
        self._queue: list[tuple[float, int, PendingWrite]] = []
        self._stopped = False
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
            heapq.heappush(self._queue, (due_at, write.sequence, write))
            self._changed.notify_all()

    def remove(self, call: WriteCall) -> None:
        """Removes the writes of the call. Those that are handed out now are not in the queue."""
        with self._lock:
            self._queue = [entry for entry in self._queue if entry[-1].call is not call]
            heapq.heapify(self._queue)

    def make_due(self) -> None:
        """Makes all writes due now."""
        with self._lock:
            # All times become equal, so the sorted list is a heap.
            self._queue = sorted((0.0, sequence, write) for _, sequence, write in self._queue)
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
                        due += (write for *_, write in self._queue)
                        self._queue.clear()
                    self._fail([write for write in due if not write.in_librdkafka], fault)

    def _wait_until_due(self) -> list[PendingWrite]:
        """Waits for writes that are due; returns them in their original order. Empty after `stop`."""
        due: list[tuple[int, PendingWrite]] = []
        with self._lock:
            while not self._stopped:
                now = time.monotonic()
                while self._queue and self._queue[0][0] <= now:
                    due.append(heapq.heappop(self._queue)[1:])
                if due:
                    break
                self._changed.wait(self._queue[0][0] - now if self._queue else None)
        return [write for _, write in sorted(due)]
