"""Which offsets by time to ask for, so that the age of each uncommitted record is known within 20 %.

The history of end offsets knows nothing of the time before koff started. A request for the offset at a time
tells whether the record at a committed offset is older or younger than that time. So a few requests bisect
the age of each record. Pure: no I/O, no threads, no clock.

The first request is of the shortest age: most groups keep up, and it is the only one that they need. Then
about seven more requests halve the range of ages, on a scale on which each step is the same factor. All
groups of a partition, and all partitions, are asked at the same time. Ages are rounded, so that partitions
share requests.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from koff.lag import PRECISION
from koff.lag.end_history import SHORT_MS
from koff.monitor.requests import TopicPartition

NO_RECORD = -1
"""Response to a request for the offset at a time: no record is that late."""
YOUNGEST_MS = 5_000
"""Ages below this are not asked for: the next samples of end offsets tell them."""
OLDEST_MS = 7 * 24 * 3_600_000
"""The oldest age that is asked for. What is older is served as this age, as a lower bound."""
RETRY_MS = 5_000
"""The pause before a partition is asked again after a request that failed; doubled up to 2 times."""
LOST_MS = 30_000
"""When an open request counts as failed, and when results count as lost (see `PastEnds.wanted`)."""
_STEP = math.log(1.1)  # ages are rounded to powers of 1.1, so that partitions share requests


@dataclass(slots=True)
class _Search:
    """What is known of one partition: points (time, offset at that time), oldest first.

    `requested` are the times of open requests, sent at `requested_ms`. `responded` are the committed offsets
    for which there is nothing more to ask, and `responded_ms` is since when there is nothing for any. The
    partition is left alone until `due_ms`. At `seen_ms`, before the open requests were sent, the record at
    offset `seen` was in the log. The points at the times in `bounded` say only that records up to `seen` are
    older.
    """

    points: list[tuple[int, int]] = field(default_factory=list)
    bounded: set[int] = field(default_factory=set)
    requested: set[int] = field(default_factory=set)
    requested_ms: int = 0
    responded: Sequence[int] | None = None
    responded_ms: int | None = None
    due_ms: float = -math.inf
    failures: int = 0
    seen: int = -1
    seen_ms: int = 0

    def list_intervals(self, committed: Iterable[int]) -> set[int]:
        """The intervals between points in which the records at these offsets were produced.

        Interval n is after point n - 1 and before point n: point n - 1 is the last one with an offset of at
        most the committed offset.
        """
        # The lowest offset at each point and after it: offsets need not rise, if the log has changed.
        lowest = [*accumulate((offset for _, offset in reversed(self.points)), min)][::-1]
        return {bisect_right(lowest, offset) for offset in committed}

    def next_age(self, interval: int, now_ms: int) -> int | None:
        """The age (ms) that divides the interval; None if it is narrow enough, or too old to divide."""
        if not self.points:
            return SHORT_MS
        # The last interval ends when its records were seen.
        until_ms = self.points[interval][0] if interval < len(self.points) else self.seen_ms
        young, old = max(now_ms - until_ms, 0), now_ms - self.points[interval - 1][0] if interval else None
        if young >= OLDEST_MS or (old is not None and old - young <= max(SHORT_MS, young * (PRECISION - 1))):
            return None
        upper = OLDEST_MS * PRECISION if old is None else old
        # The middle on the scale of logarithms. Rounding keeps it inside: the range is wider than a step.
        middle = math.log(max(young, YOUNGEST_MS) * upper) / 2
        return min(round(math.exp(round(middle / _STEP) * _STEP)), OLDEST_MS)

    def choose_times(self, committed: Sequence[int], now_ms: int) -> None:
        """Sets `requested` to the times that divide the ages of the records at `committed`."""
        if self.is_lost(now_ms):
            self.points, self.responded_ms = [], None
        if (newest := max(committed, default=-1)) > self.seen:
            self.seen, self.seen_ms = newest, now_ms
            self.points = [point for point in self.points if point[0] not in self.bounded]
            self.bounded.clear()
        intervals = self.list_intervals(committed)
        ages = {self.next_age(interval, now_ms) for interval in intervals}
        self.requested, self.requested_ms = {now_ms - age for age in ages if age is not None}, now_ms
        if self.requested:
            self.responded = self.responded_ms = None
        else:
            self.responded = committed
            self.responded_ms = now_ms if self.responded_ms is None else self.responded_ms
        # Keep only the points at the ends of these intervals.
        kept = intervals | {interval - 1 for interval in intervals}
        self.points = [point for index, point in enumerate(self.points) if index in kept]

    def is_due(self, committed: Sequence[int], now_ms: int) -> bool:
        """Whether `choose_times` may find something to ask."""
        if self.requested or self.due_ms > now_ms:
            return False
        return self.responded != committed or self.is_lost(now_ms)

    def is_lost(self, now_ms: int) -> bool:
        """Whether records are still undated long after the last result."""
        return self.responded_ms is not None and now_ms - self.responded_ms >= LOST_MS


class PastEnds:
    """Plans the requests for offsets by time. All times are ms by one steady clock of the caller's choice.

    A request has at most `per_request` partitions. At most about `at_once` are open at a time; a partition
    counts once for each time that it is asked for. Partitions take turns: the one that waited longest comes
    first.
    """

    def __init__(self, *, per_request: int = 2_000, at_once: int = 20_000) -> None:
        self._per_request = per_request
        self._at_once = at_once
        self._searches: dict[TopicPartition, _Search] = {}  # the order is that of their turns
        self._open = 0
        self._now_ms = 0
        self._contradicted: set[TopicPartition] = set()

    def wanted(
        self, rows: Mapping[TopicPartition, Sequence[int]], now_ms: int
    ) -> list[tuple[int, frozenset[TopicPartition]]]:
        """The requests to send now: (time, partitions). Give their results to `note` and `note_failed`.

        `rows` has the partitions with records of unknown age, and the offsets of these records: the committed
        offset of a group, or the log start offset if that is higher. Other partitions are forgotten. Give the
        results to the history of end offsets too; then the ages are known, and the rows are left out. Where a
        row is still there half a minute after the last result, the history has lost the results (the log was
        truncated, or the clock was set), or they contradict it (`take_contradicted`). The partition is asked
        anew.
        """
        self._now_ms = now_ms
        self.forget([partition for partition in self._searches if partition not in rows])
        for partition in rows:
            if partition not in self._searches:
                self._searches[partition] = _Search()
        self._give_up_lost(now_ms)
        requests: dict[int, list[TopicPartition]] = {}
        picked = []
        for partition, search in self._searches.items():
            if self._open < self._at_once and search.is_due(rows[partition], now_ms):
                if search.is_lost(now_ms):
                    self._contradicted.add(partition)
                search.choose_times(rows[partition], now_ms)
                self._open += len(search.requested)
                picked.append(partition)
                for at_ms in search.requested:
                    requests.setdefault(at_ms, []).append(partition)
        # Their next turn comes after that of all others.
        for partition in picked:
            self._searches[partition] = self._searches.pop(partition)
        return [
            (at_ms, frozenset(partitions[first : first + self._per_request]))
            for at_ms, partitions in requests.items()
            for first in range(0, len(partitions), self._per_request)
        ]

    def take_contradicted(self) -> set[TopicPartition]:
        """The partitions that the last `wanted` asked again, because the history did not take their results.

        The history may have samples of a log that was truncated since, or records may have timestamps long
        before or after the moment when they were written. Its samples and the results then contradict each
        other for ever, unless it begins again.
        """
        contradicted, self._contradicted = self._contradicted, set()
        return contradicted

    def note(self, offsets: Mapping[TopicPartition, int], timestamp_ms: int) -> None:
        """Notes results: the first offset with a record at `timestamp_ms` or later, or `NO_RECORD`."""
        for partition, offset in offsets.items():
            search = self._searches.get(partition)
            if search is None:
                continue
            self._close(search, timestamp_ms)
            search.failures = 0
            # There is no record of that time or later: so the records up to `seen` are older.
            point = (timestamp_ms, offset)
            if offset == NO_RECORD:
                point = (timestamp_ms, search.seen + 1)
                search.bounded.add(timestamp_ms)
            index = bisect_left(search.points, (timestamp_ms, -1))
            if search.points[index : index + 1] and search.points[index][0] == timestamp_ms:
                search.points[index] = point
            else:
                search.points.insert(index, point)

    def note_failed(self, partitions: Iterable[TopicPartition], timestamp_ms: int, now_ms: int) -> None:
        """Notes that a request for `timestamp_ms` has no result for `partitions`, which are asked later."""
        for partition in partitions:
            search = self._searches.get(partition)
            if search is not None and self._close(search, timestamp_ms):
                search.due_ms = now_ms + RETRY_MS * 2 ** min(search.failures, 2)
                search.failures += 1

    def is_needed(self, partition: TopicPartition, at_ms: int) -> bool:
        """Whether the result for that time is next to the records of unknown age."""
        search = self._searches.get(partition)
        return search is not None and any(time_ms == at_ms for time_ms, _ in search.points)

    def is_done(self, topic: str, partition: int, committed: int) -> bool:
        """Whether nothing more is to be asked for that offset, as of the time of the last `wanted`."""
        search = self._searches.get((topic, partition))
        if search is None:
            return False
        (interval,) = search.list_intervals([committed])
        return committed <= search.seen and search.next_age(interval, self._now_ms) is None

    def partitions(self) -> list[TopicPartition]:
        """The partitions that something is known of, or asked."""
        return list(self._searches)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets results and open requests of partitions whose log, or whose history, is another one now."""
        for partition in partitions:
            search = self._searches.pop(partition, None)
            if search is not None:
                self._open -= len(search.requested)

    def _give_up_lost(self, now_ms: int) -> None:
        """Counts requests as failed that have no result for long."""
        for partition, search in self._searches.items() if self._open else ():
            if search.requested and now_ms - search.requested_ms >= LOST_MS:
                for at_ms in tuple(search.requested):
                    self.note_failed([partition], at_ms, now_ms)

    def _close(self, search: _Search, timestamp_ms: int) -> bool:
        """Whether there was an open request for that time. It is open no more."""
        if timestamp_ms not in search.requested:
            return False
        search.requested.discard(timestamp_ms)
        self._open -= 1
        return True
