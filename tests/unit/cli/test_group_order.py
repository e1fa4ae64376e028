"""The order of groups: the worst first, and quiet while somebody reads."""

import pytest

from koff.cli.group_order import MOVE_S, QuietOrder, Sort, filter_totals, select_lagging, sort_totals
from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal
from tests.unit.cli.totals import total

ERR, WARN, UNKNOWN, OK = Verdict.ERR, Verdict.WARN, Verdict.UNKNOWN, Verdict.OK


def names(totals: list[GroupTotal]) -> list[str]:
    return [each.group.name for each in totals]


def test_the_worst_come_first_by_verdict_then_by_how_late_they_are_for_what_is_allowed_then_by_name():
    totals = [
        total("well-b", status=OK, time_lag_s=400.0, allowance_s=1000.0),
        total("well-a", status=OK, time_lag_s=1.0, allowance_s=1000.0),
        total("nearly", status=OK, time_lag_s=900.0, allowance_s=1000.0),
        total("unknown", status=UNKNOWN, time_lag_s=None, lag=None),
        total("late-b", status=WARN, time_lag_s=300.0, allowance_s=120.0),
        total("late-a", status=WARN, time_lag_s=300.0, allowance_s=120.0),
        total("later", status=WARN, time_lag_s=60.0, allowance_s=15.0),
        total("undated", status=WARN, time_lag_s=None, allowance_s=120.0),
        total("broken", status=ERR, time_lag_s=1.0, allowance_s=120.0),
    ]
    assert names(sort_totals(totals)) == [
        *("broken", "later", "late-a", "late-b", "undated", "unknown", "nearly", "well-a", "well-b"),
    ]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("lag", ["b", "a", "c", "d"]),
        ("time", ["c", "a", "b", "d"]),
        ("name", ["a", "b", "c", "d"]),
    ],
)
def test_other_orders_have_the_worst_first_too_and_unknown_numbers_last(sort, order):
    totals = [
        total("d", lag=None, time_lag_s=None),
        total("a", lag=1, time_lag_s=5.0),
        total("b", lag=9, time_lag_s=None),
        total("c", lag=1, time_lag_s=7.0),
    ]
    assert names(sort_totals(totals, sort)) == order


def test_only_lagging_groups_are_chosen_and_those_whose_lag_is_not_known():
    totals = [total("a", lag=0), total("b", lag=3), total("c", lag=None)]
    assert names(select_lagging(totals, is_lagging=True)) == ["b", "c"]
    assert names(select_lagging(totals, is_lagging=False)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("", ["Pay-eu", "pay-us"]), ("PAY", ["Pay-eu", "pay-us"]), ("eu pay", ["Pay-eu"]), ("x", [])],
)
def test_a_filter_is_parts_of_the_name(text, found):
    assert names(filter_totals([total("Pay-eu"), total("pay-us")], text)) == found


def test_a_filter_in_capitals_chooses_verdicts():
    totals = [total("pay", status=ERR), total("pray", status=WARN), total("ERRORS", status=OK)]
    assert names(filter_totals(totals, "ERR")) == ["pay"]
    assert names(filter_totals(totals, "ERR WARN r")) == ["pray"]
    assert names(filter_totals(totals, "err")) == ["ERRORS"]


class Screen:
    """The worst first, on a screen."""

    def __init__(self) -> None:
        self.order, self.now_s = QuietOrder(), 0.0

    def show(
        self, after_s: float = MOVE_S, *, is_paused: bool = False, sort: Sort = "worst", **verdicts: Verdict
    ) -> str:
        """The names, which are letters, after so many seconds. A group is the later the later its letter."""
        self.now_s += after_s
        totals = [
            total(name, status=verdict, time_lag_s=float(ord(name)), allowance_s=1.0, lag=ord(name))
            for name, verdict in verdicts.items()
        ]
        return "".join(names(self.order.arrange(totals, sort, self.now_s, is_paused=is_paused)))


def test_a_row_moves_only_when_its_verdict_changes():
    screen = Screen()
    assert screen.show(a=OK, b=OK, c=OK) == "cba"
    assert screen.show(a=OK, b=ERR, c=OK) == "bca"
    # c is later than b now, and stays where it is: both were ERR before.
    assert screen.show(a=ERR, b=ERR, c=OK) == "bac"
    assert screen.show(a=OK, b=ERR, c=OK) == "bca"


def test_how_late_a_group_is_moves_no_row():
    order = QuietOrder()
    early = [
        total(name, status=WARN, time_lag_s=late, allowance_s=1.0) for name, late in (("a", 9.0), ("b", 2.0))
    ]
    later = [
        total(name, status=WARN, time_lag_s=late, allowance_s=1.0) for name, late in (("a", 9.0), ("b", 99.0))
    ]
    assert names(order.arrange(early, "worst", 0.0, is_paused=False)) == ["a", "b"]
    assert names(order.arrange(later, "worst", 100.0, is_paused=False)) == ["a", "b"]


def test_rows_move_every_ten_seconds_at_most():
    screen = Screen()
    screen.show(a=OK, b=OK)
    assert screen.show(MOVE_S, a=ERR, b=OK) == "ab"
    assert screen.show(MOVE_S - 1, a=ERR, b=ERR) == "ab"
    assert screen.show(0.5, a=OK, b=ERR) == "ab"
    assert screen.show(0.5, a=OK, b=ERR) == "ba"


def test_after_a_quiet_time_a_row_moves_at_once():
    screen = Screen()
    screen.show(a=OK, b=OK)
    screen.show(60, a=OK, b=OK)
    assert screen.show(1, a=ERR, b=OK) == "ab"


def test_no_row_moves_while_the_order_is_paused_and_all_do_after_it():
    screen = Screen()
    screen.show(a=OK, b=OK)
    assert screen.show(60, is_paused=True, a=ERR, b=OK) == "ba"
    assert screen.show(1, a=ERR, b=OK) == "ab"


def test_new_groups_are_the_last_until_rows_may_move_and_gone_ones_leave_no_gap():
    screen = Screen()
    screen.show(b=OK, c=OK)
    assert screen.show(1, b=OK, c=OK, d=ERR, a=ERR) == "cbad"
    assert screen.show(MOVE_S, b=OK, d=ERR, a=ERR) == "dab"


def test_a_group_that_is_back_is_placed_again():
    screen = Screen()
    screen.show(a=ERR, b=OK)
    screen.show(b=OK)
    assert screen.show(a=OK, b=OK) == "ba"


def test_another_order_begins_at_once():
    screen = Screen()
    screen.show(a=ERR, b=OK)
    assert screen.show(0, a=ERR, b=OK, sort="lag", is_paused=True) == "ba"
