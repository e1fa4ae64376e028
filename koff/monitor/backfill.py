"""History for a tracker that began with what coordinators said: commit times, windows, hidden groups.

One partition of the offsets topic after the other is replayed from its log's start into a shard aside, which
takes the place of the tracker's once it has reached what the tail has applied.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

import structlog

from koff.client import Cluster, Feed, OffsetSpec, Run, TopicPartition
from koff.errors import ConnectError, Denied
from koff.monitor.batching import Tail
from koff.tail.reader import TailReaderConf
from koff.tracker import Shard, Tracker

log = structlog.get_logger(component="monitor.backfill")
PAUSE_S, HELD_PAUSE_S = 5.0, 1.0
NAMED = 20
"""So many of the groups that coordinators had not told of are named in the log."""


class Backfill:
    """Replays `partitions`, which the tail began to read at `begun` (offset by partition).

    `remaining` is how many offsets are yet to be read; `found` are groups that only the log knew.
    """

    def __init__(
        self, cluster: Cluster, tracker: Tracker, tail: Tail, conf: TailReaderConf, begun: Mapping[int, int]
    ) -> None:
        self.found: set[str] = set()
        self._cluster, self._tracker, self._tail, self._conf = cluster, tracker, tail, conf
        self._begun = dict(begun)
        self._waiting = sorted(begun)
        self._starts: dict[int, int] = {}
        self._reading = (-1, -1)

    @property
    def waiting(self) -> Collection[int]:
        """The partitions of which only part is known as yet."""
        return self._waiting

    @property
    def remaining(self) -> int:
        """How many offsets are yet to be read, of partitions that no open transaction holds back; where logs
        start is asked when `run` begins."""
        positions = {**self._starts, self._reading[0]: self._reading[1]}
        ends = {p: self._tail.applied.get(p, 0) for p in self._ready()}
        return sum(max(0, end - positions.get(p, 0)) for p, end in ends.items())

    def _ready(self) -> list[int]:
        """Those of which what the tail has applied is no less than what coordinators had told."""
        return [partition for partition in self._waiting if partition not in self._tail.held]

    def _readable(self) -> list[int]:
        """Those of them that have a leader."""
        return [partition for partition in self._ready() if partition in self._starts]

    def run(self, stopping: threading.Event) -> None:
        """Replays one partition after the other, until stopped; goes on where brokers were away."""
        began, count = time.monotonic(), len(self._waiting)
        while self._waiting and not stopping.is_set():
            try:
                self._starts = self._log_starts()
                with Feed(self._cluster.conf, self._conf.topic, self._conf.feed) as feed:
                    while (readable := self._readable()) and not stopping.is_set():
                        self._replay(feed, readable[0], stopping)
            except Denied as failure:
                log.warning("no backfill: no commit times, no history", why=str(failure))
                return
            except ConnectError as failure:
                log.warning("backfill waits", why=str(failure))
                stopping.wait(PAUSE_S)
            else:
                if self._waiting:
                    stopping.wait(HELD_PAUSE_S)
        if count and not self._waiting:
            log.info("backfilled", partitions=count, seconds=round(time.monotonic() - began, 3))
            if self.found:
                names = sorted(self.found)
                log.warning(
                    "the coordinators had not told of some groups: may koff DESCRIBE all groups?",
                    count=len(names),
                    groups=names[:NAMED],
                )

    def _log_starts(self) -> dict[int, int]:
        at = [TopicPartition(self._conf.topic, p) for p in self._waiting]
        answers = self._cluster.fetch_offsets(at, OffsetSpec.EARLIEST)
        return {p.partition: start for p, start in answers.items() if isinstance(start, int)}

    def _replay(self, feed: Feed, partition: int, stopping: threading.Event) -> None:
        """Reads that partition into a shard of its own up to where the tail is. Raises `ConnectError`."""
        with self._tracker.lock:
            shard = self._tracker.create_shard()
            if self._arrived(partition, shard, [], self._starts[partition]):
                return  # nothing was ever written there
        self._reading = partition, self._starts[partition]
        feed.add(dict([self._reading]))
        while not stopping.is_set():
            fetched = feed.fetch(self._conf.batch_records, 0.2)
            if fetched.lost:
                raise ConnectError(f"partition {partition} of {feed.topic}: {fetched.lost[0].reason}")
            if feed.unreachable is not None:
                raise feed.unreachable
            reached = fetched.ends.get(partition, -1)
            runs = [run for run in fetched.runs if run.partition == partition]
            with self._tracker.lock:
                if self._arrived(partition, shard, runs, reached):
                    break
        feed.remove([partition])

    def _arrived(self, partition: int, shard: Shard, runs: list[Run], reached: int) -> bool:
        """Applies what the tail has applied too; whether that is all, and the shard is in its place."""
        upto = self._tail.applied.get(partition)
        if upto is None:  # lost: the tail itself reads it from its start
            self._done(partition)
            return True
        for run in runs:
            old, new = run.split(self._begun[partition])  # what the tail has applied, it has counted
            for part, counted in ((old, True), (new.split(upto)[0], False)):
                if len(part):
                    shard.apply(part.keys(), part.values(), counted=counted)
            reached = max(reached, run.next_offset)
        if reached >= 0:
            self._reading = partition, reached
        if reached < upto:
            return False
        before = self._tracker.group_names(partition)
        self._tracker.replace_shard(partition, shard)
        self.found |= self._tracker.group_names(partition) - before
        self._done(partition)
        return True

    def _done(self, partition: int) -> None:
        self._waiting = [each for each in self._waiting if each != partition]
