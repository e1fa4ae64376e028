"""Exact lag in seconds for chosen groups: reads the records at their commits, a few a second."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Event

import numpy as np
import structlog

from koff.client import Answer, Closing, ClusterConf, EndReached, FirstRecord, Place, RecordTimes
from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.tracker import LaggingRow, Tracker
from koff.tracker.row_index import Ints

log = structlog.get_logger(component="monitor.exact_time_lag")

ROUND_S = 1.0
RETRY_S = 30.0
"""When to try again where a record could not be read."""


@dataclass(frozen=True, slots=True)
class ExactConf:
    """Whose records to read: of groups that `groups` is found in, none without it; and how many a second."""

    groups: re.Pattern[str] | None = None
    records_per_s: int = 50
    timeout_s: float = 5.0
    deadline_s: float = 20.0
    """Of `koff lag`, which waits for all."""


class ExactTimeLag(Closing):
    """Tells a tracker when the oldest record was written that a chosen group has yet to commit.

    Each commit is looked at once; what the tracker knows it is not asked for again. A context manager.
    """

    def __init__(self, cluster: ClusterConf, tracker: Tracker, conf: ExactConf) -> None:
        self.conf = conf
        self._tracker = tracker
        self._cluster = cluster
        self._times: RecordTimes | None = None
        self._queue = _Queue()
        self._denied: set[str] = set()

    def close(self) -> None:
        """Lets go of the connection. Safe to call twice."""
        if self._times is not None:
            self._times.close()
            self._times = None

    def run(self, stopping: Event, ready: Callable[[], bool] = lambda: True) -> None:
        """Keeps up with the chosen groups until `stopping`; rests while not `ready`."""
        with self:
            while not stopping.is_set():
                begun = time.monotonic()
                if ready():
                    self.read(self.conf.timeout_s, self.conf.records_per_s, stopping.is_set)
                took = time.monotonic() - begun
                stopping.wait(max(ROUND_S - took, took))  # never more than half of the time

    def read(
        self, timeout_s: float, at_most: int | None = None, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Reads for all rows, or so many, those that have waited longest, as far as the time goes."""
        if self.conf.groups is None:
            return
        now = time.monotonic()
        rows = self._tracker.find_unread_rows(self._chosen, lambda keys: self._queue.pick(keys, at_most, now))
        rows = [row for row in rows if not self._given_up(row)]
        if not rows:
            return
        if self._times is None:
            self._times = RecordTimes(self._cluster)
        places = {row: Place(row.topic, row.partition, row.committed) for row in rows}
        answers = self._times.read(places.values(), timeout_s, given_up)
        self._note_answers((row, answers[place]) for row, place in places.items())

    def _chosen(self, group: str) -> bool:
        return self.conf.groups is not None and self.conf.groups.search(group) is not None

    def _given_up(self, row: LaggingRow) -> bool:
        if row.topic in self._denied:
            self._queue.defer(row.key, float("inf"))
        return row.topic in self._denied

    def _note_answers(self, answers: Iterable[tuple[LaggingRow, Answer]]) -> None:
        found = []
        for row, answer in answers:
            if isinstance(answer, FirstRecord):
                at_ms = NO_TIMESTAMP if answer.timestamp_ms is None else answer.timestamp_ms
                found.append((row, answer.offset, at_ms))
            elif isinstance(answer, EndReached):
                found.append((row, answer.offset, NO_RECORD))
            else:
                self._queue.defer(row.key, time.monotonic() + RETRY_S)
                if answer.denied and row.topic not in self._denied:
                    self._denied.add(row.topic)
                    log.warning("no exact lag in seconds", topic=row.topic, why=answer.reason)
        self._tracker.note_first_records(found)


class _Queue:
    """Since when rows have been waiting, by their keys: a row that commits on and on keeps its place."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.int64)
        self._since = np.zeros(0)
        self._not_before: dict[int, float] = {}

    def pick(self, keys: Ints, at_most: int | None, now: float) -> Ints:
        """Indexes of the keys that have waited longest; `keys` are all that wait, the others do no more."""
        order = np.argsort(keys)
        sorted_ = keys[order]
        since = np.full(len(keys), now)
        if len(self._keys):
            at = np.minimum(np.searchsorted(self._keys, sorted_), len(self._keys) - 1)
            known = self._keys[at] == sorted_
            since[known] = self._since[at[known]]
        self._keys, self._since = sorted_, since
        self._not_before = {key: due for key, due in self._not_before.items() if due > now}
        open_ = np.flatnonzero(~np.isin(sorted_, np.array(list(self._not_before), np.int64)))
        longest = open_[np.argsort(since[open_], kind="stable")[:at_most]]
        picked: Ints = order[longest]
        return picked

    def defer(self, key: int, until: float) -> None:
        """Leaves a key out until then."""
        self._not_before[key] = until
