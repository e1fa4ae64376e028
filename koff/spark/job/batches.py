"""Carries out the plans of a cluster's batches: writes their rows, and brings the state up to date.

A plan may be carried out again. What a table has of it is ignored; and where `records` has the batch, the
batch is read from there, because the log may have other records by now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from koff.spark.job.cluster_state import ClusterState, GroupRow
from koff.spark.job.lag_rows import build_lag_rows
from koff.spark.job.log_source import SMALL_BATCH
from koff.spark.job.record_tasks import MOST_OTHERS, RecordReader, write_records
from koff.spark.job.samples import Sample
from koff.spark.rows.decoding import COMMITS
from koff.spark.rows.newest import (
    COMMIT_COLUMNS,
    GROUP_COLUMNS,
    LOG_ORDER,
    NO_STATE,
    STATE_COLUMNS,
    coalesce_batches,
    keep_newest,
    split_records,
)
from koff.spark.rows.spans import count_offsets
from koff.spark.tables.delta_tables import Tables, for_each_table
from koff.spark.tables.hours import HOUR, begin_step, compute_hours
from koff.spark.tables.progress import Plan, claim_batch, read_plans
from koff.spark.tables.schemas import TABLES
from koff.view.cluster_view import ClusterView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RecordSource = Callable[[Plan], pa.Table | RecordReader]
"""Returns the decoded records of a batch, or a reader of them if the batch is large."""
_Part = tuple[pa.Table, Iterable[Mapping[str, Any]], tuple[int, int]]
"""Commits, records about groups, and how many records and commits this process has written."""
SAVE_S = 300.0
"""So often the state is saved. A process that begins reads the batches since then again."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is in the tables. `records` and `commits` say how many this process has written.

    `lag_rows` and `view` are those of its sample, if any.
    """

    plan: Plan
    records: int
    commits: int
    lag_rows: int | None
    view: ClusterView | None


class Batches:
    """The batches of one cluster. `source` reads records."""

    def __init__(self, tables: Tables, state: ClusterState, source: RecordSource) -> None:
        self._tables, self._name, self.state, self._source = tables, state.cluster, state, source
        self._saved_at = time.monotonic()
        self._small: dict[int, pa.Table] = {}
        """Records of small batches that `restore` has read from the table, by number."""

    def restore(self, newest: Plan) -> Plan:
        """Brings state and tables up to the newest plan. Returns the plan that the next one continues.

        Only the process that has the segments can carry out a plan to read them. So if `records` does not
        have the batch, it never will, and the next plan begins where the batch before has ended.
        """
        saved = self._tables.cluster_frame("state", self._name).collect()
        number = max((row.number for row in saved), default=0)
        if saved:
            self.state.restore({row.key: bytes(row.saved) for row in saved})
        plans = read_plans(self._tables, self._name, min(number + 1, newest.number))
        since = [plan for plan in plans if plan.number > number]
        for at, plan in enumerate(since):
            is_newest = plan.number == newest.number
            lacks_segments = is_newest and plan.source != "log" and self.give_up(plan)
            if plan.number not in self._small:
                self._small = self._read_small(since[at:-1])  # that of the newest may not be in the table yet
            self.carry_out(plan, is_newest=is_newest, again=True)
            if lacks_segments:
                return replace(plan, parts=plan.list_unread())
        if len(since) > 1:  # else a process that never lives for `SAVE_S` would begin with ever more batches
            self.save_state(plans[-1])
        return plans[-1]

    def give_up(self, plan: Plan) -> bool:
        """Makes sure that nobody writes the records of the batch any more. Returns whether there are none."""
        self._tables.add_files("records", (), self._name, plan.number)
        rows = self._tables.cluster_frame("records", self._name).where(f"number = {plan.number}")
        return not rows.take(1)

    def carry_out(self, plan: Plan, *, is_newest: bool = True, again: bool = False) -> Batch:
        """Writes the batch. `again`: another process may have written it. All but the newest are written."""
        sample = Sample.decode(plan.sample) if plan.sample is not None else None
        at_ms = round(plan.at.timestamp() * 1000)
        if sample is not None:
            self.state.note_topics(sample.topic_ids)
        groups: list[GroupRow] = []
        records = commits = 0
        if plan.spans:
            parts = self._write_records(plan, again=again, is_newest=is_newest)
            for newest, others, count in parts:
                records, commits = records + count[0], commits + count[1]
                if len(newest):
                    self.state.apply_commits(newest, at_ms)
                groups += self.state.apply_group_records(others, at_ms)
        if groups and is_newest:
            self._write_rows("groups", pa.Table.from_pylist(groups, _GROUP_ROWS), plan)
        view, lag_rows = None, None
        if sample is not None and plan.sampled_at is not None:
            view = self.state.apply_sample(sample)
            lag_rows = self._write_lag(plan, view, sample) if is_newest else None
        if is_newest and time.monotonic() - self._saved_at > SAVE_S:
            self.save_state(plan)
        return Batch(plan, records, commits, lag_rows, view)

    def save_state(self, plan: Plan) -> None:
        """Saves the state after the batch of the plan."""
        keys, saved = zip(*self.state.save().items(), strict=True)
        rows = pa.table({"key": keys, "saved": saved})
        self._tables.write_batch("state", rows, self._name, plan.number, replace=True)
        self._saved_at = time.monotonic()

    def end(self, newest: Plan, last: Plan) -> None:
        """Writes the last plan of a process, which has no rows, and saves the state after the newest batch.

        Both at once: each takes Delta a while. The next process begins sooner.
        """
        writes = {
            "progress": partial(claim_batch, self._tables, last),
            "state": partial(self.save_state, newest),
        }
        for_each_table(lambda name: writes[name](), writes)

    # --- Records -----------------------------------------------------------------------------------------

    def _write_records(self, plan: Plan, *, again: bool, is_newest: bool) -> Iterator[_Part]:
        """Writes the records. Yields their parts."""
        if not again or (is_newest and self._tables.find_number("records", self._name) < plan.number):
            rows = self._source(plan)
            if isinstance(rows, pa.Table):
                if not len(rows) or self._write_rows("records", rows, plan):
                    commits, others = split_records(rows)
                    yield commits, others.to_pylist(), (len(rows), len(commits))
                    return
            elif written := write_records(self._tables, rows, plan):
                yield written.newest, written.others or (), (written.records, written.commits)
                if written.others is None:
                    yield from self._read_groups(plan, written.newest)
                return
        yield from self._read_table(plan)

    def _read_table(self, plan: Plan) -> Iterator[_Part]:
        """What `_write_records` yields, from the table, where another process has written it."""
        if plan.number not in self._small:
            self._small = self._read_small([plan])
        if plan.number in self._small:
            commits, others = split_records(self._small.pop(plan.number))
            yield commits, others.to_pylist(), (0, 0)
            return
        rows = self._select_batch(plan)
        commits = rows.where(rows["kind"].isin(*COMMITS)).select(*COMMIT_COLUMNS)
        newest = commits.mapInArrow(_keep_newest, commits.schema).toArrow()
        yield newest, (), (0, 0)
        yield from self._read_groups(plan, newest)

    def _read_small(self, plans: Sequence[Plan]) -> dict[int, pa.Table]:
        """The records of the first plans, by number, in log order: as many as are a small batch together."""
        sizes = accumulate(count_offsets(plan.spans) for plan in plans)
        numbers = [plan.number for plan, size in zip(plans, sizes, strict=True) if size < SMALL_BATCH]
        if not numbers:
            return {}
        rows = self._tables.cluster_frame("records", self._name)
        rows = rows.where(rows["number"].between(numbers[0], numbers[-1])).select("number", *STATE_COLUMNS)
        found = rows.toArrow().sort_by(LOG_ORDER)
        return {number: found.filter(pc.equal(found["number"], number)) for number in numbers}

    def _read_groups(self, plan: Plan, commits: pa.Table) -> Iterator[_Part]:
        for records in read_group_records(self._select_batch(plan)):
            yield commits.slice(0, 0), records, (0, 0)

    def _select_batch(self, plan: Plan) -> DataFrame:
        rows = self._tables.cluster_frame("records", self._name)
        return rows.where(rows["number"] == plan.number)

    # --- Derived rows ------------------------------------------------------------------------------------

    def _write_lag(self, plan: Plan, view: ClusterView, sample: Sample) -> int:
        """Writes the rows of lag of the sample. Returns how many there are."""
        self._write_ended_hour(plan)
        rows = build_lag_rows(view, plan.number, sample)
        if len(rows):
            self._write_rows("lag", rows, plan)
        return len(rows)

    def _write_ended_hour(self, plan: Plan) -> None:
        """Writes the hour of the sample before, if this sample is in a later one."""
        before, now = plan.sampled_before, plan.sampled_at
        if before is not None and now is not None and begin_step(before) < begin_step(now):
            lag, hour = self._tables.cluster_frame("lag", self._name), begin_step(before)
            rows = compute_hours(lag, hour, hour + HOUR, now)
            self._write_rows("lag_hourly", rows.toArrow(), plan)

    def _write_rows(self, name: str, rows: pa.Table, plan: Plan) -> bool:
        return self._tables.write_batch(name, rows, self._name, plan.number, at=plan.at)


_GROUP_ROWS = pa.schema([each.with_nullable(True) for each in TABLES["groups"].schema])


def _keep_newest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return map(keep_newest, coalesce_batches(batches))


def read_group_records(rows: DataFrame) -> Iterator[list[dict[str, Any]]]:
    """The records about groups among rows of `records`, in log order, in lots that fit in memory."""
    others = rows.where(~rows["kind"].isin(*COMMITS, *NO_STATE)).select(*GROUP_COLUMNS)
    counts: dict[int, int] = dict(others.groupBy("offsets_partition").count().collect())
    for partitions in _split_counts(counts):
        some = others.where(others["offsets_partition"].isin(*partitions))
        yield some.orderBy("offsets_partition", "log_offset").toArrow().to_pylist()


def _split_counts(counts: Mapping[int, int]) -> Iterator[list[int]]:
    """The partitions with records, in lots of at most `MOST_OTHERS` records, or of one partition."""
    lot: list[int] = []
    size = 0
    for partition, count in sorted(counts.items()):
        if lot and size + count > MOST_OTHERS:
            yield lot
            lot, size = [], 0
        if count:
            lot.append(partition)
            size += count
    if lot:
        yield lot
