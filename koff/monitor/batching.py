"""The end of the straight line's first half: what a reader polled, in a tracker, and up to where."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from koff.lag import UNKNOWN
from koff.records.topics import SHARE_STATE_TOPIC
from koff.tail.reader import Polled, StartPositions, TailReader, TailReaderConf
from koff.tracker import Tracker

BATCH_RECORDS = 4096


class Tail:
    """Gathers records by partition until they are worth a batch: a small one costs as much as a large one.

    `applied` is the offset behind the last record applied, by partition, and `leader_epochs` are those of
    these records. Of a partition in `held`, the tracker knows what coordinators said, and records before that
    offset are handed on once all of them are here: an open transaction keeps some back, and one that another
    group committed after it began must not be taken back. All three are to be read under the tracker's lock.

    `on_lost` is told of a partition whose log is not what it was, before that is read anew.
    """

    def __init__(
        self, tracker: Tracker, reader: TailReader, on_lost: Callable[[int], None] = lambda partition: None
    ) -> None:
        self._on_lost = on_lost
        self.applied: dict[int, int] = {}
        self.leader_epochs: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self._tracker, self._reader = tracker, reader
        self._runs: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        self._upto: dict[int, tuple[int, int]] = {}
        self._count = 0

    def begin(self, begin: StartPositions, told_until: Mapping[int, int] | None = None) -> None:
        """Goes on from there, in a tracker that knows what was before; of some partitions, what was before
        these offsets."""
        self._reader.resume_from(begin)
        self.held = dict(told_until or {})
        self.applied.update(begin.positions)
        self.leader_epochs.update(begin.leader_epochs)

    def add_polled(self, polled: Polled) -> None:
        """Adds what came in; hands on what there is when it is enough, or no more is waiting."""
        for run in polled.runs:
            keys, values = self._runs.setdefault(run.partition, ([], []))
            keys += run.keys()
            values += run.values()
            self._upto[run.partition] = run.next_offset, run.leader_epoch
            self._count += len(run)
        if self._count >= BATCH_RECORDS or not polled.full or polled.lost:
            self.flush()
        for partition in polled.lost:
            self._on_lost(partition)
            self.held.pop(partition, None)
            self._runs.pop(partition, None)
            self._tracker.reset_partition(partition)
            self.applied.pop(partition, None)
            self.leader_epochs.pop(partition, None)

    def flush(self) -> None:
        """Hands on what there is, but for what is held."""
        if self.held:
            positions = self._reader.positions
            self.held = {p: until for p, until in self.held.items() if positions.get(p, 0) < until}
        seen_at_ms = time.time_ns() // 1_000_000 if self._reader.caught_up else UNKNOWN
        for partition in self._runs.keys() - self.held.keys():
            keys, values = self._runs.pop(partition)
            self._tracker.apply(partition, keys, values, seen_at_ms=seen_at_ms)
            self.applied[partition], self.leader_epochs[partition] = self._upto[partition]
        self._count = 0


def apply_share_state(tracker: Tracker, polled: Polled, reader: TailReader) -> None:
    """Applies what a reader of `__share_group_state` polled."""
    seen_at_ms = time.time_ns() // 1_000_000 if reader.caught_up else UNKNOWN
    for run in polled.runs:
        tracker.apply_share_state(run.partition, run.keys(), run.values(), seen_at_ms=seen_at_ms)
    for partition in polled.lost:
        tracker.reset_share_partition(partition)


def share_state_conf(conf: TailReaderConf) -> TailReaderConf:
    """How to read `__share_group_state` beside the offsets topic. Most clusters have none."""
    return TailReaderConf(topic=SHARE_STATE_TOPIC, missing_topic_interval_s=10.0, feed=conf.feed)
