"""Writes to many clusters: a message that one cluster does not acknowledge goes to another cluster."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.message import NO_OFFSET, Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.conf import RWMode, WriterConf
from koff.client.multicluster.errors import WriteError, WriteErrors
from koff.client.multicluster.pending_writes import PendingWrite, RetryThread, WriteCall
from koff.client.multicluster.producer_properties import is_refusal
from koff.client.multicluster.stats import NO_VALUES, WriterStats
from koff.client.multicluster.write_target import Reach, WriteTarget
from koff.errors import Closed, ConfigError
from koff.logs import get_logger

log = get_logger("client.multicluster")

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
        self._room_freed = threading.Condition(self._lock)  # fewer messages are in flight
        self._turns, self._sequence = itertools.count(), itertools.count()
        self._in_flight = 0
        self._calls: set[WriteCall] = set()  # those with messages in flight
        self._closing = False
        self._retries = RetryThread(self._lock, self._send_writes, self._fail_after_fault)
        self._counts: Counter[str] = Counter()  # those of `WriterStats`
        self._write_s = self._wait_s = NO_VALUES
        self._targets = [
            WriteTarget(name, cluster, conf, self._settle, self._retries.make_due)
            for name, cluster in clusters.items()
        ]
        try:
            for target in self._targets:
                target.start()
            self._retries.start()
        except BaseException:  # this machine allows no more threads: those that run end
            self.close()
            raise

    def write_messages(self, *messages: Message, timeout_s: float | None = None) -> None:
        """Writes the messages; returns when all are acknowledged. Sets `cluster`, partition and offset.

        Raises `WriteErrors`, with one entry for each message, when a message was not acknowledged within
        `max_attempts`, `give_up_after_s` and `timeout_s`, or when `close` did not wait for it. After that,
        koff sends none of the failed messages; those that were in flight are in doubt. The same is done with
        the messages when Ctrl-C interrupts the call. An asynchronous writer returns before the
        acknowledgements: it raises `WriteErrors` only if there is no room for the messages within
        `timeout_s`. Raises `Closed`.
        """
        self.check_process()
        if not messages:
            return
        call = self.begin_write(messages, timeout_s)
        if self._conf.asynchronous:
            return
        try:
            if futures.wait([call.done], call.left_s()).not_done:
                self.give_up(call, f"timeout_s ({timeout_s:g} s) has passed")
        except BaseException as error:
            self.give_up(call, f"interrupted by {error!r}")
            raise
        errors = call.build_errors()
        if errors is not None:
            raise errors

    def begin_write(self, messages: Sequence[Message], timeout_s: float | None = None) -> WriteCall:
        """Sends the messages, after waiting for room. The call is `done` later: see its `build_errors`."""
        call = WriteCall(messages, time.monotonic(), timeout_s)
        self._admit_call(call)
        try:
            self._send_writes(call.writes, call.left_s())
        except BaseException as error:  # `close` would wait for ever for messages that nobody sends
            self.give_up(call, f"interrupted by {error!r}")
            raise
        return call

    def _admit_call(self, call: WriteCall) -> None:
        """Waits for room for the call's messages. Raises `Closed`, and `WriteErrors` if there is none."""
        count = len(call.messages)
        with self._lock:
            has_room = self._room_freed.wait_for(
                lambda: self._closing or self._has_room(count), call.left_s()
            )
            self._wait_s = self._wait_s.with_value(time.monotonic() - call.started_at)
            if self._closing:
                raise Closed("the writer is closed")
            if not has_room:
                self._counts["errors"] += count
                room = f"no room for it within {call.timeout_s:g} s, {self._in_flight} messages are in flight"
                raise WriteErrors([WriteError(f"not sent: {room}") for _ in call.messages])
            if self._conf.asynchronous:
                call.timeout_s = None  # the call returns now: `give_up_after_s` limits its messages
            self._in_flight += count
            self._calls.add(call)
            call.writes = [
                PendingWrite(message, next(self._sequence), index, call)
                for index, message in enumerate(call.messages)
            ]

    def give_up(self, call: WriteCall, why: str) -> None:
        """Settles all messages of the call now. After that, none of them is sent that is not in flight."""
        with self._lock:
            call.given_up = call.given_up or why
            self._retries.remove(call)
        try:
            for target in self._targets:
                target.take_back(call)
        finally:
            for write in call.writes:
                if not write.settled:
                    write.in_doubt = write.in_doubt or write.in_librdkafka
                    self._settle_failed(write)

    def stats(self) -> WriterStats:
        """The statistics. Counts grow: the difference of two calls is what came between."""
        self.check_process()
        with self._lock:
            clusters = {target.name: target.build_stats() for target in self._targets}
            return WriterStats(write_s=self._write_s, wait_s=self._wait_s, clusters=clusters, **self._counts)

    def close(self, timeout_s: float | None = None) -> None:
        """Refuses new messages, and waits until all messages in flight are settled. Safe to call twice.

        After `timeout_s` it gives up the messages that are left, as `write_messages` does after its own. So
        another thread cancels all calls with `close(0)`: each raises `WriteErrors`.
        """
        with self._lock:
            self._closing = True
            self._room_freed.notify_all()
            self._room_freed.wait_for(lambda: self._in_flight == 0, timeout_s)
            left = list(self._calls)
            # All of them first: none is sent again when the messages of another are taken back.
            for call in left:
                call.given_up = call.given_up or "the writer was closed"
        for call in left:
            self.give_up(call, "the writer was closed")
        self._retries.stop()
        for target in self._targets:
            target.close()

    def _has_room(self, count: int) -> bool:
        # A call with more messages than `queue_capacity` must wait until nothing else is in flight.
        return self._in_flight == 0 or self._in_flight + count <= self._conf.queue_capacity

    def _choose_target(self, write: PendingWrite, turn: int) -> WriteTarget | None:
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
                self._finish(write, None, target, delivered)
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
            target.counts["failures"] += 1
            if is_refusal(error):
                write.refused_by |= {target}
            else:
                write.in_doubt = write.in_doubt or was_sent
            write.attempts += 1
            failed_for_good = (
                len(write.refused_by) == len(self._targets)
                or write.attempts >= self._conf.max_attempts
                or self._is_too_late(write)
                or write.call.is_given_up()
            )
            if not failed_for_good:
                self._retries.add(write, time.monotonic() + _COLLECT_S)
        if failed_for_good:
            self._settle_failed(write)

    def _settle_failed(self, write: PendingWrite) -> None:
        seconds = time.monotonic() - write.call.started_at
        if not write.reason:
            failures = (f"{each.name}: {each.failure or 'no response yet'}" for each in self._targets)
            write.reason = "; ".join(failures)
        reasons = filter(None, (write.call.given_up, write.reason))
        reason = f"{'; '.join(reasons)}; gave up after {write.attempts} attempts in {seconds:.1f} s"
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

    def _finish(
        self,
        write: PendingWrite,
        error: WriteError | None,
        target: WriteTarget | None = None,
        delivered: Any = None,
    ) -> None:
        """Gives the write's call its result, once: a later result does not count.

        Without an error, `target` has acknowledged the message, with librdkafka's report `delivered`.
        """
        with self._lock:
            if write.settled:
                return
            if target is not None:
                self._note_written(write, target, delivered)
            if error is not None:
                self._counts["errors"] += 1
                self._counts["in_doubt"] += error.in_doubt
            write.settled = True
            write.call.errors[write.index] = error
            write.call.unsettled -= 1
            finished = write.call.unsettled == 0
        self._complete(write.call, finished=finished)

    def _note_written(self, write: PendingWrite, target: WriteTarget, delivered: Any) -> None:
        message, size = write.message, payload_bytes(write.message)
        message.topic, message.cluster = self._conf.topic, target.name
        message.partition, offset = delivered.partition(), delivered.offset()
        message.offset = NO_OFFSET if offset is None else offset
        for counts in (self._counts, target.counts):
            counts["messages"] += 1
            counts["bytes"] += size
        self._counts["possible_duplicates"] += write.in_doubt
        self._write_s = self._write_s.with_value(time.monotonic() - write.call.started_at)

    def _complete(self, call: WriteCall, *, finished: bool) -> None:
        """Wakes those that wait: for the call if it is finished, and for room."""
        # Without the lock: `on_completion` is the user's code.
        try:
            if finished and self._conf.on_completion is not None:
                self._conf.on_completion(call.messages, call.build_errors())
        except KeyboardInterrupt:  # Ctrl-C is for the main thread, not for this function
            raise
        except BaseException:  # must not end this thread: it serves other messages too
            log.exception("on_completion raised an error", messages=len(call.messages))
        finally:
            if finished:
                call.writes = ()  # they refer to the call: Python frees both sooner
                call.done.set_result(None)
            # Do this last: `close` returns when nothing is in flight, and then `on_completion` must have run.
            with self._lock:
                if finished:
                    self._calls.discard(call)
                self._in_flight -= 1
                self._room_freed.notify_all()

    def _send_writes(self, writes: Sequence[PendingWrite], timeout_s: float | None = None) -> None:
        """Sends each write to a cluster that is up, or gives it up if its time is used up.

        A write for which no cluster is up is tried again later. `timeout_s`: how long another thread that
        sends may delay this one.
        """
        with self._lock:
            by_target, exhausted = self._assign_targets(writes)
        # Without the lock: `send_writes` may wait for room in librdkafka's queue.
        for target, target_writes in by_target.items():
            target.send_writes(target_writes, timeout_s)
        for write in exhausted:
            self._settle_failed(write)

    def _assign_targets(
        self, writes: Sequence[PendingWrite]
    ) -> tuple[dict[WriteTarget, list[PendingWrite]], list[PendingWrite]]:
        """The writes to send now, by cluster, and the writes whose time is used up.

        A write without a possible target is queued. A change of a target brings its next try forward. The
        caller holds the lock.
        """
        by_target: dict[WriteTarget, list[PendingWrite]] = {}
        exhausted: list[PendingWrite] = []
        turn, now = next(self._turns), time.monotonic()
        # One choice for those with the same history: the messages of a call stay together.
        chosen: dict[object, WriteTarget | None] = {}
        for write in writes:
            if write.call.given_up:  # another thread settles it
                continue
            history = write.last_target, write.refused_by
            if history not in chosen:
                chosen[history] = self._choose_target(write, turn)
            target = chosen[history]
            if target is not None:
                self._counts["retries"] += write.attempts > 0
                self._counts["failovers"] += write.last_target not in (None, target)
                by_target.setdefault(target, []).append(write)
            elif self._is_too_late(write) or self._is_refused(write):
                exhausted.append(write)
            else:
                give_up_at = write.call.started_at + self._conf.give_up_after_s
                self._retries.add(write, min(now + _NO_TARGET_WAIT_S, give_up_at))
        return by_target, exhausted

    def _is_refused(self, write: PendingWrite) -> bool:
        """Whether every cluster has refused the message, or has no such topic."""
        return all(target.lacks_topic or target in write.refused_by for target in self._targets)

    def _is_too_late(self, write: PendingWrite) -> bool:
        return time.monotonic() - write.call.started_at >= self._conf.give_up_after_s
