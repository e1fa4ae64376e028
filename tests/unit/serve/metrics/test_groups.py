"""What /metrics says of groups besides their lags, and of the topics that the cluster lists."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koff.lag import Reason
from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, TopicFacts
from tests.unit.builders import ASSIGNED_T_0_1, NOTHING_ASSIGNED, apply, classic_group, commit
from tests.unit.serve.metrics.served import text, values
from tests.unit.serve.views import EVERYTHING, NOW_MS, take_view, withhold


def two_partitions(committed: tuple[int, int], *, start: int = 0, end: int = 100) -> Tracker:
    """Group g on two partitions of t with these commits."""
    tracker = Tracker()
    commits = (commit("g", "t", partition, offset) for partition, offset in enumerate(committed))
    apply(tracker, *commits, seen_at_ms=NOW_MS - 5000)
    partitions = [("t", 0), ("t", 1)]
    tracker.add_samples(
        ends=dict.fromkeys(partitions, end), starts=dict.fromkeys(partitions, start), at_ms=NOW_MS
    )
    return tracker


LOST, MARGIN, RATIO = (
    "koff_group_lost_records",
    "koff_group_retention_margin_records",
    "koff_group_retention_margin_ratio",
)


def margins(view: ClusterView) -> tuple[float | None, ...]:
    """What is served of group g: lost records, margin in records, margin as a ratio."""
    served = text(view)
    return tuple(values(served, name).get('group="g"') for name in (LOST, MARGIN, RATIO))


@pytest.mark.parametrize(
    ("committed", "start", "expected"),
    [
        ((60, 30), 20, (0, 10, 0.125)),
        ((60, 3), 0, (0, 3, 1)),  # nothing was deleted yet: no danger
        ((5, 12), 20, (23, 0, 0)),  # records that were lost are summed
        ((100, 100), 100, (0, None, 1)),  # without a lag, nothing can be lost
        ((90, 100), 100, (10, 0, 0)),  # a log that lost all its records
    ],
)
def test_the_margin_is_that_of_the_partition_with_a_lag_that_is_nearest_to_its_log_start(
    committed: tuple[int, int], start: int, expected: tuple[float | None, ...]
):
    assert margins(take_view(two_partitions(committed, start=start))) == expected


def test_the_margin_is_absent_while_a_log_start_or_a_lag_is_not_known():
    tracker = two_partitions((60, 30), start=20)
    apply(tracker, commit("g", "u", 0, 5))
    tracker.add_samples(ends={("u", 0): 9}, at_ms=NOW_MS)
    assert margins(take_view(tracker)) == (None, None, None)
    tracker.add_samples(starts={("u", 0): 1})
    assert margins(take_view(tracker)) == (0, 4, 0.125)
    hidden = withhold(tracker, {("g", "t", 0): Reason.END_NOT_CURRENT})
    assert margins(hidden) == (None, None, None)


def test_partitions_without_a_lag_are_counted_once_by_reason():
    tracker = two_partitions((60, 30))
    apply(tracker, commit("g", "t", 2, -1), commit("g", "gone", 0, 1), commit("g", "new", 0, 1))
    tracker.partitions.forget_offsets([("gone", 0)])
    view = withhold(tracker, {("g", "t", 0): Reason.COMMITS_NOT_CURRENT | Reason.END_NOT_CURRENT})
    assert values(text(view), "koff_group_partitions_without_lag") == {
        'group="g",reason="commits_not_current"': 1,
        'group="g",reason="topic_gone"': 1,
        'group="g",reason="no_commit"': 1,
        'group="g",reason="end_unknown"': 1,
    }


def test_partitions_that_do_not_keep_up_are_counted_by_status():
    tracker, name = Tracker(), "koff_group_partitions_not_ok"
    # Partition 0 falls behind, 1 and 2 repeat their offset, 3 goes back, and 4 keeps up.
    for second in range(0, 330, 30):
        at_ms = NOW_MS - 300_000 + second * 1000
        ends = dict.fromkeys((0, 1, 2, 3), 10 + 2 * second) | {4: 10 + second}
        tracker.add_samples(ends={("t", p): end for p, end in ends.items()}, at_ms=at_ms)
        committed = {0: 10 + second, 1: 10, 2: 10, 3: 310 - second, 4: 10 + second}
        apply(tracker, *(commit("g", "t", p, offset, at=at_ms) for p, offset in committed.items()))
    expected = {'group="g",status="WARN"': 2, 'group="g",status="ERR"': 2}
    assert values(text(take_view(tracker)), name) == expected
    assert values(text(withhold(tracker, {("g", "t", 4): Reason.END_NOT_CURRENT})), name) == {}


def test_commits_beyond_the_end_of_the_log_are_counted():
    name = "koff_group_partitions_ahead_of_log"
    assert values(text(take_view(two_partitions((60, 30)))), name) == {'group="g"': 0}
    tracker = two_partitions((60, 130))
    assert values(text(take_view(tracker)), name) == {'group="g"': 1}
    assert values(text(withhold(tracker, {("g", "t", 0): Reason.END_NOT_CURRENT})), name) == {}


def test_members_without_partitions_are_counted_where_assignments_are_known():
    tracker = Tracker()
    apply(
        tracker,
        classic_group("g", {"a": ASSIGNED_T_0_1, "b": NOTHING_ASSIGNED, "c": NOTHING_ASSIGNED}),
        classic_group("connect", {"a": b"unknown"}, protocol_type="connect"),
        commit("simple", "t", 0, 1),
    )
    name = "koff_group_members_without_assignment"
    assert values(text(take_view(tracker)), name) == {'group="g"': 2}
    assert values(text(withhold(tracker, {}, stale_groups="g")), name) == {}


def test_a_rebalance_is_a_generation_that_grows():
    tracker, exposition = Tracker(), Exposition(EVERYTHING)
    apply(tracker, classic_group("g", {"a": ASSIGNED_T_0_1}), commit("simple", "t", 0, 1))
    served = text(take_view(tracker), exposition)
    assert values(served, "koff_group_epoch") == {'group="g"': 7}
    assert values(served, "koff_group_rebalances_total") == {'group="g"': 0}
    grown = classic_group("g", {"a": ASSIGNED_T_0_1}, generation=9)
    apply(tracker, grown, commit("new", "t", 0, 1))  # another group makes other labels
    served = text(take_view(tracker), exposition)
    assert values(served, "koff_group_epoch") == {'group="g"': 9}
    assert values(served, "koff_group_rebalances_total") == {'group="g"': 2}


def test_the_info_of_a_group_has_its_coordinator_and_escapes_what_members_say():
    tracker = Tracker()
    apply(tracker, classic_group("g", {"a": b"?"}, protocol_type='"\\\n'))
    view = replace(take_view(tracker), facts=ClusterFacts(brokers=2, coordinators=(5,)))
    families = {family.name: family.samples for family in text_string_to_metric_families(text(view))}
    (sample,) = families["koff_group_info"]
    assert sample.labels == {
        "cluster": "c",
        "group": "g",
        "type": "classic",
        "protocol_type": '"\\\n',
        "protocol": "range",
        "coordinator": "5",
    }
    for coordinators in ((), (-1,)):
        view = replace(view, facts=ClusterFacts(coordinators=coordinators))
        assert 'coordinator=""} 1\n' in text(view)


def test_groups_whose_commits_a_transaction_may_hold_back_are_named():
    tracker, name = Tracker(), "koff_group_commits_held_back"
    for partition, group in enumerate("gh"):
        apply(tracker, commit(group, "t", 0, 1), partition=partition)
    view = take_view(tracker)
    assert values(text(view), name) == {}
    view = replace(view, stats=replace(view.stats, held_back_partitions=frozenset({1})))
    assert values(text(view), name) == {'group="h"': 1}


def test_topics_are_listed_also_those_that_no_group_reads():
    facts = ClusterFacts(3, {"a": TopicFacts(4, 3, 1, 2), 'b"': TopicFacts(1, 1)})
    served = text(replace(take_view(Tracker()), facts=facts))
    assert {
        name: list(values(served, f"koff_{name}").values())
        for name in (
            "topic_partitions",
            "topic_replication_factor",
            "topic_leaderless_partitions",
            "topic_under_replicated_partitions",
            "brokers",
        )
    } == {
        "topic_partitions": [4, 1],
        "topic_replication_factor": [3, 1],
        "topic_leaderless_partitions": [1, 0],
        "topic_under_replicated_partitions": [2, 0],
        "brokers": [3],
    }
    assert 'koff_topic_partitions{cluster="c",topic="b\\""} 1\n' in served
    assert "koff_brokers" not in text(take_view(Tracker()))


def test_sizes_of_logs_are_by_broker_and_topic_and_those_of_brokers_are_whole():
    sizes = {2: {"a": 7, "hidden": 100}, 1: {"a": 5, "b": 0}}
    facts = ClusterFacts(3, {"a": TopicFacts(1, 2), "b": TopicFacts(1, 1)}, log_sizes=sizes)
    served = text(replace(take_view(Tracker()), facts=facts))
    assert values(served, "koff_topic_log_size_bytes") == {
        'topic="a",broker="1"': 5,
        'topic="b",broker="1"': 0,
        'topic="a",broker="2"': 7,
    }
    assert values(served, "koff_broker_log_size_bytes") == {'broker="1"': 5, 'broker="2"': 107}
    assert "log_size" not in text(replace(take_view(Tracker()), facts=replace(facts, log_sizes={})))


def test_the_limit_counts_a_series_for_each_broker():
    sizes = {broker: {"a": 7, "b": 8} for broker in range(5)}
    facts = ClusterFacts(5, {"a": TopicFacts(1, 2), "b": TopicFacts(1, 1)}, log_sizes=sizes)
    exposition = Exposition(MetricsConf(families=("koff_topic_log_size_bytes",), max_series=5))
    served = text(replace(take_view(Tracker()), facts=facts), exposition)
    assert len(values(served, "koff_topic_log_size_bytes")) == 5
    assert exposition.count_series()["c"].left_out == 5
