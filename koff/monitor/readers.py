"""Threads that read internal topics, as the core requests, and post what comes.

A reader waits until the owner has applied a batch before it makes the next one: librdkafka fetches meanwhile.
If both worked at the same time, each would wait for Python's lock, and a replay would be slower.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import structlog

from koff.client import ClusterConf, FeedConf, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.client.feed.feed import Feed, Fetched
from koff.client.history.history_fetch import HistoryFetch, HistoryFetched, HistoryStart
from koff.client.offsets.lister import OffsetLister
from koff.errors import ConnectError, KoffError, copy_error, lacks_right
from koff.monitor.requests import (
    Failed,
    HistoryRead,
    Input,
    Lost,
    Polled,
    Read,
    ReadFailed,
    ReadHistory,
    Records,
    Start,
    StopReading,
    Unreachable,
)
from koff.monitor.worker_thread import Post, WorkerThread

log = structlog.get_logger(component="monitor.readers")
BATCH_RECORDS = 4_096
"""Records are gathered until there are so many, or no more wait: a small batch costs as much as a large."""
FETCH_RECORDS = 2_000
LONG_HISTORY = 50_000
"""A history of so many offsets is fetched over koff's own connections. librdkafka reads shorter ones."""
POLL_S = 0.2
"""How long a fetch waits for the first record, and so how long a new command may wait."""
GATHER_S = 0.02
"""The pause after a batch: the next records may gather meanwhile."""
NEW_CLIENT_S = 60.0
"""The pause between two new connections because partitions have stalled."""
IDLE_S = 10.0
"""How long the connection for histories is kept open without a request."""


class _Reader(WorkerThread):
    """A thread that reads, and waits for the owner after each batch."""

    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name)
        self._post = post
        self._closed, self._applied = threading.Event(), threading.Event()
        self._feed: Feed | None = None

    def close(self) -> None:
        self._closed.set()

    def _post_and_wait(self, given: Input) -> None:
        """Posts the input. Returns when the owner has applied it, or when the reader is closed."""
        self._applied.clear()
        self._post(given, self._applied.set)
        while not self._applied.wait(POLL_S) and not self._closed.is_set():
            pass

    def _drop_feed(self) -> None:
        """Closes the feed, if there is one. Raises nothing: the reader goes on with a new feed."""
        feed, self._feed = self._feed, None
        if feed is not None:
            try:
                feed.close()
            except Exception:
                log.exception("a feed cannot be closed", topic=feed.topic)


class _Columns(NamedTuple):
    """The records of one partition in a batch, as columns."""

    keys: list[bytes | None]
    values: list[bytes | None]
    offsets: list[int]


class _Batch:
    """What was fetched since the last input, by partition."""

    def __init__(self, attempts: Mapping[int, int]) -> None:
        self._attempts = attempts
        self._history: list[Records] = []
        self._records: dict[int, _Columns] = {}
        self._epochs: dict[int, int] = {}
        self._positions: dict[int, tuple[int, int]] = {}
        self._lost: list[Lost] = []
        self.full = False
        self.count = 0

    def add(self, fetched: Fetched, in_history: Collection[int]) -> None:
        """Adds a fetch. Left out is what is of an earlier attempt.

        That is all of partitions that are not read any more, or `in_history`: librdkafka may still return
        something of a partition that was removed.
        """
        attempts = {p: attempt for p, attempt in self._attempts.items() if p not in in_history}
        for run in fetched.runs:
            if run.partition in attempts:
                columns = self._records.setdefault(run.partition, _Columns([], [], []))
                columns.keys.extend(run.keys())
                columns.values.extend(run.values())
                columns.offsets.extend(run.offsets())
                self._epochs[run.partition] = run.leader_epoch
                self.count += len(run)
        self.add_positions({p: end for p, end in fetched.ends.items() if p in attempts})
        for loss in fetched.lost:
            if loss.partition in attempts and loss.partition not in self.lost:
                attempt = attempts[loss.partition]
                self._lost.append(Lost(loss.partition, attempt, loss.reason, gone=loss.gone))
        self.full = fetched.full

    def add_history(self, fetched: HistoryFetched) -> None:
        """Adds records that did not come from librdkafka. They precede those that did."""
        for run in fetched.runs:
            attempt = self._attempts[run.partition]
            columns = run.keys, run.values, run.offsets
            self._history.append(Records(run.partition, attempt, *columns, run.leader_epoch))
        self.add_positions(fetched.positions)

    def add_positions(self, positions: Mapping[int, int]) -> None:
        """Adds the next offsets of partitions that moved past their last record."""
        for partition, end in positions.items():
            if partition in self._attempts:
                self._positions[partition] = self._attempts[partition], end

    @property
    def lost(self) -> list[int]:
        """The partitions that cannot be read on."""
        return [lost.partition for lost in self._lost]

    def build_input(self, topic: str) -> Polled | None:
        """The input for the owner; None if nothing came."""
        if not (self._history or self._records or self._positions or self._lost):
            return None
        records = self._history + [
            Records(partition, self._attempts[partition], *columns, self._epochs[partition])
            for partition, columns in self._records.items()
        ]
        return Polled(topic, records, self._positions, self._lost, self.full)


class TopicReader(_Reader):
    """Reads an internal topic."""

    def __init__(
        self,
        conf: ClusterConf,
        topic: str,
        feed: FeedConf,
        post: Post,
        lister: OffsetLister | None = None,
    ) -> None:
        """With a `lister`, a long history is fetched over koff's own connections."""
        super().__init__(f"read-{topic}", post)
        self._conf, self._topic, self._feed_conf = conf, topic, feed
        self._lister = lister if "check.crcs" not in conf.properties else None
        self._history: HistoryFetch | None = None
        self._once_lost: set[int] = set()
        """Partitions that could not be read on once. librdkafka alone reads them: if it refused the position
        at which their history had ended, it would refuse it again."""
        self._woken = threading.Event()
        self._commands: list[Read | StopReading] = []
        self._lock = threading.Lock()  # guards `_commands`
        self._attempts: dict[int, int] = {}
        self._new_client_s = time.monotonic()
        self._is_unreachable = False

    def send(self, command: Read | StopReading) -> None:
        """Changes what is read, soon. From any thread."""
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
            self._drop_history()
            self._drop_feed()

    def _read_guarded(self) -> None:
        """One round. A failure stops reading; the core begins again."""
        try:
            self._obey()
            if self._feed is None or not self._attempts:
                self._woken.wait(POLL_S)
                return
            self._read(self._feed)
        except KoffError as error:
            self._fail(str(error), denied=lacks_right(error))
        except Exception as error:  # a fault of koff must not end the thread
            log.exception("reading failed", topic=self._topic)
            if self._history is not None:
                # librdkafka reads from now on: the same bytes must not fail again and again.
                self._lister = None
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
        if self._feed is None:
            self._feed = Feed(self._conf, self._topic, self._feed_conf)
        self._stop_reading(command.starts.keys())
        if command.stalled and time.monotonic() >= self._new_client_s + NEW_CLIENT_S:
            self._new_client_s = time.monotonic()
            self._feed.reconnect()
        epochs = {p: start.leader_epoch for p, start in command.starts.items() if start.leader_epoch >= 0}
        in_history = self._begin_history(command.starts)
        self._feed.add(
            {p: start.offset for p, start in command.starts.items() if p not in in_history}, epochs
        )
        self._attempts.update({p: start.attempt for p, start in command.starts.items()})

    def _begin_history(self, starts: Mapping[int, Start]) -> set[int]:
        """Begins to fetch long histories. Returns the partitions that `feed` is not to read yet."""
        histories = {
            p: HistoryStart(start.offset, start.history_until)
            for p, start in starts.items()
            if start.history_until > start.offset and p not in self._once_lost
        }
        if self._lister is None or sum(h.until - h.offset for h in histories.values()) < LONG_HISTORY:
            return set()
        if self._history is None:
            self._history = HistoryFetch(self._lister, self._topic)
        return self._history.add(histories)

    def _stop_reading(self, partitions: Iterable[int]) -> None:
        read = [partition for partition in partitions if partition in self._attempts]
        in_history = set() if self._history is None else self._history.partitions.intersection(read)
        if self._history is not None:
            self._history.remove(in_history)
        by_feed = [partition for partition in read if partition not in in_history]
        if by_feed and self._feed is not None:
            self._feed.remove(by_feed)
        for partition in read:
            del self._attempts[partition]

    def _read_history(self, history: HistoryFetch, feed: Feed, batch: _Batch) -> None:
        """Adds the next records of histories. Lets `feed` read on where a history ends."""
        fetched = history.fetch(POLL_S)
        batch.add_history(fetched)
        if fetched.ended:
            epochs = {p: epoch for p, (_, epoch) in fetched.ended.items() if epoch >= 0}
            feed.add({p: position for p, (position, _) in fetched.ended.items()}, epochs)
        if not history.partitions:
            self._drop_history()

    def _drop_history(self) -> None:
        history, self._history = self._history, None
        if history is not None:
            history.close()

    def _read(self, feed: Feed) -> None:
        """Posts the records that come within `POLL_S`."""
        batch = _Batch(self._attempts)
        wait_s = POLL_S
        if self._history is not None:
            self._read_history(self._history, feed, batch)
            wait_s = 0.0
        in_history = set() if self._history is None else self._history.partitions
        batch.add(feed.fetch(FETCH_RECORDS, wait_s), in_history)
        while batch.full and batch.count < BATCH_RECORDS and not batch.lost:
            batch.add(feed.fetch(FETCH_RECORDS, 0), in_history)
        self._report_reach(feed)
        polled = batch.build_input(self._topic)
        if polled is None:
            return
        self._stop_reading(batch.lost)
        self._once_lost.update(batch.lost)
        self._post_and_wait(polled)
        if not polled.full and self._history is None:
            self._closed.wait(GATHER_S)

    def _report_reach(self, feed: Feed) -> None:
        """Posts, once, that no broker can be reached. The client goes on trying."""
        was_unreachable, self._is_unreachable = self._is_unreachable, feed.unreachable is not None
        if feed.unreachable is not None and not was_unreachable:
            self._post(Unreachable(str(feed.unreachable)))

    def _fail(self, why: str, *, denied: bool) -> None:
        # Posted before the feed is closed, which may wait for a broker.
        self._post_and_wait(ReadFailed(self._topic, why, denied=denied))
        self._attempts = {}
        self._drop_history()
        self._drop_feed()


class HistoryReader(_Reader):
    """Reads partitions from their log start, one after the other.

    A newer request ends the one before: the core has then given that up.
    """

    def __init__(self, cluster: Cluster, feed: FeedConf, post: Post) -> None:
        super().__init__("read-history", post)
        self._cluster, self._feed_conf = cluster, feed
        self._changed = threading.Condition()
        self._newest: ReadHistory | None = None

    def send(self, request: ReadHistory) -> None:
        """Carries out the request, soon. From any thread."""
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
                    self._drop_feed()
                else:
                    self._read_guarded(request)
        finally:
            self._drop_feed()

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
            self._drop_feed()
        except Exception as error:  # a fault of koff must not end the thread
            log.exception("reading a history failed", partition=request.partition)
            self._post(Failed(request.id, f"{type(error).__name__}: {error}"))
            self._drop_feed()

    def _read(self, request: ReadHistory) -> None:
        """Posts the records from the log start up to `until`. Raises `ConnectError`."""
        at = TopicPartition(request.topic, request.partition)
        start = self._cluster.fetch_offsets([at], OffsetSpec.EARLIEST)[at]
        if isinstance(start, str):
            raise ConnectError(f"partition {at.partition} of {at.topic} has no log start offset: {start}")
        if start >= request.until:
            self._post(HistoryRead(request.id, [], [], [], request.until, final=True))
            return
        if self._feed is None or self._feed.topic != request.topic:
            self._drop_feed()
            self._feed = Feed(self._cluster.conf, request.topic, self._feed_conf)
        self._feed.add({at.partition: start})
        try:
            position = start
            while position < request.until and self._newest is None and not self._closed.is_set():
                position = self._read_part(self._feed, request, position)
        finally:
            self._feed.remove([at.partition])

    def _read_part(self, feed: Feed, request: ReadHistory, position: int) -> int:
        """Posts the next records. Returns the next offset to read."""
        columns = _Columns([], [], [])
        fetched = feed.fetch(FETCH_RECORDS, POLL_S)
        for loss in fetched.lost:
            if loss.partition == request.partition:
                raise ConnectError(f"partition {loss.partition} of {feed.topic}: {loss.reason}")
        if feed.unreachable is not None:
            raise copy_error(feed.unreachable)
        for run in fetched.runs:
            if run.partition == request.partition and run.next_offset > position:
                wanted, _ = run.split(request.until)
                columns.keys.extend(wanted.keys())
                columns.values.extend(wanted.values())
                columns.offsets.extend(wanted.offsets())
                position = run.next_offset
        position = max(position, fetched.ends.get(request.partition, position))
        final = position >= request.until
        if columns.offsets or final:
            self._post_and_wait(HistoryRead(request.id, *columns, min(position, request.until), final))
        return position
