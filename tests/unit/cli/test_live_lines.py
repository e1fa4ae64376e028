"""The lines around the list of the live view."""

import pytest

from koff.cli.live_lines import describe_cluster, describe_keys, fit_encoding
from koff.cli.live_state import LiveState
from koff.cli.text_table import measure_text
from koff.lag.verdict import Verdict
from tests.unit.cli.totals import total


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("▁▄█ a…b", "utf-8", "▁▄█ a…b"),
        ("▁▄█ a…b", "ascii", "_=@ a~b"),
        ("group \u65e5", "ascii", "group \\u65e5"),
        ("caf\xe9 █", "latin-1", "caf\xe9 @"),
        ("plain", "ascii", "plain"),
    ],
)
def test_a_terminal_without_utf_8_gets_characters_that_it_has(text, encoding, shown):
    assert fit_encoding(text, encoding) == shown


TOTALS = [total("a"), total("b", status=Verdict.ERR), total("c", lag=None, withheld=1), total("d")]


@pytest.mark.parametrize(
    ("age_s", "width", "lines"),
    [
        (None, 80, ["koff  c  connecting ..."]),
        (0.4, 80, ["koff  now  c  4 groups", "1 ERR  0 WARN  0 UNKNOWN  3 OK  1 withheld"]),
        (75.0, 100, ["koff  1 min 15 s old  c  4 groups  1 ERR  0 WARN  0 UNKNOWN  3 OK  1 withheld"]),
    ],
)
def test_the_head_says_how_many_groups_have_which_verdict_and_how_old_that_is(age_s, width, lines):
    assert describe_cluster("c", TOTALS, age_s, width) == lines


def test_the_head_counts_nothing_while_groups_are_not_known():
    assert describe_cluster("c", None, 0.0, 80) == ["koff  now  c  groups unknown"]


def test_the_head_fits_the_smallest_terminal():
    many = [*TOTALS, *[total("x")] * 20_031]
    assert max(map(measure_text, describe_cluster("cluster" * 20, many, 75.0, 60))) <= 60


def test_the_foot_says_what_is_shown_and_whether_the_order_is_paused():
    state = LiveState(sort="lag", is_lagging=True, text="pay")
    shown = describe_keys(state, is_paused=True)
    assert shown.startswith("order paused, by lag, only lagging, filter: pay  |  q quit  ? help")
    assert "paused" not in describe_keys(LiveState(), is_paused=False)
    assert describe_keys(LiveState(is_typing=True, text="pa"), is_paused=True).startswith("filter: pa_ ")
    assert describe_keys(LiveState(page="group"), is_paused=False).startswith("esc back")
    assert "esc" not in describe_keys(LiveState(page="group", home="group"), is_paused=False)
