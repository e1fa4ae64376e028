"""One batch of decoded records of one cluster into the tables, once, however often it is tried."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from koff.spark.job.end_offsets import Sample
from koff.spark.rows import group_changes as groups
from koff.spark.rows.packing import COMMIT, FILE, GROUP, NOTED, UNDECODED, unpacked
from koff.spark.tables import files
from koff.spark.tables.current import merge, quoted
from koff.spark.tables.schemas import TABLES, TXN, Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MERGING = threading.Lock()
"""Queries of several clusters merge into one table: one after the other, so that none has to try again."""


@contextmanager
def once(spark: SparkSession, app: str, version: int | None) -> Iterator[None]:
    """Within, each table takes a write of that version and application one time. None: every time."""
    if version is not None:
        spark.conf.set(TXN + "AppId", app)
        spark.conf.set(TXN + "Version", str(version))
    try:
        yield
    finally:
        for name in ("AppId", "Version"):
            spark.conf.unset(TXN + name)


class Written(NamedTuple):
    """How many records were taken, and how many of them are commits."""

    records: int
    commits: int


class BatchWriter:
    """Writes batches of one cluster. `overlapping`: the tables may have some of the rows already. `again`: a
    batch may have been written before. `fresh`: they have nothing of that cluster yet."""

    def __init__(
        self,
        tables: Tables,
        cluster: str,
        *,
        overlapping: bool = False,
        again: bool = True,
        fresh: bool = False,
    ) -> None:
        self.tables, self.cluster = tables, cluster
        self.overlapping, self._again, self._fresh = overlapping, again, fresh

    def write(self, packed: DataFrame, topic_names: Mapping[str, str]) -> Written:
        """Takes a packed frame, held in memory or on disk.

        What is derived is written in an order that lets a batch which was cut off be done again.
        """
        from pyspark.sql import functions as f

        file = f.when(f.col("what") == FILE, f.col("packed"))
        told = packed.select("what", "records", "first_ms", "last_ms", file).collect()
        counts = Counter[str]()
        for what, records, *_ in told:
            counts[what] += records
        if FILE in counts:
            found = [row[4] for row in told if row[4] is not None]
            files.commit(self.tables, "commits", found, again=self._again)
        if COMMIT in counts:
            self._append("commits", unpacked(packed, COMMIT))
        if COMMIT in counts or NOTED in counts:
            times = [at for row in told if row[0] in (COMMIT, NOTED) for at in row[2:4] if at is not None]
            with _MERGING:
                span_ms = (min(times), max(times)) if times and not self._fresh else None
                empty = self._fresh or (self._again and self.tables.of("current", self.cluster).isEmpty())
                merge(self.tables, self.cluster, packed, counts, span_ms, into_empty=empty)
        if UNDECODED in counts:
            self._append("quarantine", unpacked(packed, UNDECODED))
        if GROUP in counts:
            self._groups(unpacked(packed, GROUP), topic_names)
        commits = counts[COMMIT] + counts[FILE]
        return Written(commits + counts[UNDECODED] + counts[GROUP], commits)

    def sample(self, rows: list[Sample], batch: int) -> None:
        """Appends a sample of end offsets."""
        from pyspark.sql import functions as f

        names = [*Sample._fields]
        ddl = {part.split()[0]: part for part in map(str.strip, TABLES["end_offsets"].columns.split(","))}
        frame = self.tables.spark.createDataFrame(rows, ", ".join(ddl[name] for name in names))
        self._put("end_offsets", frame.withColumn("batch", f.lit(batch).cast("bigint")), f.col("at"))

    def lag(self, frame: DataFrame) -> None:
        """Appends rows of lag."""
        frame.write.format("delta").mode("append").save(self.tables.path("lag"))

    def _groups(self, records: DataFrame, topic_names: Mapping[str, str]) -> None:
        from pyspark.sql import functions as f

        homes = [row[0] for row in records.select("offsets_partition").distinct().collect()]
        states = self.tables.of("group_states", self.cluster).where(f.col("offsets_partition").isin(homes))
        names = records.select("group").distinct()
        states = states.join(f.broadcast(names), "group", "left_semi")
        found = groups.group_changes(records, states, topic_names).persist()
        try:
            self._append("groups", _opened(found, "group", groups.GROUP))
            self._append("assignments", _opened(found, "assignment", groups.ASSIGNMENT))
            with _MERGING:
                self._states(_opened(found, "saved", groups.SAVED))
        finally:
            found.unpersist()

    def _states(self, states: DataFrame) -> None:
        from pyspark.sql import functions as f

        columns = self.tables.frame("group_states").columns
        news = states.withColumn("cluster", f.lit(self.cluster)).select(*columns)
        into = self.tables.delta("group_states").alias("t")
        same = "t.offsets_partition = s.offsets_partition AND t.`group` = s.`group`"
        same = f"t.cluster = {quoted(self.cluster)} AND {same}"
        merging = into.merge(news.alias("s"), same)
        merging.whenMatchedUpdateAll("s.log_offset > t.log_offset").whenNotMatchedInsertAll().execute()

    def _append(self, name: str, frame: DataFrame) -> None:
        from pyspark.sql import functions as f

        if self.overlapping:
            days = [row[0] for row in frame.select(f.to_date("timestamp")).distinct().collect()]
            known = self.tables.of(name, self.cluster).where(f.col("day").isin(days) | f.col("day").isNull())
            there = known.select(*(f.col(each).alias(f"known_{each}") for each in _RECORD)).distinct()
            same = [
                f.col(each).eqNullSafe(f.col(f"known_{each}")) for each in _RECORD
            ]  # a lone file has no partition
            frame = frame.join(there, same, "left_anti")
        self._put(name, frame, f.col("timestamp"))

    def _put(self, name: str, frame: DataFrame, time: Column) -> None:
        from pyspark.sql import functions as f

        whole = frame.withColumn("cluster", f.lit(self.cluster)).withColumn("day", f.to_date(time))
        self.tables.append(name, whole)


_RECORD = ("offsets_partition", "log_offset")


def _opened(found: DataFrame, kind: str, ddl: str) -> DataFrame:
    """The changes of a kind, with the fields of their bodies as columns."""
    from pyspark.sql import functions as f

    rows = found.where(f.col("kind") == kind).withColumn("b", f.from_json("body", ddl))
    if ddl.startswith("ARRAY"):
        rows = rows.withColumn("b", f.explode("b"))
    return rows.select("offsets_partition", "log_offset", "timestamp", "group", "b.*")
