"""The tables: what they are called, what is in them, and how they come to be.

Each is a Delta table in a folder below one root, with its schema's version in the property `koff.schema`.
Offsets are Kafka's, times UTC, `..._s` seconds, `..._per_s` offsets a second. `day` is the day of the row's
time, by which (and by cluster) the big ones are partitioned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from koff.errors import KoffError

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")
VERSION = 1
"""Of the schemas below."""
PROPERTY = "koff.schema"
CHECKPOINTS = "_checkpoints"
TXN = "spark.databricks.delta.write.txn"
"""What Delta calls the application (`AppId`) and the `Version` of which a table takes one write."""


class WrongTables(KoffError):
    """The folder is no place for koff's tables, or they are those of another version."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table's columns as Spark's DDL, and the column whose day it is partitioned by ("": cluster alone)."""

    columns: str
    time: str = ""

    @property
    def ddl(self) -> str:
        """All columns."""
        return f"cluster STRING, {self.columns}" + (", day DATE" if self.time else "")

    @property
    def partitioning(self) -> tuple[str, ...]:
        """What it is partitioned by."""
        return ("cluster", "day") if self.time else ("cluster",)


_AT = "offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP"
_SLOT = "`group` STRING, topic STRING, partition INT"
TABLES: Mapping[str, Table] = {
    "commits": Table(
        f"{_AT}, {_SLOT}, committed BIGINT, leader_epoch INT, metadata STRING, "
        "commit_timestamp TIMESTAMP, topic_id STRING",
        "timestamp",
    ),
    "groups": Table(
        f"{_AT}, `group` STRING, type STRING, state STRING, epoch INT, assignment_epoch INT, "
        "protocol_type STRING, protocol STRING, members INT, gone BOOLEAN",
        "timestamp",
    ),
    "assignments": Table(
        f"{_AT}, `group` STRING, member_id STRING, client_id STRING, client_host STRING, "
        "instance_id STRING, topic STRING, partition INT",
        "timestamp",
    ),
    "quarantine": Table(f"{_AT}, key BINARY, value BINARY, reason STRING", "timestamp"),
    "end_offsets": Table(
        "at TIMESTAMP, topic STRING, partition INT, topic_id STRING, start_offset BIGINT, "
        "end_offset BIGINT, stable_offset BIGINT, batch BIGINT, gone BOOLEAN",
        "at",
    ),
    "lag": Table(
        "at TIMESTAMP, `group` STRING, type STRING, state STRING, topic STRING, partition INT, "
        "committed BIGINT, end_offset BIGINT, start_offset BIGINT, lag BIGINT, readable BIGINT, lost BIGINT, "
        "lag_to_stable BIGINT, time_lag_s DOUBLE, status STRING, reasons STRING, consume_per_s DOUBLE, "
        "produce_per_s DOUBLE, client_id STRING, client_host STRING, batch BIGINT",
        "at",
    ),
    "current": Table(
        f"{_SLOT}, committed BIGINT, commit_timestamp TIMESTAMP, topic_id STRING, {_AT}, deleted BOOLEAN, "
        "recent ARRAY<STRUCT<at_ms: BIGINT, committed: BIGINT, lag: BIGINT>>",
    ),
    "group_states": Table(
        "offsets_partition INT, `group` STRING, log_offset BIGINT, type STRING, state STRING, saved STRING, "
        "assigned ARRAY<STRUCT<topic: STRING, partition: INT, client_id: STRING, client_host: STRING>>",
    ),
}

MIGRATIONS: Mapping[tuple[str, int], Callable[[SparkSession, str], None]] = {}
"""Makes a table, by name, of that version one of the next, given its path; it may come again when it was
cut off. Columns that are only added need none: what TABLES has more is added."""


class Tables:
    """The tables below `root`: a folder, or what else Spark writes to (s3a://..., hdfs://...).

    `create` or `check` first: they raise `WrongTables`.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.made: set[str] = set()
        """The tables that `create` made and nothing was written into yet; whoever writes clears it."""
        self.root = (root if "://" in root else os.path.abspath(root)).rstrip("/")  # Delta takes no other

    def path(self, name: str) -> str:
        """Where that table is."""
        return f"{self.root}/{name}"

    def folder(self, name: str) -> str | None:
        """Where others than Spark may write its files, with its names of columns: None unless it is on the
        machine's own file system."""
        fs, path = filesystem(self.spark, self.path(name))
        mapped = self.log(name).startTransaction().metadata().columnMappingMode().name() != "none"
        return None if mapped or fs.getUri().getScheme() != "file" else str(path.toUri().getPath())

    def log(self, name: str) -> Any:
        """Delta's own log of it, in Java."""
        jvm: Any = self.spark.sparkContext._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path(name))

    def checkpoint(self, cluster: str) -> str:
        """Where it is kept how far that cluster was read."""
        return f"{self.root}/{CHECKPOINTS}/{quote(cluster, safe='')}"

    def frame(self, name: str) -> DataFrame:
        """What is in that table now."""
        return self.spark.read.format("delta").load(self.path(name))

    def delta(self, name: str) -> DeltaTable:
        """The table to change."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self.spark, self.path(name))

    def of(self, name: str, cluster: str) -> DataFrame:
        """The rows of one cluster."""
        from pyspark.sql import functions as f

        return self.frame(name).where(f.col("cluster") == cluster)

    def append(self, name: str, frame: DataFrame) -> None:
        """Adds rows with all columns of the table, in any order."""
        frame.select(*self.frame(name).columns).write.format("delta").mode("append").save(self.path(name))

    def create(self) -> None:
        """Makes the tables that are not there, and those of older koffs ours. Nothing is written into a
        folder of somebody else's, or where one table cannot be brought up to ours."""
        from delta.tables import DeltaTable

        there = self._names()
        foreign = sorted(name for name in there if name not in TABLES and name != CHECKPOINTS)
        if foreign:
            some = ", ".join(foreign[:3])
            raise WrongTables(f"{self.root} holds other things ({some}): give --tables a folder of its own")
        self._migrate([name for name in TABLES if name in there])

        def make(name: str) -> None:
            builder = DeltaTable.createIfNotExists(self.spark).location(self.path(name))
            builder = builder.addColumns(_struct(TABLES[name])).partitionedBy(*TABLES[name].partitioning)
            builder.property(PROPERTY, str(VERSION)).execute()

        _all(make, (name for name in TABLES if name not in there))
        self.made = set(TABLES) - there

    def check(self) -> None:
        """Raises `WrongTables` unless all tables are there and of this version."""
        missing = sorted(TABLES.keys() - self._names())
        if missing:
            raise WrongTables(
                f"no tables of koff's in {self.root} (no {missing[0]}): is --tables right? "
                "`koff pipeline run` makes them"
            )
        for name, version in zip(TABLES, _all(self._version, TABLES), strict=True):
            if version < VERSION:
                raise self._wrong(name, version, "`koff pipeline run` brings it up to that")

    def _version(self, name: str) -> int:
        """That of a table's schema, ours or older."""
        from delta.tables import DeltaTable

        if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
            raise WrongTables(f"{self.path(name)} is no Delta table: give --tables a folder of koff's own")
        rows = self.spark.sql(f"SHOW TBLPROPERTIES delta.`{self.path(name)}`").collect()
        version = str({row.key: row.value for row in rows}.get(PROPERTY, ""))
        if not version.isdigit() or int(version) > VERSION:
            raise self._wrong(name, version or "of somebody else")
        return int(version)

    def _migrate(self, names: list[str]) -> None:
        """Brings those of older versions up to ours, each by itself: cut off between two, it goes on."""
        versions = dict(zip(names, _all(self._version, names), strict=True))
        old = {name: version for name, version in versions.items() if version < VERSION}
        for name, version in old.items():
            if not _steps(name, version):
                self._more_columns(name, version)  # or all stay as they are

        def migrate(name: str) -> None:
            for step in _steps(name, old[name]):
                step(self.spark, self.path(name))
            table = f"ALTER TABLE delta.`{self.path(name)}`"
            if more := self._more_columns(name, old[name]):
                self.spark.sql(f"{table} ADD COLUMNS ({', '.join(more)})")
            self.spark.sql(f"{table} SET TBLPROPERTIES ('{PROPERTY}' = '{VERSION}')")

        _all(migrate, old)

    def _more_columns(self, name: str, version: int) -> list[str]:
        """The columns that a table lacks. Raises `WrongTables` when it differs in more than that."""
        columns = {field.name: field.dataType for field in _struct(TABLES[name])}
        there = {field.name: field.dataType for field in self.frame(name).schema}
        if there != {column: columns.get(column) for column in there}:
            raise self._wrong(name, version, "there is no way from there; use the koff that made it")
        return [f"`{column}` {columns[column].simpleString()}" for column in columns if column not in there]

    def _wrong(
        self, name: str, version: int | str, cure: str = "use the koff that made it, or another --tables"
    ) -> WrongTables:
        return WrongTables(f"{self.path(name)} has schema {version}, this koff writes {VERSION}: {cure}")

    def _names(self) -> set[str]:
        fs, path = filesystem(self.spark, self.root)
        if not fs.exists(path):
            return set()
        if not fs.getFileStatus(path).isDirectory():
            raise WrongTables(f"{self.root} is no folder: give --tables one")
        names = {each.getPath().getName() for each in fs.listStatus(path)}
        return {name for name in names if not name.startswith(".")}


def _steps(name: str, version: int) -> list[Callable[[SparkSession, str], None]]:
    """What has to be done to a table of that version before columns are added."""
    return [MIGRATIONS[name, each] for each in range(version, VERSION) if (name, each) in MIGRATIONS]


def _all(work: Callable[[str], Result], names: Iterable[str]) -> list[Result]:
    """Does it for every table, some at a time: each waits for files most of the time."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, names))


def _struct(table: Table) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(table.ddl)


def filesystem(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's file system for that path, and its `Path`."""
    context = spark.sparkContext
    assert context._jvm is not None
    assert context._jsc is not None
    made = context._jvm.org.apache.hadoop.fs.Path(path)
    return made.getFileSystem(context._jsc.hadoopConfiguration()), made


def read_text(spark: SparkSession, path: str) -> str:
    """What is in a small file."""
    fs, at = filesystem(spark, path)
    assert spark.sparkContext._jvm is not None
    stream = fs.open(at)
    try:
        return str(spark.sparkContext._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
