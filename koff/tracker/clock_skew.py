"""How far koff's clock is ahead of a broker's, measured with the commits that the broker wrote.

The broker that leads a partition of the offsets topic gives each commit its timestamp. koff reads the commit
a little later. So the arrival by koff's clock minus the timestamp is the skew between the two clocks plus a
delay. The delay is never negative, and sometimes long: a transaction holds commits back, or the broker was
out of reach. So the smallest differences are the best, and a single smallest one would be enough, if no
timestamp could be false. But a client may choose the timestamps of its commits (OffsetCommit version 1), and
a client with write access to the topic may write anything.

A timestamp in the past only makes a difference larger. One in the future makes it the smallest. So the
smallest differences are left out, up to a quarter (`pick_low`), twice: among the newest commits of a group,
and among groups. One commit with a false timestamp changes nothing, nor does a group of four or more of which
all commits are false. The commits of a group within a second count once, because one request may bring many.

What koff reads as history has no arrival, and does not count.
"""

from collections import deque
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_GROUPS = 16
"""So many groups count: more would not make the result better. A group that went silent makes room."""
COMMITS = 8
"""The newest commits of a group that count."""
MIN_COMMITS = 3
"""Fewer commits, of all groups together, tell nothing: one of them may be false."""
SPAN_MS = 600_000
"""Commits that arrived so long before the newest one do not count: the broker's clock may have been set
since, or another broker leads the partition."""
_APART_MS = 1000
_MOST_MS = 100 * 365 * 86_400_000  # no clock is a hundred years wrong, and this does not overflow
_SAMPLE = 16  # commits of a batch: more would not make the result better


class ClockSkew:
    """The skew between koff's clock and that of the broker that leads one partition of the offsets topic.

    Groups are known by any number that stays the same for a while. All times are ms.
    """

    __slots__ = ("_full_until_ms", "_groups", "_newest_ms", "_skew_ms")

    def __init__(self) -> None:
        # By group, the newest commits: when each of them arrived, and the difference.
        self._groups: dict[int, deque[tuple[int, int]]] = {}
        self._newest_ms = self._full_until_ms = 0
        self._skew_ms: int | None = None  # of `measure_ms`, until a commit changes it

    def add(self, group: int, timestamp_ms: int, seen_at_ms: int) -> None:
        """Notes the timestamp of a commit that arrived at `seen_at_ms`. An impossible one does not count."""
        commits = self._groups.get(group)
        if commits is None and seen_at_ms < self._full_until_ms:
            return  # the usual case where there are many groups
        difference_ms = seen_at_ms - timestamp_ms
        if timestamp_ms < 0 or difference_ms < -_MOST_MS:
            return
        if commits is None:
            if len(self._groups) >= MAX_GROUPS and not self._make_room(seen_at_ms):
                return
            commits = self._groups[group] = deque(maxlen=COMMITS)
        self._newest_ms = seen_at_ms
        if not commits or not 0 <= seen_at_ms - commits[-1][0] < _APART_MS:
            commits.append((seen_at_ms, difference_ms))
        elif difference_ms < commits[-1][1]:
            commits[-1] = commits[-1][0], difference_ms
        else:
            return
        self._skew_ms = None

    def add_batch(
        self, groups: NDArray[np.integer[Any]], timestamps_ms: NDArray[np.int64], seen_at_ms: int
    ) -> None:
        """Notes some of the commits (N,) that arrived together, among them the last one."""
        some = slice(None, None, -(len(groups) // _SAMPLE + 1))
        for group, timestamp_ms in zip(groups[some].tolist(), timestamps_ms[some].tolist(), strict=True):
            self.add(group, timestamp_ms, seen_at_ms)

    def measure_ms(self) -> int | None:
        """How far koff's clock is ahead, below 0 if it is behind; None if too few commits were seen."""
        if self._skew_ms is None and self._groups:
            oldest_ms = self._newest_ms - SPAN_MS
            recent = [
                [difference_ms for at_ms, difference_ms in commits if at_ms >= oldest_ms]
                for commits in self._groups.values()
            ]
            if sum(map(len, recent)) >= MIN_COMMITS:
                self._skew_ms = pick_low([pick_low(differences) for differences in recent if differences])
        return self._skew_ms

    def _make_room(self, seen_at_ms: int) -> bool:
        """Whether there is room for a group, after groups without a recent commit were removed."""
        silent = [group for group, commits in self._groups.items() if seen_at_ms - commits[-1][0] > SPAN_MS]
        for group in silent:
            del self._groups[group]
        if not silent:
            oldest_ms = min(commits[-1][0] for commits in self._groups.values())
            self._full_until_ms = oldest_ms + SPAN_MS
        return bool(silent)


def pick_low(differences: Collection[int]) -> int:
    """The smallest difference that is above a quarter of them, and above one at least.

    Of two, it is the one nearer to 0.
    """
    ordered = sorted(differences)
    if len(ordered) < 3:
        return min(ordered, key=abs)
    return ordered[max(1, len(ordered) // 4)]


def find_median(skews_ms: Collection[int]) -> int:
    """The median; of two, the one nearer to 0. 0 if there is none."""
    ordered = sorted(skews_ms)
    if len(ordered) < 3:
        return min(ordered, key=abs, default=0)
    return ordered[len(ordered) // 2]
