"""Rows of `records` and samples give the state of the daemon's tracker, whichever way they come."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from koff.lag.usual_lateness import FLOOR_S
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.lag_rows import build_lag_rows
from koff.spark.job.samples import Sample
from koff.spark.rows.newest import keep_newest, split_records
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import Plan
from koff.tracker import ShareLag, Tracker
from koff.tracker.groups import Group
from tests.spark.life import CLUSTER, INTERVAL_MS, Life, Record

LIFE = Life.script(batches=8)
_NEWEST = [
    *("offsets_partition", "log_offset", "timestamp", "group", "topic", "partition", "committed"),
    *("leader_epoch", "commit_timestamp", "topic_id", "tombstone"),
]


def list_plans() -> list[Plan]:
    plans: list[Plan] = []
    for number in range(1, len(LIFE.records) + 1):
        plans.append(LIFE.plan(number, plans[-1] if plans else None, Owner("here 1 1", "n")))
    return plans


def apply_plan(state: ClusterState, plan: Plan, *, newest_only: bool = False) -> tuple[list[Any], pa.Table]:
    """The rows of `groups` and of `lag` of a batch."""
    assert plan.sample is not None
    sample = Sample.decode(plan.sample)
    state.note_topics(sample.topic_ids)
    commits, others = split_records(LIFE.read(plan))
    if newest_only and len(commits):
        (batch,) = commits.select(_NEWEST).combine_chunks().to_batches()
        halves = (batch.slice(0, len(batch) // 2), batch.slice(len(batch) // 2))
        commits = pa.Table.from_batches([keep_newest(half) for half in halves if len(half)])
    state.apply_commits(commits, sample.at_ms)
    groups = list(state.apply_group_records(others.to_pylist(), sample.at_ms))
    return groups, build_lag_rows(state.apply_sample(sample), plan.number, sample)


def track(records: list[list[Record]], samples: list[Sample]) -> Tracker:
    """What the daemon's tracker makes of the bytes of the same records."""
    tracker = Tracker()
    tracker.partitions.expect_samples(INTERVAL_MS / 1000)
    for batch, sample in zip(records, samples, strict=True):
        if sample.topic_ids is not None:
            tracker.identify_topics(sample.topic_ids)
        for partition, _, _, key, value in batch:
            tracker.apply(partition, [key], [value], seen_at_ms=sample.at_ms, is_live=False)
        tracker.set_offsets_partitions(sample.offsets_partitions)
        lags = {group: [ShareLag(*row[:4]) for row in rows] for group, rows in sample.shares.items()}
        tracker.shares.describe(lags, requested_ms=sample.at_ms)
        used = set(tracker.watched_partitions())
        rows = {(row["topic"], row["partition"]): row for row in sample.rows.to_pylist()}
        ends = {
            at: row["end_offset"] for at, row in rows.items() if at in used and row["end_offset"] is not None
        }
        starts = {at: row["start_offset"] for at, row in rows.items() if at in used}
        absent = used - ends.keys()
        gone = {at for at in absent if at not in rows}
        tracker.partitions.forget_offsets(sorted(gone), gone=True)
        tracker.partitions.forget_offsets(sorted(absent - gone), gone=False)
        tracker.add_samples(ends=ends, starts=starts, stables=ends, at_ms=sample.at_ms)
    return tracker


def describe(group: Group) -> tuple[Any, ...]:
    return group.type, group.state, group.epoch, group.assignment_epoch, group.member_count


def test_lags_and_groups_are_those_of_a_tracker_that_reads_the_bytes() -> None:
    state = ClusterState(CLUSTER, INTERVAL_MS / 1000)
    for plan in list_plans():
        _, lag = apply_plan(state, plan)
    newest = LIFE.samples[-1]
    snapshot = track(LIFE.records, LIFE.samples).take_snapshot(newest.at_ms)
    told = {
        (row.group, row.topic, row.partition): (
            row.committed,
            row.end,
            row.lag,
            row.time_lag_s,
            row.reasons.names,
        )
        for row in snapshot.rows()
    }
    assert len(told) > 40
    for row in lag.to_pylist():
        committed, end, lags, seconds, reasons = told.pop((row["group"], row["topic"], row["partition"]))
        assert (row["committed"], row["end_offset"], row["lag"]) == (committed, end, lags), row
        assert row["time_lag_s"] in (seconds, None)
        assert row["reasons"] == list(reasons)
    assert not told
    groups = {group.name: describe(group) for group in snapshot.groups()}
    assert {group.name: describe(group) for group in state.tracker.take_snapshot().groups()} == groups


def test_the_commits_that_matter_are_enough() -> None:
    whole, newest = (ClusterState(CLUSTER, INTERVAL_MS / 1000) for _ in range(2))
    for plan in list_plans():
        rows = apply_plan(whole, plan)
        assert apply_plan(newest, plan, newest_only=True) == rows, plan.number


@pytest.mark.parametrize("saved_after", [1, 3, 7])
def test_a_state_that_was_saved_goes_on_as_if_nothing_had_happened(saved_after: int) -> None:
    state, plans = ClusterState(CLUSTER, INTERVAL_MS / 1000), list_plans()
    for plan in plans[:saved_after]:
        apply_plan(state, plan)
    other = ClusterState(CLUSTER, INTERVAL_MS / 1000)
    other.restore(state.save())
    for plan in plans[saved_after:]:
        assert apply_plan(other, plan) == apply_plan(state, plan), plan.number


def test_a_group_has_a_row_for_each_change_and_a_last_one_that_it_is_gone() -> None:
    state = ClusterState(CLUSTER, INTERVAL_MS / 1000)
    groups, _ = apply_plan(state, list_plans()[0])
    by_name: dict[str, list[Any]] = {}
    for row in groups:
        by_name.setdefault(row["group"], []).append(row)
    for name, rows in by_name.items():
        assert [row["log_offset"] for row in rows] == sorted(row["log_offset"] for row in rows), name
        same = [{k: v for k, v in row.items() if k not in ("log_offset", "timestamp")} for row in rows]
        assert all(before != after for before, after in pairwise(same)), name
    assert any(row["gone"] for rows in by_name.values() for row in rows)
    assert any(member["assigned"] for row in groups for member in row["members"] or ())


def test_lags_in_a_partition_whose_newest_commits_are_hidden_are_unknown_with_the_reason() -> None:
    state, plans = ClusterState(CLUSTER, INTERVAL_MS / 1000), list_plans()
    for plan in plans[:3]:
        apply_plan(state, plan)
    _, lag = apply_plan(state, plans[3])  # its sample says that partition 49 is held
    held = {row["group"] for row in lag.to_pylist() if "commits_not_current" in row["reasons"]}
    assert held
    assert held <= {group.name for group in state.tracker.take_snapshot().shards[49].groups}


def find_allowances(lag: pa.Table) -> dict[str, float | None]:
    return {row["group"]: row["allowance_s"] for row in lag.to_pylist()}


def test_a_group_may_be_late_by_half_of_the_time_that_its_topic_keeps_records() -> None:
    first, second, *_ = list_plans()
    state, unaware, restored = (ClusterState(CLUSTER, INTERVAL_MS / 1000) for _ in range(3))
    sample = replace(LIFE.samples[0], retention_s={"busy-0": 60.0, "rec-t1": math.inf})
    _, lag = apply_plan(state, replace(first, sample=sample.encode()))
    usual = find_allowances(apply_plan(unaware, first)[1])
    assert usual["rec-share"] == usual["rec-simple"] == FLOOR_S
    assert find_allowances(lag) == {**usual, "rec-share": 30.0}
    restored.restore(state.save())
    for each in (state, restored):  # the second sample does not name it again
        found = find_allowances(apply_plan(each, second)[1])
        assert (found["rec-share"], found["rec-simple"]) == (30.0, FLOOR_S)


def test_a_sample_is_the_same_after_it_was_written_and_read() -> None:
    told = replace(LIFE.samples[0], retention_s={"t": 1.5, "kept for ever": math.inf})
    for sample in (*LIFE.samples, told):
        again = Sample.decode(sample.encode())
        assert again.rows.equals(sample.rows)
        assert (again.at_ms, again.topic_ids, again.held) == (sample.at_ms, sample.topic_ids, sample.held)
        assert (again.shares, again.retention_s) == (sample.shares, sample.retention_s)
