"""Threads that read internal topics, as the core requests, and post what comes.

A reader waits until the owner has applied a batch before it makes the next one: brokers fetch meanwhile.
If both worked at the same time, each would wait for Python's lock, and a replay would be slower.
"""

import threading
import time
from collections.abc import Iterable

import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import OffsetSpec, TopicPartition
from koff.client.log_reader import LogEnd, LogRead, LogReader, LogStart
from koff.errors import ConnectError, KoffError, copy_error, lacks_right
from koff.monitor.clock import read_moment
from koff.monitor.duties.history import HistoryRead, ReadHistory
from koff.monitor.moment import Moment
from koff.monitor.requests import (
    Failed,
    Input,
    Lost,
    Polled,
    Read,
    ReadFailed,
    Records,
    StopReading,
    Unreachable,
    Watermarks,
)
from koff.monitor.worker_thread import Post, WorkerThread

log = structlog.get_logger(component="monitor.readers")
POLL_S = 0.2
"""How long a fetch waits for the first record, and so how long a new command may wait."""
MOST_GATHER_S = 1.0
"""The longest that further commits gather at the broker: a response costs as much as hundreds of commits."""
ENDS_S = 0.05
"""The pause between two reports of the ends of logs: there may be many responses a second."""
IDLE_S = 10.0
"""How long the connection for histories is kept open without a request."""


class _Reader(WorkerThread):
    """A thread that reads, and waits for the owner after each batch."""

    def __init__(self, name: str, cluster: Cluster, post: Post, *, interval_s: float = 0.0) -> None:
        super().__init__(name)
        self._cluster, self._post, self._interval_s = cluster, post, interval_s
        self._closed, self._applied = threading.Event(), threading.Event()
        self._reader: LogReader | None = None

    def close(self) -> None:
        self._closed.set()

    def _post_and_wait(self, given: Input) -> None:
        """Posts the input. Returns when the owner has applied it, or when the reader is closed."""
        self._applied.clear()
        self._post(given, self._applied.set)
        while not self._applied.wait(POLL_S) and not self._closed.is_set():
            pass

    def _make_reader(self, topic: str) -> LogReader:
        if self._reader is None or self._reader.topic != topic:
            self._drop_reader()
            gather_s = min(self._interval_s / 6, MOST_GATHER_S)
            self._reader = LogReader(
                self._cluster.lister, topic, gather_s=gather_s, ends_s=self._interval_s / 2
            )
        return self._reader

    def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class TopicReader(_Reader):
    """Reads an internal topic, of which a sample is taken every `interval_s`."""

    def __init__(self, cluster: Cluster, topic: str, post: Post, *, interval_s: float = 0.0) -> None:
        super().__init__(f"read-{topic}", cluster, post, interval_s=interval_s)
        self._topic = topic
        self._woken = threading.Event()
        self._commands: list[Read | StopReading] = []
        self._lock = threading.Lock()  # guards `_commands`
        self._attempts: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        """Those that the owner knows."""
        self._ends: dict[int, LogEnd] = {}
        """Those that the owner does not know yet."""
        self._ends_due_s = float("-inf")
        self._is_unreachable = False

    def send(self, command: Read | StopReading) -> None:
        """Changes what is read, soon. From any thread."""
        try:
            self.start()
        except ConnectError as error:
            self._post(ReadFailed(self._topic, str(error), denied=False))
            return
        with self._lock:
            self._commands.append(command)
        self._woken.set()

    def close(self) -> None:
        """Stops reading, soon."""
        super().close()
        self._woken.set()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._read_guarded()
        finally:
            self._drop_reader()

    def _read_guarded(self) -> None:
        """One round. A failure stops reading; the core begins again."""
        try:
            self._obey()
            if self._reader is None or not self._attempts:
                self._woken.wait(POLL_S)
                return
            self._read(self._reader)
        except KoffError as error:
            self._fail(str(error), denied=lacks_right(error))
        except Exception as error:  # a fault of koff must not end the thread
            log.exception("reading failed", topic=self._topic)
            self._fail(f"{type(error).__name__}: {error}", denied=False)

    def _obey(self) -> None:
        self._woken.clear()
        with self._lock:
            commands, self._commands = self._commands, []
        for command in commands:
            if isinstance(command, StopReading):
                self._stop_reading(command.partitions)
            else:
                self._begin(command)

    def _begin(self, command: Read) -> None:
        reader = self._make_reader(self._topic)
        self._stop_reading(command.starts.keys())
        reader.add({p: LogStart(start.offset, start.leader_epoch) for p, start in command.starts.items()})
        self._attempts.update({p: start.attempt for p, start in command.starts.items()})

    def _stop_reading(self, partitions: Iterable[int]) -> None:
        read = [partition for partition in partitions if partition in self._attempts]
        if self._reader is not None:
            self._reader.remove(read)
        for partition in read:
            del self._attempts[partition]
            self._positions.pop(partition, None)
            self._ends.pop(partition, None)

    def _read(self, reader: LogReader) -> None:
        """Posts the records that come within `POLL_S`."""
        read = reader.fetch(POLL_S)
        self._report_reach(reader)
        self._ends.update(read.ends)
        polled = self._build_input(read)
        if polled is None:
            return
        self._stop_reading([lost.partition for lost in read.lost])
        self._post_and_wait(polled)

    def _build_input(self, read: LogRead) -> Polled | None:
        """The input for the owner; None if nothing has changed."""
        moved = {p: end for p, end in read.positions.items() if end != self._positions.get(p)}
        now, of = read_moment(), self._attempts
        ends = {}
        if now.at_s >= self._ends_due_s:
            self._ends_due_s = now.at_s + ENDS_S
            ends = {p: _to_watermarks(end, of[p], now) for p, end in self._ends.items() if p in of}
            self._ends.clear()
        if not moved and not read.lost and not ends:
            return None
        self._positions.update(moved)
        records = [
            Records(run.partition, of[run.partition], run.keys, run.values, run.offsets, run.leader_epoch)
            for run in read.runs
        ]
        lost = [Lost(each.partition, of[each.partition], each.reason, gone=each.gone) for each in read.lost]
        positions = {p: (of[p], end) for p, end in moved.items()}
        return Polled(self._topic, records, positions, lost, ends)

    def _report_reach(self, reader: LogReader) -> None:
        """Posts, once, that no broker can be reached. The reader goes on trying."""
        was_unreachable, self._is_unreachable = self._is_unreachable, reader.unreachable is not None
        if reader.unreachable is not None and not was_unreachable:
            self._post(Unreachable(str(reader.unreachable)))

    def _fail(self, why: str, *, denied: bool) -> None:
        self._stop_reading(list(self._attempts))
        self._drop_reader()
        self._post_and_wait(ReadFailed(self._topic, why, denied=denied))


def _to_watermarks(end: LogEnd, attempt: int, now: Moment) -> Watermarks:
    age_s = time.monotonic() - end.requested_s
    requested = now._replace(at_s=now.at_s - age_s, wall_ms=now.wall_ms - round(age_s * 1000))
    return Watermarks(attempt, end.high_watermark, end.last_stable_offset, requested)


class HistoryReader(_Reader):
    """Reads partitions from their log start, one after the other.

    A newer request ends the one before: the core has then given that up.
    """

    def __init__(self, cluster: Cluster, post: Post) -> None:
        super().__init__("read-history", cluster, post)
        self._changed = threading.Condition()
        self._newest: ReadHistory | None = None

    def send(self, request: ReadHistory) -> None:
        """Carries out the request, soon. From any thread."""
        try:
            self.start()
        except ConnectError as error:
            self._post(Failed(request.id, str(error)))
            return
        with self._changed:
            self._newest = request
            self._changed.notify()

    def close(self) -> None:
        """Stops reading, soon."""
        super().close()
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                request = self._await_request()
                if request is None:
                    self._drop_reader()
                else:
                    self._read_guarded(request)
        finally:
            self._drop_reader()

    def _await_request(self) -> ReadHistory | None:
        """The newest request; None if none came for `IDLE_S`, or if the reader is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._closed.is_set(), IDLE_S)
            request, self._newest = self._newest, None
            return None if self._closed.is_set() else request

    def _read_guarded(self, request: ReadHistory) -> None:
        try:
            self._read(request)
        except KoffError as error:
            self._post(Failed(request.id, str(error), denied=lacks_right(error)))
            self._drop_reader()
        except Exception as error:  # a fault of koff must not end the thread
            log.exception("reading a history failed", partition=request.partition)
            self._post(Failed(request.id, f"{type(error).__name__}: {error}"))
            self._drop_reader()

    def _read(self, request: ReadHistory) -> None:
        """Posts the records from the log start up to `until`. Raises `ConnectError`."""
        at = TopicPartition(request.topic, request.partition)
        start = self._cluster.fetch_offsets([at], OffsetSpec.EARLIEST)[at]
        if isinstance(start, str):
            raise ConnectError(f"partition {at.partition} of {at.topic} has no log start offset: {start}")
        if start >= request.until:
            self._post(HistoryRead(request.id, [], [], [], request.until))
            return
        reader = self._make_reader(request.topic)
        reader.add({at.partition: LogStart(start)})
        try:
            position = start
            while position < request.until and self._newest is None and not self._closed.is_set():
                position = self._read_part(reader, request, position)
        finally:
            reader.remove([at.partition])

    def _read_part(self, reader: LogReader, request: ReadHistory, position: int) -> int:
        """Posts the next records. Returns the next offset to read."""
        read = reader.fetch(POLL_S)  # at most one run: there is one partition
        for lost in read.lost:
            raise ConnectError(f"partition {lost.partition} of {reader.topic}: {lost.reason}")
        if reader.unreachable is not None:
            raise copy_error(reader.unreachable)
        position = read.positions.get(request.partition, position)
        final = position >= request.until
        for run in (each.before(request.until) for each in read.runs):
            self._post_and_wait(
                HistoryRead(
                    request.id,
                    run.keys,
                    run.values,
                    run.offsets,
                    min(position, request.until),
                    final=final,
                )
            )
        if final and not read.runs:
            self._post_and_wait(HistoryRead(request.id, [], [], [], request.until))
        return position
