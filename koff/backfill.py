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
from koff.reader import ReaderConf
from koff.tail import Tail
from koff.tracker import Shard, Tracker

log = structlog.get_logger("koff.backfill")
PAUSE_S = 5.0
NAMED = 20
"""So many of the groups that coordinators had not told of are named in the log."""


class Backfill:
    """Replays `partitions`, which the tail began to read at `begun` (offset by partition).

    `remaining` is how many offsets are yet to be read; `found` are groups that only the log knew.
    """

    def __init__(
        self, cluster: Cluster, tracker: Tracker, tail: Tail, conf: ReaderConf, begun: Mapping[int, int]
    ) -> None:
        self.found: set[str] = set()
        self._cluster, self._tracker, self._tail, self._conf = cluster, tracker, tail, conf
        self._begun = dict(begun)
        self._waiting = sorted(begun)
        self._starts: dict[int, int] = {}
        self._position: int | None = None

    @property
    def waiting(self) -> Collection[int]:
        """The partitions of which only part is known as yet."""
        return self._waiting

    @property
    def remaining(self) -> int:
        """How many offsets are yet to be read; where logs start is asked when `run` begins."""
        total = 0
        for place, partition in enumerate(list(self._waiting)):
            end = self._tail.applied.get(partition, 0)
            start = self._starts.get(partition, 0)
            if place == 0 and self._position is not None:
                start = self._position
            total += max(0, end - start)
        return total

    def run(self, stopping: threading.Event) -> None:
        """Replays one partition after the other, until stopped; goes on where brokers were away."""
        began, count = time.monotonic(), len(self._waiting)
        while self._waiting and not stopping.is_set():
            try:
                self._starts = self._log_starts()
                with Feed(self._cluster.conf, self._conf.topic, self._conf.feed) as feed:
                    while self._waiting and not stopping.is_set():
                        self._replay(feed, self._waiting[0], stopping)
            except Denied as failure:
                log.warning("no backfill: no commit times, no history", why=str(failure))
                return
            except ConnectError as failure:
                log.warning("backfill waits", why=str(failure))
                stopping.wait(PAUSE_S)
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
        answers = self._cluster.offsets(at, OffsetSpec.EARLIEST)
        return {p.partition: start for p, start in answers.items() if isinstance(start, int)}

    def _replay(self, feed: Feed, partition: int, stopping: threading.Event) -> None:
        """Reads that partition into a shard of its own up to where the tail is. Raises `ConnectError`."""
        with self._tracker.lock:
            shard = self._tracker.fresh_shard()
            if self._arrived(partition, shard, [], self._starts.get(partition, -1)):
                return  # nothing was ever written there
        self._position = self._starts.get(partition, 0)
        feed.add({partition: self._position})
        while not stopping.is_set():
            fetched = feed.fetch(self._conf.batch_records, 0.2)
            if fetched.lost:
                raise ConnectError(f"partition {partition} of {feed.topic}: {fetched.lost[0].reason}")
            if feed.trouble is not None:
                raise feed.trouble
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
        self._position = reached if reached >= 0 else self._position
        if reached < upto:
            return False
        before = self._tracker.group_names(partition)
        self._tracker.replace(partition, shard)
        self.found |= self._tracker.group_names(partition) - before
        self._done(partition)
        return True

    def _done(self, partition: int) -> None:
        self._waiting = self._waiting[1:]
        self._position = None
