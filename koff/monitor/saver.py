"""Saves what is known while it runs, so that the next process can go on from there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import structlog

from koff.client.closing import Closing
from koff.errors import KoffError
from koff.monitor.batching import Tail
from koff.monitor.clock import read_moment
from koff.monitor.requests import Moment, Origin
from koff.monitor.state import StateDir
from koff.tracker import Tracker

log = structlog.get_logger(component="monitor.saver")
INTERVAL_S, ENDS_INTERVAL_S = 30.0, 300.0
"""Between two savings, and two of the history of ends: what a killed process had not saved of the log is read
again."""


class Saving(Closing):
    """Writes each partition that has changed into the folder, and of the others that they are as they were.

    `origin` tells the topic as it is, None while there is none.
    `partial` gives the partitions of which too little is known to be worth saving.
    """

    def __init__(
        self,
        state_dir: StateDir,
        origin: Callable[[], Origin | None],
        tracker: Tracker,
        tail: Tail,
        partial: Callable[[], Collection[int]],
    ) -> None:
        self._dir, self._tracker, self._tail = state_dir, tracker, tail
        self._ask_origin, self._partial = origin, partial
        self._origin: Origin | None = None
        self._saved: dict[int, tuple[int, int]] = {}
        self._known: dict[int, tuple[int, Moment]] = {}
        self._failing = False
        self._ends_due = 0.0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Lets others have the folder."""
        self._dir.close()

    def run(self, stopping: threading.Event, is_current: Callable[[], bool]) -> None:
        """Saves now and then until stopped, and a last time then; only while `is_current` says that the log
        was read to its end."""
        while not stopping.wait(INTERVAL_S):
            self._save(is_current)
        self._ends_due = 0.0
        self._save(is_current)

    def forget(self, partition: int) -> None:
        """What was saved of that partition must not be believed any more: its log is not what it was."""
        with self._lock:
            self._saved.pop(partition, None)
            self._known.pop(partition, None)
            try:
                self._dir.forget(partition)
            except KoffError as failure:
                log.warning("state is not removed", partition=partition, why=str(failure))

    def _save(self, is_current: Callable[[], bool]) -> None:
        """One round. What cannot be written is tried again in the next."""
        if not is_current():
            return
        try:
            began = time.monotonic()
            written = self.save()
        except KoffError as failure:
            if not self._failing:
                log.warning("state is not saved", why=str(failure))
            self._failing = True
        else:
            self._failing = False
            log.debug("saved", bytes=written, seconds=round(time.monotonic() - began, 3))

    def save(self) -> int:
        """Saves what changed; the bytes written. Raises `KoffError`."""
        origin, written, partial = self._ask_origin(), 0, set(self._partial())
        if origin is None:
            return 0
        if origin != self._origin:
            self._origin, self._saved, self._known = origin, {}, {}
        for partition in sorted(set(self._tail.applied) - partial):
            with self._lock:
                written += self._save_partition(origin, partition)
        stamp = read_moment()
        if time.monotonic() >= self._ends_due:
            written += self._dir.save_ends(origin, self._tracker.save_ends(), stamp=stamp)
            self._ends_due = time.monotonic() + ENDS_INTERVAL_S
        with self._lock:
            return written + self._dir.note(origin, self._known, stamp=stamp)

    def _save_partition(self, origin: Origin, partition: int) -> int:
        stamp, written = read_moment(), 0
        with self._tracker.lock:
            version, position = self._tracker.version(partition), self._tail.applied.get(partition)
            epoch = self._tail.leader_epochs.get(partition, -1)
            changed = self._saved.get(partition) != (version, position)
            state = self._tracker.save_partition(partition) if changed else None
        if position is None:
            return 0
        if state is not None:
            written = self._dir.save(
                origin, partition, state, position=position, stamp=stamp, leader_epoch=epoch
            )
            self._saved[partition] = version, position
        self._known[partition] = position, stamp
        return written
