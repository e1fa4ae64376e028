"""What /metrics says of the members of groups: who is slow."""

from dataclasses import replace

import pytest

from koff.lag import Reason
from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView
from tests.group_records import assign
from tests.unit.builders import apply, classic_group, commit, note_records
from tests.unit.serve.metrics.served import text, values
from tests.unit.serve.views import NOW_MS, take_view, withhold

LAG, SECONDS, RATE = (
    "koff_group_member_lag",
    "koff_group_member_lag_seconds",
    "koff_group_member_consumed_per_second",
)
CONF = MetricsConf(families=(LAG, SECONDS, RATE))


def fill_tracker() -> Tracker:
    """Group g, whose members a and b read two partitions each, c none; d of group h reads one."""
    tracker = Tracker()
    members = {name: assign(("t", held)) for name, held in (("a", (0, 1)), ("b", (2, 3)), ("c", ()))}
    apply(tracker, classic_group("g", members), classic_group("h", {"d": assign(("t", (0,)))}))
    for second in range(0, 110, 10):
        at_ms = NOW_MS - 100_000 + second * 1000
        tracker.add_samples(ends={("t", each): 100 + second for each in range(4)}, at_ms=at_ms)
        committed = {0: 90 + second, 1: 70 + second, 2: second // 2, 3: second}
        apply(tracker, *(commit("g", "t", each, offset, at=at_ms) for each, offset in committed.items()))
        apply(tracker, commit("h", "t", 0, 100 + second, at=at_ms))
    note_records(tracker, NOW_MS, NOW_MS - 30_000)
    return tracker


def find(view: ClusterView, name: str, conf: MetricsConf = CONF) -> dict[str, float]:
    """The numbers by member id. Each series must have the group and the other labels of its member."""
    found = values(text(view, Exposition(conf)), name)
    members = {}
    for labels, number in found.items():
        group = "h" if 'member_id="d-id"' in labels else "g"
        (member,) = [m for m in "abcd" if f'member_id="{m}-id"' in labels]
        expected = f'group="{group}",member_id="{member}-id",client_id="{member}",client_host="/10.0.0.1"'
        assert labels == expected
        members[member] = number
    return members


def test_lags_and_rates_of_partitions_are_summed_by_member():
    view = take_view(fill_tracker())
    assert find(view, LAG) == {"a": 40, "b": 250, "d": 0}
    assert find(view, RATE) == {"a": 2.0, "b": 1.5, "d": 1.0}


def test_the_longest_lag_in_seconds_of_a_member_is_that_of_its_latest_partition():
    view = take_view(fill_tracker())
    rows = {row.partition: row.time_lag_s for row in view.snapshot.rows() if row.group == "g"}
    found = find(view, SECONDS)
    assert found["a"] == pytest.approx(max(rows[0] or 0, rows[1] or 0), abs=0.001)
    assert found["d"] == 0


def test_a_member_with_a_withheld_partition_has_no_number_and_the_others_have():
    hidden = withhold(fill_tracker(), {("g", "t", 1): Reason.END_NOT_CURRENT})
    assert find(hidden, LAG) == {"b": 250, "d": 0}
    assert set(find(hidden, RATE)) == {"b", "d"}
    assert "a" not in find(hidden, SECONDS)
    stale = withhold(fill_tracker(), {}, stale_groups="g")
    assert set(find(stale, LAG)) == {"d"}


def test_they_are_off_by_default():
    served = text(take_view(fill_tracker()), Exposition(MetricsConf()))
    assert "koff_group_member_" not in served


def test_the_limit_counts_each_member():
    view = take_view(fill_tracker())
    for most, members in ((12, {"a", "b", "d"}), (11, {"a", "b"}), (9, {"a", "b"}), (8, set[str]())):
        assert set(find(view, LAG, replace(CONF, max_series=most))) == members
