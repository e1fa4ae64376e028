"""Writes one batch of decoded records of one cluster into the tables, once, also if the batch is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from koff.spark.job.end_offsets import SAMPLE_SCHEMA, Sample
from koff.spark.rows import group_changes as groups
from koff.spark.rows.packing import COMMIT, EXTENT, GROUP, UNDECODED, Extent, unpack_frame
from koff.spark.spark_session import count_tasks
from koff.spark.tables.coverage import Coverage, Intervals, Span, select_offsets
from koff.spark.tables.current import merge_commits
from koff.spark.tables.merging import merge_rows
from koff.spark.tables.schemas import Tables, quote_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROWS_PER_FILE = 250_000
"""A batch of commits is written into so few files that they need not be compacted soon: of a small batch into
one, of a large one into files that are too large for Delta to compact them."""


class WrittenCounts(NamedTuple):
    """How many records were written, and how many of them are commits."""

    records: int
    commits: int


class BatchWriter:
    """Writes batches of one cluster.

    `overlapping`: the tables may already have some of the rows. `begun`: the offsets of this batch of which
    an interrupted batch wrote some rows. `first`: the table `current` may be empty. `fresh`: the tables have
    no rows of the cluster yet. `coverage`: records the extents of a frame that has some. `begin_step` is
    called before each step of `koff.spark.job.batch_progress.STEPS`.
    """

    def __init__(
        self,
        tables: Tables,
        cluster: str,
        *,
        overlapping: bool = False,
        begun: Intervals | None = None,
        first: bool = True,
        fresh: bool = False,
        coverage: Coverage | None = None,
        begin_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._begin_step = begin_step
        self.tables, self.cluster = tables, cluster
        self.overlapping, self._begun = overlapping, begun or {}
        self._first, self._fresh, self._coverage = first, fresh, coverage

    def write(self, packed: DataFrame, topic_names: Mapping[str, str]) -> WrittenCounts:
        """Writes a packed frame into all tables. The caller persists the frame: it is read several times.

        The order of the writes makes it safe to repeat a batch that was interrupted.
        """
        from pyspark.sql import functions as f

        # What the batch has: counts, times and extents. The first `collect` computes the frame, so here the
        # workers read the log.
        self._begin_step("read")
        totals = packed.groupBy("what").agg(f.sum("records"), f.min("first_ms"), f.max("last_ms"))
        kinds = {row[0]: row for row in totals.collect()}
        counts = Counter({what: row[1] for what, row in kinds.items()})
        extents = []
        if EXTENT in counts:
            blobs = packed.where(f.col("what") == EXTENT).select("packed").collect()
            extents = [Extent.decode(row[0]) for row in blobs]
        if self._coverage is not None:
            self._coverage.begin(Span(each.partition, each.start, each.end) for each in extents)

        self._begin_step("commits")
        if COMMIT in counts:
            files = -(-counts[COMMIT] // _ROWS_PER_FILE)
            self._append_new("commits", unpack_frame(packed, COMMIT).coalesce(files))

        self._begin_step("current")
        # The newest commit of each slot. Of a batch that was interrupted, the table may have commits that
        # Kafka has compacted since then.
        if COMMIT in counts or self._begun:
            first_ms, last_ms = kinds[COMMIT][2:] if COMMIT in kinds else (None, None)
            span_ms = None
            if first_ms is not None and last_ms is not None and not self._fresh:
                span_ms = (first_ms, last_ms)
            empty = self._fresh or (
                self._first and self.tables.cluster_frame("current", self.cluster).isEmpty()
            )
            merge_commits(
                self.tables,
                self.cluster,
                packed,
                span_ms,
                buckets=count_tasks(self.tables.spark),
                into_empty=empty,
                begun=self._begun,
            )

        self._begin_step("groups")
        if UNDECODED in counts:
            # Damage of a segment may have no offset of its own, so it is in no extent for sure.
            damage = self._coverage is not None and not self._fresh
            self._append_new("quarantine", unpack_frame(packed, UNDECODED), overlapping=damage)
        if GROUP in counts:
            self._write_groups(unpack_frame(packed, GROUP), topic_names)
        if self._coverage is not None:
            self._coverage.complete(Span(each.partition, each.start, each.sound_end) for each in extents)
        return WrittenCounts(counts.total(), counts[COMMIT])

    def write_sample(self, rows: list[Sample], batch: int | None) -> None:
        """Appends a sample of end offsets, of the batch with this number (None: of no batch)."""
        from pyspark.sql import functions as f

        # By Arrow: with rows as tuples, Spark checks and pickles each value in Python.
        columns = [
            pa.array([row[place] for row in rows], field.type) for place, field in enumerate(SAMPLE_SCHEMA)
        ]
        frame = self.tables.spark.createDataFrame(pa.Table.from_arrays(columns, schema=SAMPLE_SCHEMA))
        self._append_rows("end_offsets", frame.withColumn("batch", f.lit(batch).cast("bigint")), f.col("at"))

    def write_lag(self, frame: DataFrame) -> None:
        """Appends rows of lag: a frame with the columns of the table `lag`."""
        frame.write.format("delta").mode("append").save(self.tables.path("lag"))

    def note_sample(self, at: datetime, full_at: datetime, batch: int | None, partitions: int) -> None:
        """Appends a row to `samples`: all rows of the sample are in the tables."""
        ddl = "at TIMESTAMP, full_at TIMESTAMP, batch BIGINT, partitions INT"
        frame = self.tables.spark.createDataFrame([(at, full_at, batch, partitions)], ddl)
        self._append_rows("samples", frame, frame.at)

    def _write_groups(self, records: DataFrame, topic_names: Mapping[str, str]) -> None:
        from pyspark.sql import functions as f

        # Read only the states of groups that have records in this batch.
        partitions = [row[0] for row in records.select("offsets_partition").distinct().collect()]
        states = self.tables.cluster_frame("group_states", self.cluster).where(
            f.col("offsets_partition").isin(partitions)
        )
        names = records.select("group").distinct()
        states = states.join(f.broadcast(names), "group", "left_semi")
        if self._begun:
            records = self._drop_derived(records, states)
        changes = groups.derive_group_changes(records, states, topic_names).persist()
        try:
            self._append_new("groups", _parse_changes(changes, "group", groups.GROUP_DDL))
            self._append_new("assignments", _parse_changes(changes, "assignment", groups.ASSIGNMENT_DDL))
            # The states last: changes are derived from the old states. If the states were merged first, a
            # repeated batch would find no changes.
            self._merge_states(_parse_changes(changes, "saved", groups.SAVED_DDL))
        finally:
            changes.unpersist()

    def _drop_derived(self, records: DataFrame, states: DataFrame) -> DataFrame:
        """The records without those of an interrupted batch that got as far as to write the group's state.

        States are written last. So all changes up to the offset of the state are in the tables; derived again
        from the new state, or from none, they would be others.
        """
        from pyspark.sql import functions as f

        known = states.select("group", "offsets_partition", f.col("log_offset").alias("derived_to"))
        same = ["group", "offsets_partition"]
        rows = records.join(f.broadcast(known), same, "left")
        is_derived = f.col("log_offset") <= f.coalesce("derived_to", f.lit(-1))
        is_derived &= select_offsets(self._begun)
        return rows.where(~is_derived).select(*records.columns)

    def _merge_states(self, states: DataFrame) -> None:
        from pyspark.sql import functions as f

        columns = self.tables.frame("group_states").columns
        newest = states.withColumn("cluster", f.lit(self.cluster)).select(*columns)
        into = self.tables.delta_table("group_states").alias("t")
        same = "t.offsets_partition = s.offsets_partition AND t.`group` = s.`group`"
        same = f"t.cluster = {quote_sql(self.cluster)} AND {same}"
        merging = into.merge(newest.alias("s"), same)
        merging = merging.whenMatchedUpdateAll("s.log_offset > t.log_offset").whenNotMatchedInsertAll()
        merge_rows(self.tables, "group_states", self.cluster, merging)

    def _append_new(self, name: str, frame: DataFrame, *, overlapping: bool = False) -> None:
        """Appends the rows; of a batch that overlaps, only the rows that the table does not have yet."""
        from pyspark.sql import functions as f

        if overlapping or self.overlapping:
            # `day` is a partition column: only the days of the batch are read. It is null for rows without a
            # timestamp, such as a damaged place of a segment.
            days = [row[0] for row in frame.select(f.to_date("timestamp")).distinct().collect()]
            known = self.tables.cluster_frame(name, self.cluster).where(
                f.col("day").isin(days) | f.col("day").isNull()
            )
            known = known.select(*(f.col(key).alias(f"known_{key}") for key in _RECORD)).distinct()
            # Null-safe: with `=`, a row with a null would never be found, and would be appended again.
            same = [f.col(key).eqNullSafe(f.col(f"known_{key}")) for key in _RECORD]
            frame = frame.join(known, same, "left_anti")
        self._append_rows(name, frame, f.col("timestamp"))

    def _append_rows(self, name: str, frame: DataFrame, time: Column) -> None:
        from pyspark.sql import functions as f

        whole = frame.withColumn("cluster", f.lit(self.cluster)).withColumn("day", f.to_date(time))
        self.tables.append_rows(name, whole)


_RECORD = ("offsets_partition", "log_offset")
"""The columns that identify a record of one cluster."""


def _parse_changes(changes: DataFrame, kind: str, ddl: str) -> DataFrame:
    """The changes of one kind, with the fields of their JSON bodies as columns."""
    from pyspark.sql import functions as f

    rows = changes.where(f.col("kind") == kind).withColumn("b", f.from_json("body", ddl))
    if ddl.startswith("ARRAY"):
        rows = rows.withColumn("b", f.explode("b"))
    return rows.select("offsets_partition", "log_offset", "timestamp", "group", "b.*")
