"""Messages of a writer that no cluster has acknowledged yet: their calls, and the thread that tries again."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from koff.client.foreign_errors import start_thread
from koff.client.message import Message
from koff.client.multicluster.errors import WriteError, WriteErrors


@dataclass(slots=True, eq=False)
class WriteCall:
    """The messages of one `write_messages` call, and the result of each.

    `timeout_s`: after this time from `started_at` (monotonic) the call is given up. `given_up` is why it was;
    from then on, none of its messages may be sent. "": it is not.
    """

    messages: Sequence[Message]
    started_at: float
    timeout_s: float | None
    given_up: str = ""
    writes: Sequence[PendingWrite] = ()
    done: Future[None] = field(default_factory=Future)
    errors: list[WriteError | None] = field(init=False)
    unsettled: int = field(init=False)

    def __post_init__(self) -> None:
        self.unsettled = len(self.messages)
        self.errors = [None] * self.unsettled

    def left_s(self) -> float | None:
        """How long the call may still take; None: without limit."""
        if self.timeout_s is None:
            return None
        return max(self.started_at + self.timeout_s - time.monotonic(), 0.0)

    def is_given_up(self) -> bool:
        """Whether the call was given up, or has to be: its time has passed."""
        if not self.given_up and self.left_s() == 0:
            self.given_up = f"timeout_s ({self.timeout_s:g} s) has passed"
        return bool(self.given_up)

    def build_errors(self) -> WriteErrors | None:
        """The errors of the call, None if all messages were written."""
        return WriteErrors(self.errors) if any(self.errors) else None


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A message that no cluster has acknowledged yet.

    - `sequence`: its number among all messages of the writer; `index`: its index in its `call`.
    - `in_librdkafka`: librdkafka has it, and has not reported its result. `given_at` is since when, and
      `attempt_until` until when (monotonic). `purges`: how often the target was purged before.
    - `in_doubt`: a cluster may have written it, but its acknowledgement did not arrive.
    - `refused_by`: clusters that will never take it.
    - `settled`: its call has its result; what comes later does not count.
    """

    message: Message
    sequence: int
    index: int
    call: WriteCall
    attempts: int = 0
    given_at: float = 0.0
    attempt_until: float = 0.0
    purges: int = 0
    in_librdkafka: bool = False
    in_doubt: bool = False
    settled: bool = False
    reason: str = ""
    last_target: object = None  # the `WriteTarget` that sent it last
    refused_by: frozenset[object] = frozenset()


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
