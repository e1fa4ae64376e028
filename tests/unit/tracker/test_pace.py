"""How fast groups consume, and when they will have caught up, as rows and as JSON."""

import json

import pytest

from koff.cli.lag import _print_json
from koff.tracker import Tracker
from koff.tracker.rows import Pace
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from tests.unit.builders import apply, commit

NOW_MS = 1_800_000_000_000


@pytest.fixture
def tracker():
    """A hundred seconds of t-0, which grows by 5 a second, and of groups that consume it at various rates."""
    tracker = Tracker()
    rates = {"fast": 10, "slow": 1, "stopped": 50}
    for second in range(0, 110, 10):
        at_ms = NOW_MS - 100_000 + second * 1000
        tracker.add_samples(ends={("t", 0): 5000 + second * 5}, at_ms=at_ms)
        pairs = [
            commit(group, "t", 0, rate * second, at=at_ms)
            for group, rate in rates.items()
            if group != "stopped" or second <= 30
        ]
        apply(tracker, *pairs, seen_at_ms=at_ms)
    never = commit("one-commit", "t", 0, 3, at=NOW_MS)
    tracker.apply(0, [never[0]], [never[1]])
    return tracker


def test_a_row_says_how_fast_it_goes_and_when_it_will_be_there_or_that_it_never_will(tracker):
    paces = {row.group: row.pace for row in tracker.take_snapshot(NOW_MS).rows()}
    assert paces["fast"] == Pace(10, 5, (5500 - 1000 - 50) / (10 - 5), False)
    assert paces["slow"] == Pace(1, 5, None, True)
    assert paces["one-commit"] == Pace(None, 5, None, None)
    assert paces["stopped"].never is True
    assert paces["stopped"].consume_per_s == pytest.approx(1500 / 90, abs=0.1)  # more than is produced


def test_without_a_time_nothing_is_said_of_rates(tracker):
    assert {row.pace for row in tracker.take_snapshot().rows()} == {Pace()}


def test_never_is_null_and_a_flag_in_json_and_what_is_not_known_is_null(tracker, capsys):
    snapshot = tracker.take_snapshot(NOW_MS)
    view = ClusterView("c", snapshot, Readiness(True, "ready"), MonitorStats())
    _print_json(view, list(snapshot.rows()), snapshot.totals())
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    fields = ("consume_per_s", "catch_up_s", "never_catches_up", "complete")
    for kind in ("groups", "partitions"):
        found = {each["group"]: tuple(each[name] for name in fields) for each in document[kind]}
        assert found["fast"] == (10, 890, False, 1)
        assert found["slow"] == (1, None, True, 1)
        assert found["one-commit"] == (None, None, None, 0.1 if kind == "partitions" else 0)
