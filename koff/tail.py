"""The end of the straight line's first half: what a reader polled, in a tracker, and up to where."""

from __future__ import annotations

import time

from koff.lag import UNKNOWN
from koff.reader import Begin, Polled, Reader
from koff.tracker import Tracker

BATCH_RECORDS = 4096


class Tail:
    """Gathers records by partition until they are worth a batch: a small one costs as much as a large one.

    `applied` is the offset behind the last record applied, by partition, and `leader_epochs` are those of
    these records; both are to be read under the tracker's lock.
    """

    def __init__(self, tracker: Tracker, reader: Reader) -> None:
        self.applied: dict[int, int] = {}
        self.leader_epochs: dict[int, int] = {}
        self._tracker, self._reader = tracker, reader
        self._runs: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        self._upto: dict[int, tuple[int, int]] = {}
        self._count = 0

    def begin(self, begin: Begin) -> None:
        """Goes on from there, in a tracker that knows what was before."""
        self._reader.begin(begin)
        self.applied.update(begin.positions)
        self.leader_epochs.update(begin.leader_epochs)

    def take(self, polled: Polled) -> None:
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
            self._tracker.reset(partition)
            self.applied.pop(partition, None)
            self.leader_epochs.pop(partition, None)

    def flush(self) -> None:
        """Hands on what there is."""
        seen_at_ms = time.time_ns() // 1_000_000 if self._reader.caught_up else UNKNOWN
        for partition, (keys, values) in self._runs.items():
            self._tracker.apply(partition, keys, values, seen_at_ms=seen_at_ms)
            self.applied[partition], self.leader_epochs[partition] = self._upto[partition]
        self._runs, self._count = {}, 0
