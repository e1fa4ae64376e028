"""The exposition: what a scrape shows, to the byte."""

import re
from dataclasses import replace

import numpy as np
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from koff.lag import Reason
from koff.records import encode
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.families import FAMILIES
from koff.tracker import Tracker
from tests.group_records import Consumer
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit
from tests.unit.records.decoding import GOLDEN
from tests.unit.serve.metrics.served import text, two_groups
from tests.unit.serve.views import EVERYTHING, NOW_MS, Row, build_view, take_view, withhold

EXPECTED = (GOLDEN / "metrics.prom").read_text()


def test_every_family_as_it_is_served():
    tracker = Tracker()
    apply(
        tracker,
        classic_group("g", {"app": ASSIGNED_T_0_1}),
        commit("g", "t", 0, 2, at=NOW_MS - 10_000),
        commit("g", "t", 0, 4, at=NOW_MS),
        commit("g", "t", 1, 9),
        commit("g", "gone", 0, 1),
    )
    tracker.add_samples(
        ends={("t", 0): 4, ("t", 1): 5}, starts={("t", 0): 2, ("t", 1): 0}, at_ms=NOW_MS - 10_000
    )
    tracker.add_samples(ends={("t", 0): 10, ("t", 1): 5}, at_ms=NOW_MS)
    served = text(take_view(tracker))
    assert re.sub("# HELP .*\n", "", served) == EXPECTED
    heads = [line for line in served.splitlines() if line.startswith("# HELP")]
    assert heads == [f"# HELP {f.name} {f.text}" for f in FAMILIES if f"{f.name}{{" in EXPECTED]


def test_the_time_until_a_group_has_caught_up_is_that_of_its_slowest_partition():
    tracker = Tracker()
    for second in range(0, 110, 10):
        at_ms = NOW_MS - 100_000 + second * 1000
        ends = {("t", 0): 1000 + second * 5, ("t", 1): 2000, ("u", 0): 7}
        tracker.add_samples(ends=ends, at_ms=at_ms)
        commits = [commit("g", "t", 0, second * 10, at=at_ms), commit("g", "t", 1, second * 20, at=at_ms)]
        commits += [commit("done", "u", 0, 7, at=at_ms), commit("slow", "t", 0, second, at=at_ms)]
        apply(tracker, *commits, commit("new", "t", 0, 5, at=NOW_MS))
    served = text(take_view(tracker))
    assert 'koff_group_topic_consumed_per_second{cluster="c",group="g",topic="t"} 30.0\n' in served
    assert 'koff_partition_produced_per_second{cluster="c",topic="t",partition="0"} 5.0\n' in served
    # t-0: 500 behind, of which 50 are usual, at 10 - 5 a second; t-1: 0 behind
    assert 'koff_group_catch_up_seconds{cluster="c",group="g"} 90.0\n' in served
    assert 'koff_group_catch_up_seconds{cluster="c",group="done"} 0.0\n' in served
    assert 'koff_group_catch_up_seconds{cluster="c",group="slow"}' not in served
    assert 'koff_group_catch_up_seconds{cluster="c",group="new"}' not in served
    assert 'koff_group_completeness_ratio{cluster="c",group="g"} 1.0\n' in served
    assert 'koff_group_completeness_ratio{cluster="c",group="new"} 0.0\n' in served


def test_rates_are_withheld_with_the_lag_that_they_belong_to():
    tracker = Tracker()
    for second in (0, 10):
        apply(tracker, commit("g", "t", 0, second, at=NOW_MS - 10_000 + second * 1000))
        tracker.add_samples(ends={("t", 0): 10 + second}, at_ms=NOW_MS - 10_000 + second * 1000)
    names = (
        "koff_group_topic_consumed_per_second",
        "koff_partition_produced_per_second",
        "koff_group_catch_up_seconds",
    )
    assert all(f"{name}{{" in text(take_view(tracker)) for name in names)
    served = text(withhold(tracker, {("g", "t", 0): Reason.END_NOT_CURRENT}))
    assert not any(name in served for name in names)


def test_numbers_change_and_series_come_and_go_between_scrapes():
    tracker = Tracker()
    exposition = Exposition(EVERYTHING)
    tracker.add_samples(ends={("t", 0): 10})
    apply(tracker, commit("g", "t", 0, 4))
    assert 'koff_group_lag{cluster="c",group="g",topic="t",partition="0"} 6\n' in text(
        take_view(tracker), exposition
    )
    apply(tracker, commit("g", "t", 0, 7), commit("h", "t", 0, 1))
    assert 'koff_group_lag{cluster="c",group="g",topic="t",partition="0"} 3\n' in text(
        take_view(tracker), exposition
    )
    assert 'koff_group_total_lag{cluster="c",group="h"} 9\n' in text(take_view(tracker), exposition)
    apply(tracker, commit("g", "t", 0, None))
    assert 'group="g"' not in text(take_view(tracker), exposition)
    apply(tracker, commit("new", "t", 0, 2))
    assert 'koff_group_lag{cluster="c",group="new",topic="t",partition="0"} 8\n' in text(
        take_view(tracker), exposition
    )


def test_a_shard_that_was_replaced_does_not_show_old_names():
    tracker = Tracker()
    exposition = Exposition(EVERYTHING)
    apply(tracker, commit("before", "t", 0, 4))
    assert "before" in text(take_view(tracker), exposition)
    tracker.reset_partition(0)
    apply(tracker, commit("after", "t", 0, 4))
    assert "before" not in text(take_view(tracker), exposition)
    assert "after" in text(take_view(tracker), exposition)


def test_names_with_quotes_backslashes_and_line_ends_survive_a_parser():
    tracker = Tracker()
    name = 'a"b\\c\nd'
    apply(tracker, commit(name, "t", 0, 4))
    tracker.add_samples(ends={("t", 0): 5})
    families = {f.name: f for f in text_string_to_metric_families(text(take_view(tracker, name)))}
    (sample,) = families["koff_group_lag"].samples
    assert (sample.labels["group"], sample.labels["cluster"], sample.value) == (name, name, 1)


def test_a_group_without_a_known_lag_has_no_total_and_still_its_state():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 4))
    served = text(take_view(tracker))
    assert "koff_group_total_lag{" not in served
    assert "NaN" not in served
    assert 'koff_group_state{cluster="c",group="g",state="Empty"} 1\n' in served


def series(served: str, group: str | None = None) -> set[str]:
    """The names and labels of the series, of one group or of all, besides those that say what is withheld."""
    ignored = ("#", "koff_group_partitions_without_lag")
    lines = [line.rpartition(" ")[0] for line in served.splitlines() if not line.startswith(ignored)]
    return {line for line in lines if group is None or f'group="{group}"' in line}


ROW_FAMILIES = {"koff_group_lag", "koff_group_lag_seconds"}
GROUP_FAMILIES = {
    "koff_group_total_lag",
    "koff_group_max_lag_seconds",
    "koff_group_catch_up_seconds",
    "koff_group_status",
    "koff_group_partitions_ahead_of_log",
    "koff_group_lost_records",
    "koff_group_retention_margin_records",
    "koff_group_retention_margin_ratio",
    "koff_group_member_lag",
    "koff_group_member_lag_seconds",
    "koff_group_member_consumed_per_second",
}
TOPIC_FAMILIES = {"koff_group_topic_lag", "koff_group_topic_consumed_per_second"}
PARTITION_FAMILIES = {
    "koff_partition_end_offset",
    "koff_partition_start_offset",
    "koff_partition_produced_per_second",
    "koff_topic_messages_total",
}


def test_a_row_with_an_end_that_is_not_current_takes_its_sums_with_it_and_nothing_else():
    tracker = two_groups()
    before = series(text(take_view(tracker)))
    after = text(withhold(tracker, {("g", "t", 0): Reason.END_NOT_CURRENT}))
    gone = before - series(after)
    assert {line.partition("{")[0] for line in gone} == {
        *ROW_FAMILIES,
        *GROUP_FAMILIES,
        *TOPIC_FAMILIES,
        *PARTITION_FAMILIES,
    }
    assert all('topic="t"' in line for line in gone if "topic=" in line)
    assert all('group="g"' in line for line in gone if "group=" in line)
    assert series(after) - before == {'koff_group_status{cluster="c",group="g",status="UNKNOWN"}'}
    assert 'koff_rows_withheld{cluster="c",reason="end_not_current"} 1\n' in after
    assert 'koff_rows_withheld{cluster="c",reason="commits_not_current"} 0\n' in after


def test_a_row_with_a_commit_that_is_not_current_has_no_committed_offset_and_the_end_stays():
    tracker = two_groups()
    before = series(text(take_view(tracker)))
    gone = before - series(text(withhold(tracker, {("g", "t", 0): Reason.COMMITS_NOT_CURRENT})))
    assert {line.partition("{")[0] for line in gone} == {
        *ROW_FAMILIES,
        *GROUP_FAMILIES,
        *TOPIC_FAMILIES,
        "koff_group_topic_consumed_total",
        "koff_group_committed_offset",
        "koff_group_completeness_ratio",
    }


def test_of_groups_that_may_be_half_read_nothing_is_served_but_rows_that_are_current():
    tracker = two_groups()
    bits: dict[Row, Reason] = {(group, "t", 0): Reason.COMMITS_NOT_CURRENT for group in "gh"}
    served = series(text(withhold(tracker, bits, stale_groups="gh")))
    assert {line.partition("{")[0] for line in served if "group=" in line} == ROW_FAMILIES
    bits |= {(group, "u", 0): Reason.COMMITS_NOT_CURRENT for group in "gh"}
    view = withhold(tracker, bits, stale_groups="gh")
    assert not [line for line in series(text(view)) if "group=" in line]
    assert 'koff_rows_withheld{cluster="c",reason="commits_not_current"} 4\n' in text(view)


def test_a_group_that_is_not_current_hides_no_other_group_of_its_partition():
    tracker = two_groups()
    before = text(take_view(tracker))
    bits: dict[Row, Reason] = {("g", topic, 0): Reason.COMMITS_NOT_CURRENT for topic in "tu"}
    after = text(withhold(tracker, bits, stale_groups="g"))
    assert series(after, "g") == set()
    assert series(after, "h") == series(before, "h") != set()


def test_an_end_offset_that_is_old_is_hidden_although_no_lag_depends_on_it():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, -1), commit("g", "u", 0, 4))
    tracker.add_samples(ends={("t", 0): 10, ("u", 0): 10}, starts={("t", 0): 1, ("u", 0): 1}, at_ms=NOW_MS)
    snapshot = tracker.take_snapshot(NOW_MS)
    assert {'topic="t"' in line for line in series(text(build_view(snapshot)))} == {True, False}
    old = np.array([topic == "t" for topic in snapshot.partitions.topic])
    served = series(text(build_view(snapshot.withhold({}, {}, old))))
    assert not [line for line in served if 'topic="t"' in line]
    assert [line for line in served if line.startswith("koff_partition_end_offset{")]


def test_the_longest_lag_in_seconds_is_absent_while_one_of_a_group_is_unknown():
    tracker = Tracker()
    for partition in (0, 1):
        apply(tracker, commit("g", "t", partition, 4), commit("h", "t", 0, 4))
    tracker.add_samples(ends={("t", 0): 4, ("t", 1): 4}, at_ms=NOW_MS - 10_000)
    tracker.add_samples(ends={("t", 0): 10, ("t", 1): 10}, at_ms=NOW_MS)
    name = "koff_group_max_lag_seconds"
    snapshot = tracker.take_snapshot(NOW_MS)
    both = {f'{name}{{cluster="c",group="{group}"}}' for group in "gh"}
    assert both <= series(text(build_view(snapshot)))
    # The history of end offsets does not reach back to the record that g waits for.
    shard = snapshot.shards[0]
    undated = np.array(snapshot.partitions.partition)[shard.partition] == 1
    times = shard.time_lag._replace(known=shard.time_lag.known & ~undated)
    snapshot = replace(snapshot, shards={0: replace(shard, time_lag=times)})
    served = series(text(build_view(snapshot)))
    assert both & served == {f'{name}{{cluster="c",group="h"}}'}
    assert 'koff_group_total_lag{cluster="c",group="g"}' in served


def test_a_group_in_two_partitions_of_the_offsets_topic_has_one_series():
    tracker = Tracker()
    tracker.add_samples(ends={("t", 0): 10})
    apply(tracker, commit("g", "t", 0, 4), partition=1)
    apply(tracker, commit("g", "t", 0, 7, at=2000), partition=2)
    served = text(take_view(tracker))
    lines = [line for line in served.splitlines() if line.startswith("koff_group_lag{")]
    assert lines == ['koff_group_lag{cluster="c",group="g",topic="t",partition="0"} 3']
    assert 'koff_group_total_lag{cluster="c",group="g"} 3\n' in served


def test_static_members_that_are_away_are_not_counted():
    tracker = Tracker()
    records = [Consumer.own("g", 1)]
    for member, epoch in (("a", 1), ("b", -2)):
        records += [
            Consumer.member("g", member, instance_id=member),
            Consumer.current("g", member, epoch, {}),
        ]
    apply(tracker, *map(encode, records))
    assert 'koff_group_members{cluster="c",group="g"} 1\n' in text(take_view(tracker))


def test_in_openmetrics_the_head_of_a_counter_has_no_total():
    tracker = two_groups()
    served = b"".join(Exposition(EVERYTHING).render_chunks(take_view(tracker), openmetrics=True)).decode()
    families = {f.name: f for f in parse_openmetrics(served + "# EOF\n")}
    counter = families["koff_group_topic_consumed"]
    assert (counter.type, {sample.name for sample in counter.samples}) == (
        "counter",
        {"koff_group_topic_consumed_total"},
    )
    assert "# TYPE koff_group_topic_consumed_total counter\n" in text(take_view(tracker))
