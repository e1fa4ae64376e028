"""The daemon and the pipeline say the same of the same groups: verdict and cause at each sample.

Both see one cluster in virtual time. The daemon's core has its own connections to it; the pipeline has the
records and the end offsets of its samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.lag_rows import build_lag_rows
from koff.spark.job.past_ends import PastOffsetSearch
from koff.spark.job.samples import OFFSETS, Sample
from koff.spark.rows.decoding import RAW, SCHEMA, decode_batch
from koff.spark.rows.newest import split_records
from koff.spark.tables.owners import Owner
from koff.tracker import Objective
from tests.simulation.cluster import OFFSETS as OFFSETS_TOPIC
from tests.simulation.steady_groups import HEALTHY, IN_TROUBLE, TOPIC, SteadyGroups
from tests.spark.life import CLUSTER, INTERVAL_MS, Life
from tests.spark.test_cluster_state import apply_plan

MOST_LOOKS_APART = 2
"""The daemon's end offsets are up to a look older, and its commits are newer: so many looks after one of the
two, the other one says the same."""


class Judged(NamedTuple):
    verdict: str
    cause: str | None


class Watched(SteadyGroups):
    """The groups, and the cluster behind them for the pipeline."""

    def list_records(self, since: Mapping[int, int]) -> tuple[pa.Table, dict[int, int]]:
        """The decoded records from these offsets on, and the offsets after them."""
        rows, nexts = [], dict(since)
        for number, log in enumerate(self._cluster.topics[OFFSETS_TOPIC].partitions):
            found, nexts[number] = log.read(since.get(number, 0), 1 << 30)
            rows += [(number, each.offset, each.timestamp_ms, each.key, each.value) for each in found]
        columns = [[row[column] for row in rows] for column in range(len(RAW))]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW, strict=True)]
        decoded = decode_batch(pa.RecordBatch.from_arrays(arrays, schema=RAW), "c")
        return pa.Table.from_batches([decoded], SCHEMA), nexts

    def take_sample(self, *, has_topics: bool) -> Sample:
        places = [
            (topic, number, log.start, log.end, log.end, False)
            for topic in self._cluster.ordinary_topics()
            for number, log in enumerate(self._cluster.topics[topic].partitions)
        ]
        columns = [pa.array([place[i] for place in places], field.type) for i, field in enumerate(OFFSETS)]
        ids = {name: topic.id for name, topic in self._cluster.topics.items()} if has_topics else None
        partitions = len(self._cluster.topics[OFFSETS_TOPIC].partitions)
        return Sample(self._cluster.wall_ms(), pa.table(columns, schema=OFFSETS), ids, partitions)

    def list_offsets(self, places: Any, at_ms: int) -> dict[Any, Any]:
        """As `OffsetLister` does."""
        logs = {at: self._cluster.topics[at.topic].partitions[at.partition] for at in places}
        return {at: _Found(log.offset_at_time(at_ms)) for at, log in logs.items()}

    def measure_ages(self, group: str) -> dict[int, float]:
        """By partition of the topic: since when its oldest uncommitted record waits."""
        committed, ages = self._cluster.committed(group), {}
        for number, log in enumerate(self._logs(TOPIC)):
            written_ms = log.written_ms(committed[TOPIC, number])
            assert written_ms is not None
            ages[number] = (self._cluster.wall_ms() - written_ms) / 1000
        return ages

    def judge(self) -> dict[str, Judged]:
        """What the daemon says now."""
        view = self._core.take_view(self._now())
        found = {}
        for shard in view.snapshot.shards.values():
            verdicts = view.snapshot.find_verdicts(shard)
            codes = zip(verdicts.verdict.tolist(), map(Cause, verdicts.cause.tolist()), strict=True)
            for group, (verdict, cause) in zip(shard.groups, codes, strict=True):
                name = None if cause is Cause.NONE else cause.name.lower()
                found[group.name] = Judged(Verdict(verdict).name, name)
        return found


class _Found(NamedTuple):
    offset: int


class Pipeline:
    """The pipeline, with a sample each `look_s`. Its first batch has all records so far."""

    def __init__(self, groups: Watched, look_s: float) -> None:
        self._groups, self._state = groups, ClusterState("c", look_s)
        self._search = PastOffsetSearch(groups)  # type: ignore[arg-type]  # it has its one method
        self._nexts: dict[int, int] = {}
        self.rows: list[dict[str, Any]] = []

    def sample(self) -> dict[str, Judged]:
        """Takes a sample, and returns what it says of the groups."""
        state, sample = self._state, self._groups.take_sample(has_topics=not self._nexts)
        past = self._search.fetch(state.tracker, sample.ends, sample.at_ms)
        sample = Sample.decode(replace(sample, past=past).encode())
        records, self._nexts = self._groups.list_records(self._nexts)
        state.note_topics(sample.topic_ids)
        commits, others = split_records(records)
        state.apply_commits(commits, sample.at_ms)
        list(state.apply_group_records(others.to_pylist(), sample.at_ms))
        self.rows = build_lag_rows(state.apply_sample(sample), 1, sample).to_pylist()
        return {row["group"]: Judged(row["group_verdict"], row["group_cause"]) for row in self.rows}


Looks = list[dict[str, Judged]]


@pytest.fixture
def start() -> Iterator[Callable[[float, float], Watched]]:
    running: list[Watched] = []

    def start_groups(commit_s: float, look_s: float) -> Watched:
        running.append(Watched(1, end_interval_s=5.0, commit_s=commit_s, look_s=look_s))
        return running[-1]

    yield start_groups
    for each in running:
        each.close()


def list_changes(looks: Looks, group: str) -> list[tuple[int, Judged]]:
    """When another verdict or cause was said of the group, and which. At first nothing is known."""
    said = [(0, Judged("UNKNOWN", None))]
    for number, look in enumerate(looks):
        if look.get(group, said[-1][1]) != said[-1][1]:
            said.append((number, look[group]))
    return said[1:]


@pytest.mark.parametrize(
    ("commit_s", "look_s", "looks"),
    [(1.0, 5.0, 100), (12.0, 5.0, 100), (1.0, 30.0, 30)],
)
def test_both_say_the_same_of_each_group_at_the_same_time(
    start: Callable[[float, float], Watched], commit_s: float, look_s: float, looks: int
) -> None:
    groups = start(commit_s, look_s)
    pipeline, daemon, told = Pipeline(groups, look_s), Looks(), Looks()
    for _ in range(looks):
        groups.run(look_s)
        daemon.append(groups.judge())
        told.append(pipeline.sample())
    for habit in HEALTHY + IN_TROUBLE:
        expected, found = list_changes(daemon, habit), list_changes(told, habit)
        assert [judged for _, judged in found] == [judged for _, judged in expected], habit
        apart = [abs(a - b) for (a, _), (b, _) in zip(expected, found, strict=True)]
        assert max(apart) <= MOST_LOOKS_APART, habit
    ends = {habit: list_changes(told, habit)[-1][1] for habit in HEALTHY + IN_TROUBLE}
    assert ends["stuck"] == Judged("ERR", "stuck_partition")
    assert ends["stopped"] == Judged("ERR", "not_committing")
    assert ends["keeps-up"] == Judged("OK", None)


def test_a_pipeline_that_begins_later_knows_the_age_of_older_records_and_says_the_same(
    start: Callable[[float, float], Watched],
) -> None:
    groups = start(1.0, 5.0)
    groups.run(600.0)
    pipeline = Pipeline(groups, 30.0)
    for _ in range(2):  # the second one asks for the ages of the first one's records; the third has them
        pipeline.sample()
        groups.run(30.0)
    told, daemon = pipeline.sample(), groups.judge()
    assert {habit: told[habit] for habit in HEALTHY + IN_TROUBLE} == {
        habit: daemon[habit] for habit in HEALTHY + IN_TROUBLE
    }
    ages = {habit: groups.measure_ages(habit) for habit in ("falls-behind", "stuck", "stopped")}
    for row in pipeline.rows:
        if row["group"] in ages:
            assert row["time_lag_s"] == pytest.approx(ages[row["group"]][row["partition"]], rel=0.2, abs=6)


def test_an_objective_of_the_owner_decides_what_is_late() -> None:
    life, found = Life.script(batches=8), {}
    for seconds in (1.0, 1e6):
        objective = Objective(re.compile("busy"), seconds)
        state = ClusterState(CLUSTER, INTERVAL_MS / 1000, objectives=(objective,))
        plan = None
        for number in range(1, 9):
            plan = life.plan(number, plan, Owner("here 1 1", "n"))
            _, lag = apply_plan(state, plan)
        rows = [row for row in lag.to_pylist() if row["group"].startswith("busy")]
        assert {row["allowance_s"] for row in rows if row["allowance_s"] is not None} == {seconds}
        found[seconds] = {row["group_verdict"] for row in rows}
    assert "ERR" in found[1.0] | found[1e6]
    assert found[1.0] != found[1e6]
