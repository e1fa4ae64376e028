"""Which groups are shown, and in which order: the worst first, and quiet while somebody reads. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal
from koff.view.verdicts import CALM, WORST_FIRST

Sort = Literal["worst", "lag", "time", "name"]
SORTS: tuple[Sort, ...] = ("worst", "lag", "time", "name")
MOVE_S = 10.0
"""Rows on the screen move so often at most."""
Place = tuple[tuple[float, ...], tuple[float | str, ...]]
"""The place of a group in an order. Only another first part moves a row that is on the screen."""
_LAST: Place = (math.inf,), ()


def find_place(total: GroupTotal, sort: Sort) -> Place:
    """The place of a group: names ascending, all else from the worst on, unknown numbers last.

    In the order `worst`, the first part is the verdict. The second part is the time lag, as a share of the
    allowance. Groups that are well are in the order of their names.
    """
    name = total.group.name
    if sort == "worst":
        late_s, allowance_s = total.time_lag_s, total.allowance_s
        late = -1.0 if late_s is None or allowance_s is None else late_s / max(allowance_s, 1e-9)
        late = 0.0 if 0 <= late <= CALM else late
        return (WORST_FIRST.index(total.status),), (-late, name)
    number = {"lag": total.lag, "time": total.time_lag_s, "name": 0}[sort]
    return (number is None, -(number or 0)), (name,)


def sort_totals(totals: Iterable[GroupTotal], sort: Sort = "worst") -> list[GroupTotal]:
    """The totals in order."""
    return sorted(totals, key=lambda total: find_place(total, sort))


def select_lagging(totals: list[GroupTotal], *, is_lagging: bool) -> list[GroupTotal]:
    """The totals, if `is_lagging` without those that have no lag: a lag that is not known stays."""
    return [total for total in totals if total.lag != 0] if is_lagging else totals


def filter_totals(totals: Sequence[GroupTotal], text: str) -> list[GroupTotal]:
    """The groups whose name contains all words of the text, whatever the case; ERR chooses by verdict."""
    words = text.split()
    names = [word.casefold() for word in words if word not in Verdict.__members__]
    verdicts = {Verdict[word] for word in words if word in Verdict.__members__} or set(Verdict)
    return [
        total
        for total in totals
        if total.status in verdicts and all(name in total.group.name.casefold() for name in names)
    ]


class QuietOrder:
    """The order of the groups on a screen.

    In the order `worst`, a row moves only when its verdict changes. In another order, it moves when its
    number changes. All such rows move at once: at most every `MOVE_S`, and not while the order is paused.
    Until then, new groups are the last.
    """

    def __init__(self) -> None:
        self._sort: Sort | None = None
        self._places: dict[str, Place] = {}
        self._moved_s = -math.inf

    def arrange(
        self, totals: Sequence[GroupTotal], sort: Sort, now_s: float, *, is_paused: bool
    ) -> list[GroupTotal]:
        """The totals in order. Another `sort` begins a new order at once. `now_s` is monotonic."""
        wanted = {total.group.name: find_place(total, sort) for total in totals}
        if sort != self._sort:
            self._sort, self._places, self._moved_s = sort, wanted, now_s
        elif not is_paused and now_s - self._moved_s >= MOVE_S:
            kept = {name: self._places.get(name, _LAST) for name in wanted}
            places = {
                name: kept[name] if kept[name][0] == place[0] else place for name, place in wanted.items()
            }
            self._moved_s = now_s if places != self._places else self._moved_s
            self._places = places
        # Groups that come between are the last, by name.
        return sorted(
            totals, key=lambda total: self._places.get(total.group.name, (_LAST[0], (total.group.name,)))
        )
