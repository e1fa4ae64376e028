"""What was true in the model, and when: end offsets, committed offsets, numbers of members."""

from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import TypeVar

from tests.simulation.logs import PlainLog, find_written_ms

START_S = 200.0
"""So old may the log start offset be that koff knows: it is requested once a minute, and that may fail."""
NOTICED_S = 90.0
"""Within this time koff notices that a log is another one."""

Row = tuple[str, str, int]
"""A group, a topic and a partition."""
KeyT = TypeVar("KeyT", bound=Hashable)


class History:
    """The values of one thing over time. The value is None before the first entry."""

    __slots__ = ("_since", "_values")

    def __init__(self) -> None:
        self._since: list[float] = []
        self._values: list[int | None] = []

    @property
    def present(self) -> int | None:
        """The newest value."""
        return self._values[-1] if self._values else None

    def append(self, at_s: float, value: int | None) -> None:
        """The value from `at_s` on."""
        if value != self.present or not self._values:
            self._since.append(at_s)
            self._values.append(value)

    def within(self, since_s: float, until_s: float) -> set[int | None]:
        """All values between the two moments, both included."""
        first = bisect_right(self._since, since_s) - 1
        # An entry at `since_s` itself has a value before it that was true up to this very moment.
        while first >= 0 and self._since[first] == since_s:
            first -= 1
        values = set(self._values[max(first, 0) : bisect_right(self._since, until_s)])
        return values | {None} if first < 0 else values


class Truth:
    """What was true when. A query without any entry answers None, which means "did not exist"."""

    def __init__(self, is_any: Callable[[str], bool] = lambda group: False) -> None:
        self._is_any = is_any
        self._ends: dict[tuple[str, int], History] = {}
        self._committed: dict[Row, History] = {}
        self._kept: dict[Row, History] = {}
        self._members: dict[str, History] = {}
        self._starts: dict[tuple[str, int], History] = {}
        self._logs: dict[tuple[str, int], list[tuple[float, PlainLog]]] = {}

    def partitions(self) -> list[tuple[str, int]]:
        """The topic partitions that there ever were."""
        return sorted(self._ends)

    def ends(self, topic: str, partition: int, since_s: float, until_s: float) -> set[int | None]:
        """All high watermarks in that time. None: there was no such partition."""
        return _within(self._ends.get((topic, partition)), since_s, until_s)

    def committed(
        self,
        group: str,
        topic: str,
        partition: int,
        since_s: float,
        until_s: float,
        *,
        with_kept: bool = True,
    ) -> set[int | None]:
        """All committed offsets in that time. None: there was no commit, or a negative one.

        For share groups it is the start offset plus the number of completed deliveries. `with_kept`: a commit
        to an earlier topic of that name, which the coordinator has kept, is there too, beside None.
        """
        row = (group, topic, partition)
        kept = _within(self._kept.get(row), since_s, until_s) - {None} if with_kept else set()
        return _within(self._committed.get(row), since_s, until_s) | kept

    def members(self, group: str, since_s: float, until_s: float) -> set[int | None]:
        """All numbers of members that were present. None: there was no such group."""
        return _within(self._members.get(group), since_s, until_s)

    def starts(self, topic: str, partition: int, at_s: float) -> set[int | None]:
        """All log start offsets that koff may take for the present one at `at_s`."""
        return self._starts.get((topic, partition), History()).within(at_s - START_S, at_s)

    def written_ms(self, topic: str, partition: int, offsets: set[int], at_s: float) -> set[int | None]:
        """When the first records at or after these offsets were written, as far as they are still in the log.

        None: there is no such record. It may be a record that was lost in a truncation, or with its topic,
        if that cannot be known yet at `at_s`, or never: when new records soon took its offset. The log start
        offset may be that of some time ago.
        """
        starts = self.starts(topic, partition, at_s)
        logs, found = self._logs.get((topic, partition), []), set[int | None]()
        for number, (_, log) in enumerate(logs):
            histories = [records.history for records in log.former]
            if number == len(logs) - 1 or logs[number + 1][0] >= at_s - NOTICED_S:
                histories.append(log.history)
            for offset in offsets:
                first = {max(offset, start or 0) for start in starts}
                found |= {find_written_ms(history, each) for history in histories for each in first}
        return found

    def rows(self) -> dict[Row, int]:
        """All commits at present, of groups that are not "any". The topic may not exist."""
        present = {
            row: history.present for row, history in self._committed.items() if history.present is not None
        }
        known = {group for group in dict.fromkeys(row[0] for row in present) if not self.is_any(group)}
        return {row: offset for row, offset in present.items() if row[0] in known}

    def groups(self) -> dict[str, int]:
        """All groups at present with their number of members, without the groups that are "any"."""
        return {
            group: history.present
            for group, history in self._members.items()
            if history.present is not None and not self.is_any(group)
        }

    def is_any(self, group: str) -> bool:
        """Whether nothing is asserted of this group, but that no two of its rows have the same labels.

        These are the groups of hostile records; groups that are in the wrong partition, while coordinators
        or koff do not know that `__consumer_offsets` has grown; and groups whose records were lost, but not
        their share state. The last two until half a minute after that.
        """
        return self._is_any(group)

    def set_end(self, topic: str, partition: int, at_s: float, end: int | None) -> None:
        """The high watermark from now on. None: the partition does not exist."""
        _history(self._ends, (topic, partition)).append(at_s, end)

    def set_start(self, topic: str, partition: int, at_s: float, start: int) -> None:
        """The log start offset from now on."""
        _history(self._starts, (topic, partition)).append(at_s, start)

    def set_log(self, topic: str, partition: int, at_s: float, log: PlainLog) -> None:
        """The log from now on, with the times of its records."""
        self._logs.setdefault((topic, partition), []).append((at_s, log))
        self.set_start(topic, partition, at_s, log.start)

    def allow_committed(self, row: Row, at_s: float, offset: int) -> None:
        """A committed offset that a reader of the log may take for the present one at that moment."""
        history = self._committed.setdefault(row, History())
        present = history.present
        history.append(at_s, offset if offset >= 0 else None)
        history.append(at_s, present)

    def set_committed(self, row: Row, at_s: float, offset: int | None) -> None:
        """The committed offset from now on. None or negative: there is no commit."""
        known = offset is not None and offset >= 0
        _history(self._committed, row).append(at_s, offset if known else None)

    def set_kept(self, row: Row, at_s: float, offset: int | None) -> None:
        """The commit to an earlier topic of that name that the coordinator has from now on; None: none."""
        _history(self._kept, row).append(at_s, offset)

    def set_members(self, group: str, at_s: float, members: int | None) -> None:
        """The number of members from now on. None: the group does not exist."""
        _history(self._members, group).append(at_s, members)


def _history(histories: dict[KeyT, History], key: KeyT) -> History:
    found = histories.get(key)
    if found is None:
        found = histories[key] = History()
    return found


def _within(history: History | None, since_s: float, until_s: float) -> set[int | None]:
    return {None} if history is None else history.within(since_s, until_s)
