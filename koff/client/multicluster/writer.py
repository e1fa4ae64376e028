"""Writes to many clusters: a message that one cluster does not acknowledge goes to another cluster."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.message import NO_OFFSET, Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.client_statistics import SummaryBuilder
from koff.client.multicluster.conf import RWMode, WriterConf
from koff.client.multicluster.errors import WriteError
from koff.client.multicluster.pending_writes import PendingWrite, RetryQueue, WriteCall
from koff.client.multicluster.stats import ClusterWrites, WriterStats
from koff.client.multicluster.write_target import Reach, WriteTarget, is_refusal
from koff.errors import Closed, ConfigError
from koff.logs import get_logger

log = get_logger("client.multicluster")

_COUNTS = ("messages", "bytes", "errors", "retries", "failovers", "possible_duplicates", "in_doubt")
"""The numbers of `WriterStats` that are counted one by one."""
_NO_TARGET_WAIT_S = 1.0
"""The pause between two looks for a cluster that can be reached, unless one reports itself before."""
_COLLECT_S = 0.02
"""The messages of a failed batch are reported one by one. Each waits for this time, so that all of them are
retried together and in their order."""


class Writer(Closing):
    """Writes messages to one of several clusters (by name): to each in turn, or to the first that is up.

    A context manager. Threads may share it. The messages of one call go to one cluster, in their order within
    a partition. If that cluster fails, the messages that it did not acknowledge go to the next cluster, again
    in their order. They may then come after messages of later calls, and a consumer that reads both clusters
    may read some of them twice (`stats().possible_duplicates` is an upper bound). An acknowledged message is
    not lost: all in-sync replicas of its cluster have it.
    """

    def __init__(self, clusters: Mapping[str, ClusterConf], conf: WriterConf) -> None:
        if not clusters:
            raise ConfigError("a writer needs at least one cluster: pass a name and a ClusterConf")
        self._conf = conf
        # Guards all below. Not held while messages are given to librdkafka, nor while `on_completion` runs.
        self._lock = threading.RLock()
        self._retries_changed = threading.Condition(self._lock)
        self._room_freed = threading.Condition(self._lock)  # fewer messages are in flight
        self._turn = 0
        self._sequence = itertools.count()
        self._in_flight = 0
        self._retries = RetryQueue()
        self._all_due = False
        self._closing = self._stopped = False
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._write_s, self._wait_s = SummaryBuilder(), SummaryBuilder()
        self._targets = [
            WriteTarget(name, cluster, conf, self._settle, self._retry_now)
            for name, cluster in clusters.items()
        ]
        self._by_target = {
            target: dict.fromkeys(("messages", "bytes", "failures"), 0) for target in self._targets
        }
        self._thread = threading.Thread(target=self._run_retries, name="koff-write-again", daemon=True)
        for target in self._targets:
            target.start()
        self._thread.start()

    def write_messages(self, *messages: Message) -> None:
        """Writes the messages; returns when all are acknowledged. Sets `cluster`, partition and offset.

        Raises `WriteErrors`, with one entry for each message, when a message was not acknowledged within
        `max_attempts` and `give_up_after_s`. An asynchronous writer returns before the acknowledgements, and
        never raises `WriteErrors`. Raises `Closed`.
        """
        if not messages:
            return
        call, started_at = WriteCall(messages), time.monotonic()
        with self._lock:
            self._room_freed.wait_for(lambda: self._closing or self._has_room(len(messages)))
            self._wait_s.add(time.monotonic() - started_at)
            if self._closing:
                raise Closed("the writer is closed")
            self._in_flight += len(messages)
            writes = [
                PendingWrite(message, next(self._sequence), index, call, started_at)
                for index, message in enumerate(messages)
            ]
        try:
            self._start_writes(writes)
        except BaseException as error:  # `close` would wait for ever for messages that nobody sends
            with self._lock:
                self._retries.remove(call)
            self._fail_after_fault(writes, error)
            raise
        if not self._conf.asynchronous:
            call.done.wait()
            errors = call.build_errors()
            if errors is not None:
                raise errors

    def _start_writes(self, writes: Sequence[PendingWrite]) -> None:
        with self._lock:
            turn, self._turn = self._turn, self._turn + 1
            target = self._choose_target(writes[0], turn)
            if target is None:
                self._retry_later(writes)
        # Without the lock: `send_writes` may wait for room in librdkafka's queue.
        if target is not None:
            target.send_writes(writes)

    def stats(self) -> WriterStats:
        """The statistics. Counts grow: the difference of two calls is what came between."""
        with self._lock:
            clusters = {
                target.name: ClusterWrites(
                    **self._by_target[target],
                    reachable=target.reach is Reach.UP,
                    failure=target.failure,
                    client=target.statistics.read(),
                )
                for target in self._targets
            }
            counts: dict[str, Any] = dict(self._counts)
            write_s, wait_s = self._write_s.build(), self._wait_s.build()
        return WriterStats(**counts, write_s=write_s, wait_s=wait_s, clusters=clusters)

    def close(self) -> None:
        """Refuses new messages, and waits until all messages in flight are settled. Safe to call twice."""
        with self._lock:
            self._closing = True
            self._room_freed.notify_all()
            self._room_freed.wait_for(lambda: self._in_flight == 0)
            self._stopped = True
            self._retries_changed.notify_all()
        self._thread.join()
        for target in self._targets:
            target.close()

    def _has_room(self, count: int) -> bool:
        # A call with more messages than `queue_capacity` must wait until nothing else is in flight.
        return self._in_flight == 0 or self._in_flight + count <= self._conf.queue_capacity

    def _choose_target(self, write: PendingWrite, turn: int = 0) -> WriteTarget | None:
        """The cluster to try now: if possible another than the last one. None if no cluster is up.

        Also None in PRIMARY_BACKUP mode until it is known whether the primary cluster can be reached.
        """
        # A cluster that refused the message would refuse it again.
        possible = [target for target in self._targets if target not in write.refused_by]
        if self._conf.mode is RWMode.PRIMARY_BACKUP:
            turn = 0
            if possible[0].reach is Reach.UNKNOWN:
                return None
        # The clusters in turn; the cluster that was tried last only if no other is up.
        up = [target for target in possible if target.reach is Reach.UP]
        others = [target for target in up if target is not write.last_target] or up
        return others[turn % len(others)] if others else None

    def _settle(
        self, target: WriteTarget, write: PendingWrite, error: KafkaError | None, delivered: Any
    ) -> None:
        """Takes the result of one attempt: the message is written, retried, or failed for good."""
        try:
            if error is None:
                self._settle_written(target, write, delivered)
            else:
                self._settle_attempt(target, write, error, was_sent=delivered is not None)
        except BaseException as fault:  # without a result, the caller would wait for ever
            self._fail_after_fault([write], fault, in_doubt=delivered is not None)
            if not isinstance(fault, Exception):
                raise

    def _settle_attempt(
        self, target: WriteTarget, write: PendingWrite, error: KafkaError, *, was_sent: bool
    ) -> None:
        """Takes the error of one attempt. `was_sent` is false if librdkafka did not accept the message."""
        write.reason = f"{target.name}: {error.str()}"
        with self._lock:
            if write.settled:
                return
            self._by_target[target]["failures"] += 1
            if is_refusal(error):
                write.refused_by.add(target)
            else:
                write.in_doubt = write.in_doubt or was_sent
            write.attempts += 1
            failed_for_good = (
                len(write.refused_by) == len(self._targets)
                or write.attempts >= self._conf.max_attempts
                or self._is_too_late(write)
            )
            if not failed_for_good:
                self._queue_retry(write, time.monotonic() + _COLLECT_S)
        if failed_for_good:
            self._settle_failed(write)

    def _settle_written(self, target: WriteTarget, write: PendingWrite, delivered: Any) -> None:
        message, seconds = write.message, time.monotonic() - write.started_at
        size = payload_bytes(message)
        with self._lock:
            if write.settled:
                return
            message.topic, message.cluster = self._conf.topic, target.name
            message.partition, offset = delivered.partition(), delivered.offset()
            message.offset = NO_OFFSET if offset is None else offset
            target_counts = self._by_target[target]
            self._counts["messages"] += 1
            self._counts["bytes"] += size
            target_counts["messages"] += 1
            target_counts["bytes"] += size
            self._counts["possible_duplicates"] += write.in_doubt
            self._write_s.add(seconds)
        self._finish(write, None)

    def _settle_failed(self, write: PendingWrite) -> None:
        seconds = time.monotonic() - write.started_at
        reason = f"{write.reason}; gave up after {write.attempts} attempts in {seconds:.1f} s"
        self._finish(write, WriteError(reason, in_doubt=write.in_doubt))

    def _fail_after_fault(
        self, writes: Sequence[PendingWrite], fault: BaseException, *, in_doubt: bool = False
    ) -> None:
        """Settles the writes as failed because of an error that nobody expected."""
        with suppress(Exception):  # the log of the application may fail, too
            log.exception("messages failed because of an unexpected error", messages=len(writes))
        for write in writes:
            may_be_written = in_doubt or write.in_doubt or write.in_librdkafka
            self._finish(write, WriteError(f"unexpected error: {fault!r}", in_doubt=may_be_written))

    def _finish(self, write: PendingWrite, error: WriteError | None) -> None:
        """Gives the write's call its result, once: a later result does not count."""
        call = write.call
        with self._lock:
            if write.settled:
                return
            write.settled = True
            if error is not None:
                self._counts["errors"] += 1
                self._counts["in_doubt"] += error.in_doubt
            call.errors[write.index] = error
            call.unsettled -= 1
            finished = call.unsettled == 0
        # Without the lock: `on_completion` is the user's code.
        try:
            if finished and self._conf.on_completion is not None:
                self._run_on_completion(call)
        finally:
            if finished:
                call.done.set()
            # Do this last: `close` returns when nothing is in flight, and then `on_completion` must have run.
            with self._lock:
                self._in_flight -= 1
                self._room_freed.notify_all()

    def _run_on_completion(self, call: WriteCall) -> None:
        assert self._conf.on_completion is not None
        try:
            self._conf.on_completion(call.messages, call.build_errors())
        except KeyboardInterrupt:  # Ctrl-C is for the main thread, not for this function
            raise
        except BaseException:  # must not end this thread: it serves other messages too
            log.exception("on_completion raised an error", messages=len(call.messages))

    def _retry_later(self, writes: Sequence[PendingWrite]) -> None:
        """Queues writes without a target for a later try. `_retry_now` brings it forward."""
        now = time.monotonic()
        for write in writes:
            give_up_at = write.started_at + self._conf.give_up_after_s
            self._queue_retry(write, min(now + _NO_TARGET_WAIT_S, max(now, give_up_at)))

    def _queue_retry(self, write: PendingWrite, due_at: float) -> None:
        self._retries.add(write, due_at)
        self._retries_changed.notify_all()

    def _retry_now(self) -> None:
        """Makes all retries due: a cluster came up or went down, so they may have another target."""
        with self._lock:
            self._all_due = True
            self._retries_changed.notify_all()

    def _run_retries(self) -> None:
        due: list[PendingWrite] = []
        while not self._stopped:
            try:
                with self._lock:
                    due = self._wait_until_due()
                    by_target, exhausted = self._assign_targets(due)
                for target, target_writes in by_target.items():
                    target.send_writes(target_writes)
                for write in exhausted:
                    self._settle_failed(write)
            except BaseException as fault:  # the thread must not end: the callers wait for their results
                with suppress(BaseException):
                    with self._lock:
                        due += self._retries.pop_all()
                    self._fail_after_fault([write for write in due if not write.in_librdkafka], fault)

    def _wait_until_due(self) -> list[PendingWrite]:
        """Waits for writes that are due; returns them in their original order. Empty after `close`.

        The caller holds the lock; the wait releases it.
        """
        while not self._stopped:
            now = time.monotonic()
            if self._all_due:
                self._all_due = False
                self._retries.make_due(now)
            if due := self._retries.pop_due(now):
                return due
            next_due_at = self._retries.next_due_at()
            self._retries_changed.wait(None if next_due_at is None else next_due_at - now)
        return []

    def _assign_targets(
        self, writes: Sequence[PendingWrite]
    ) -> tuple[dict[WriteTarget, list[PendingWrite]], list[PendingWrite]]:
        """The writes to send now, by cluster, and the writes whose time is used up.

        A write without a possible target is queued again. The caller holds the lock.
        """
        by_target: dict[WriteTarget, list[PendingWrite]] = {}
        exhausted: list[PendingWrite] = []
        turn, self._turn = self._turn, self._turn + 1
        for write in writes:
            target = self._choose_target(write, turn)
            if target is not None:
                self._counts["retries"] += write.attempts > 0
                self._counts["failovers"] += write.last_target not in (None, target)
                by_target.setdefault(target, []).append(write)
            elif self._is_too_late(write):
                write.reason = write.reason or "; ".join(f"{t.name}: {t.failure}" for t in self._targets)
                exhausted.append(write)
            else:
                self._retry_later([write])
        return by_target, exhausted

    def _is_too_late(self, write: PendingWrite) -> bool:
        return time.monotonic() - write.started_at >= self._conf.give_up_after_s
