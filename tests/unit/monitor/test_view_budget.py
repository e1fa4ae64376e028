"""For how long a view is shared."""

import pytest

from koff.monitor.loop import CREDIT_S, FRESH_S, LONGEST_FRESH_S, PART, ViewBudget


def ask_always(view_s: float, *, seconds: float) -> tuple[float, float]:
    """The part of the time that views take, and for how long the last view is shared."""
    budget, now_s, spent_s, fresh_s = ViewBudget(0.0), 0.0, 0.0, 0.0
    while now_s < seconds:
        now_s += view_s
        spent_s += view_s
        fresh_s = budget.spend(view_s, now_s)
        now_s += fresh_s
    return spent_s / now_s, fresh_s


@pytest.mark.parametrize("view_s", [0.0001, 0.004, 0.02, 0.045])
def test_views_that_are_always_asked_for_take_a_twentieth_of_the_time(view_s):
    part, fresh_s = ask_always(view_s, seconds=1000)
    assert part <= PART * 1.01
    assert FRESH_S <= fresh_s <= LONGEST_FRESH_S


def test_views_that_take_long_are_shared_for_the_longest_time_and_no_longer():
    _, fresh_s = ask_always(3.0, seconds=100)
    assert fresh_s == LONGEST_FRESH_S


@pytest.mark.parametrize("view_s", [0.004, 0.045, CREDIT_S])
def test_a_scrape_every_15_s_gets_a_view_that_is_shared_for_the_least_time(view_s):
    budget = ViewBudget(0.0)
    assert {budget.spend(view_s, at_s) for at_s in range(15, 3000, 15)} == {FRESH_S}


def test_what_was_saved_up_is_limited():
    budget = ViewBudget(0.0)
    assert budget.spend(CREDIT_S + 0.03, 100_000.0) == pytest.approx(0.03 / PART)


def test_a_debt_is_paid_within_the_longest_time():
    budget = ViewBudget(0.0)
    assert budget.spend(60.0, 60.0) == LONGEST_FRESH_S
    assert budget.spend(0.0, 60.0 + LONGEST_FRESH_S) == FRESH_S
