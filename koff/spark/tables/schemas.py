"""The tables: their names, columns and schema version, and how they are created and migrated.

Each table is a Delta table in a folder below one root, with the version of its schema in the property
`koff.schema`. Offsets are Kafka's, times UTC, `..._s` are seconds, `..._per_s` offsets a second. `day` is the
day of the row's time. A table is partitioned by cluster, and by day if it has that column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from koff.errors import KoffError
from koff.spark.requirements import check_writable
from koff.spark.tables.descriptions import TABLE_TEXTS, describe_column
from koff.spark.tables.layout import find_layout
from koff.spark.tables.log_store import is_single_driver

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")
VERSION = 3
"""The version of the schemas below."""
PROPERTY = "koff.schema"
CHECKPOINTS, MAINTENANCE = "_checkpoints", "_maintenance"
"""The folders beside the tables."""
TXN = "spark.databricks.delta.write.txn"
"""The prefix of Delta's settings `AppId` and `Version`: a table takes one write of each version of an
application."""


class WrongTables(KoffError):
    """The folder has no tables of koff's, or tables of another version, or other files."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table's columns as Spark's DDL, and the column whose day partitions it ("": no day does)."""

    columns: str
    time: str = ""

    @property
    def ddl(self) -> str:
        """All columns, as Spark's DDL."""
        return f"cluster STRING, {self.columns}" + (", day DATE" if self.time else "")

    @property
    def partitioning(self) -> tuple[str, ...]:
        """The columns that partition the table."""
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
        "lag_to_stable BIGINT, time_lag_s DOUBLE, status STRING, reasons ARRAY<STRING>, "
        "consume_per_s DOUBLE, produce_per_s DOUBLE, client_id STRING, client_host STRING, batch BIGINT, "
        "full_at TIMESTAMP, ended BOOLEAN",
        "at",
    ),
    "samples": Table("at TIMESTAMP, full_at TIMESTAMP, batch BIGINT, partitions INT", "at"),
    "lag_hourly": Table(
        "hour TIMESTAMP, `group` STRING, topic STRING, max_lag BIGINT, min_lag BIGINT, avg_lag DOUBLE, "
        "last_lag BIGINT, max_time_lag_s DOUBLE, last_time_lag_s DOUBLE, untimed BOOLEAN, "
        "worst_status STRING, partitions INT, last_unknown INT, max_unknown INT, samples INT, "
        "known_samples INT, consumed BIGINT, produced BIGINT, lost BIGINT, "
        "lost_partitions INT",
        "hour",
    ),
    "current": Table(
        f"{_SLOT}, committed BIGINT, commit_timestamp TIMESTAMP, topic_id STRING, {_AT}, deleted BOOLEAN, "
        "recent ARRAY<STRUCT<at_ms: BIGINT, committed: BIGINT, lag: BIGINT>>",
    ),
    "group_states": Table(
        "offsets_partition INT, `group` STRING, log_offset BIGINT, type STRING, state STRING, saved STRING, "
        "assigned ARRAY<STRUCT<topic: STRING, partition: INT, client_id: STRING, client_host: STRING>>, "
        "timestamp TIMESTAMP",
    ),
    "end_curves": Table(
        "topic STRING, partition INT, topic_id STRING, points ARRAY<STRUCT<at_ms: BIGINT, end: BIGINT>>, "
        "until TIMESTAMP",
    ),
    "coverage": Table(
        "topic_id STRING, offsets_partition INT, from_offset BIGINT, to_offset BIGINT, complete BOOLEAN, "
        "filter STRING, at TIMESTAMP",
    ),
    "leases": Table(
        "sequence BIGINT, owner STRING, host STRING, process INT, nonce STRING, released BOOLEAN, "
        "at TIMESTAMP"
    ),
}


def _split_reasons(spark: SparkSession, path: str) -> None:
    """Version 2 of `lag` had the reasons as text with commas."""
    from pyspark.sql import functions as f

    frame = spark.read.format("delta").load(path)
    if frame.schema["reasons"].dataType.typeName() == "array":
        return
    names = f.expr("filter(split(reasons, ','), name -> name <> '')")
    write = frame.withColumn("reasons", names).write.format("delta").mode("overwrite")
    write.option("overwriteSchema", "true").partitionBy(*TABLES["lag"].partitioning).save(path)


MIGRATIONS: Mapping[tuple[str, int], Callable[[SparkSession, str], None]] = {("lag", 2): _split_reasons}
"""By (table, version): the function that migrates the table at a path from that version to the next one.

A migration that was interrupted runs again, so it must give the same result when it runs twice. New columns,
comments and properties need no migration: `create_tables` brings these up to date in every older table."""


class Tables:
    """The tables below `root`: a folder, or another place that Spark writes to (s3a://..., hdfs://...).

    Call `create_tables` or `check_tables` before the other methods. Both raise `WrongTables`.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.new_tables: set[str] = set()
        """The tables that `create_tables` created. The caller that writes into them clears the set."""
        # Delta accepts only absolute paths.
        self.root = (root if "://" in root else os.path.abspath(root)).rstrip("/")

    def path(self, name: str) -> str:
        """The path of a table."""
        return f"{self.root}/{name}"

    def checkpoint_path(self, cluster: str) -> str:
        """The path of the checkpoint: how far the stream of a cluster was read."""
        return f"{self.root}/{CHECKPOINTS}/{quote(cluster, safe='')}"

    def frame(self, name: str) -> DataFrame:
        """The rows of a table as of now."""
        return self.spark.read.format("delta").load(self.path(name))

    def delta_table(self, name: str) -> DeltaTable:
        """The table as a `DeltaTable`, for changes."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self.spark, self.path(name))

    def cluster_frame(self, name: str, cluster: str) -> DataFrame:
        """The rows of one cluster in a table, as of now."""
        from pyspark.sql import functions as f

        return self.frame(name).where(f.col("cluster") == cluster)

    def append_rows(self, name: str, frame: DataFrame, transaction: tuple[str, int] | None = None) -> None:
        """Appends rows that have all columns of the table, in any order.

        `transaction`: the application and the version for Delta, instead of those of the session.
        """
        write = frame.select(*self.frame(name).columns).write.format("delta").mode("append")
        if transaction is not None:
            write = write.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
        write.save(self.path(name))

    def create_tables(self) -> None:
        """Creates the tables that are missing, and migrates the tables of older koffs.

        Raises `UnsafeLogStore`, and `WrongTables`, before anything is written, if the root contains other
        files, or if one of the tables cannot be migrated.
        """
        from delta.tables import DeltaTable

        is_single_driver(self.spark, self.root)  # raises `UnsafeLogStore`

        present = self._list_names()
        _check_names(self.root, present, create=True)
        self._migrate_tables([name for name in TABLES if name in present])

        def create_table(name: str) -> None:
            # IfNotExists: another pipeline may create the same tables at the same time.
            builder = DeltaTable.createIfNotExists(self.spark).location(self.path(name))
            builder = builder.comment(TABLE_TEXTS.get(name, "")).addColumns(_define_columns(name))
            builder = builder.partitionedBy(*TABLES[name].partitioning)
            for key, value in _make_properties(name).items():
                builder = builder.property(key, value)
            builder.execute()

        _for_each_table(create_table, (name for name in TABLES if name not in present))
        self.new_tables = set(TABLES) - present

    def check_tables(self) -> None:
        """Raises `WrongTables` unless every table exists and has the current version."""
        _check_names(self.root, self._list_names(), create=False)
        for name, version in zip(TABLES, _for_each_table(self._read_version, TABLES), strict=True):
            if version < VERSION:
                raise self._make_version_error(name, version, "`koff pipeline run` migrates it")

    def _read_version(self, name: str) -> int:
        """The version of a table's schema: the current one or an older one. Raises `WrongTables`."""
        from delta.tables import DeltaTable

        if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
            raise WrongTables(f"{self.path(name)} is not a Delta table: give --tables a folder of its own")
        rows = self.spark.sql(f"SHOW TBLPROPERTIES delta.`{self.path(name)}`").collect()
        version = str({row.key: row.value for row in rows}.get(PROPERTY, ""))
        if not version.isdigit() or int(version) > VERSION:
            raise self._make_version_error(name, version or "(none)")
        return int(version)

    def _migrate_tables(self, names: list[str]) -> None:
        """Migrates the tables that have an older version.

        Each table's version is set when that table is done, so an interrupted migration can be resumed. Delta
        cannot make an existing column NOT NULL, so the columns of older tables stay nullable.
        """
        versions = dict(zip(names, _for_each_table(self._read_version, names), strict=True))
        old = {name: version for name, version in versions.items() if version < VERSION}

        # Look for tables that cannot be migrated before any table is changed.
        for name, version in old.items():
            if not _find_migrations(name, version):
                self._list_missing_columns(name, version)

        def migrate_table(name: str) -> None:
            for migrate in _find_migrations(name, old[name]):
                migrate(self.spark, self.path(name))
            alter = f"ALTER TABLE delta.`{self.path(name)}`"
            if missing := self._list_missing_columns(name, old[name]):
                self.spark.sql(f"{alter} ADD COLUMNS ({', '.join(missing)})")
            comments = (
                f"`{column}` COMMENT {quote_sql(describe_column(name, column))}"
                for column in _parse_columns(TABLES[name]).names
            )
            self.spark.sql(f"{alter} ALTER COLUMN {', '.join(comments)}")
            text = quote_sql(TABLE_TEXTS.get(name, ""))
            self.spark.sql(f"COMMENT ON TABLE delta.`{self.path(name)}` IS {text}")
            properties = (f"'{key}' = '{value}'" for key, value in _make_properties(name).items())
            self.spark.sql(f"{alter} SET TBLPROPERTIES ({', '.join(properties)})")

        _for_each_table(migrate_table, old)

    def _list_missing_columns(self, name: str, version: int) -> list[str]:
        """The columns that a table lacks, as DDL.

        Raises `WrongTables` if the table has a column that is not in `TABLES`, or has another type there.
        """
        columns = {field.name: field.dataType for field in _parse_columns(TABLES[name])}
        present = {field.name: field.dataType for field in self.frame(name).schema}
        if present != {column: columns.get(column) for column in present}:
            raise self._make_version_error(name, version, "there is no migration; use the koff that wrote it")
        return [f"`{column}` {columns[column].simpleString()}" for column in columns if column not in present]

    def _make_version_error(
        self, name: str, version: int | str, cure: str = "use the koff that wrote it, or another --tables"
    ) -> WrongTables:
        return WrongTables(f"{self.path(name)} has schema {version}, this koff writes {VERSION}: {cure}")

    def _list_names(self) -> set[str]:
        """The names of files and folders in the root, hidden ones left out; empty if there is no root."""
        fs, path = filesystem(self.spark, self.root)
        if not fs.exists(path):
            return set()
        if not fs.getFileStatus(path).isDirectory():
            raise WrongTables(f"{self.root} is a file: give --tables a folder")
        names = {status.getPath().getName() for status in fs.listStatus(path)}
        return {name for name in names if not name.startswith(".")}  # Hadoop's .crc files, for example


def check_root(root: str, *, create: bool) -> None:
    """Raises an error if the local folder `root` cannot be one of tables; needs no Spark.

    `create`: the tables will be created if they are missing. The error is `WrongTables`, or `ConfigError` if
    the folder cannot be written. A root that is not a local folder is not checked.
    """
    if "://" in root:
        return
    folder = Path(root).absolute()
    if folder.is_file():
        raise WrongTables(f"{folder} is a file: give --tables a folder")
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    _check_names(str(folder), names, create=create)
    if create:
        check_writable(folder, folder=True)


def _check_names(root: str, present: Iterable[str], *, create: bool) -> None:
    """Raises `WrongTables` if the names in the root are not those of tables."""
    missing = sorted(TABLES.keys() - present)
    if not create and missing:
        raise WrongTables(
            f"no tables of koff's in {root} ({missing[0]} is missing): check --tables; "
            "`koff pipeline run` creates them"
        )
    foreign = sorted(
        name for name in present if name not in TABLES and name not in (CHECKPOINTS, MAINTENANCE)
    )
    if create and foreign:
        # Other files in the root mean that its path is probably wrong.
        raise WrongTables(
            f"{root} contains other files ({', '.join(foreign[:3])}): give --tables a folder of its own"
        )


def quote_sql(text: str) -> str:
    """The text as a string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _find_migrations(name: str, version: int) -> list[Callable[[SparkSession, str], None]]:
    """The migrations of a table from that version to the current one, in order."""
    return [MIGRATIONS[name, step] for step in range(version, VERSION) if (name, step) in MIGRATIONS]


def _for_each_table(work: Callable[[str], Result], names: Iterable[str]) -> list[Result]:
    """Calls `work` for every table, in four threads: most of the time, `work` waits for files or Spark."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, names))


def _parse_columns(table: Table) -> Any:
    """The columns as a `StructType`."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(table.ddl)


def _define_columns(name: str) -> Any:
    """The columns of a new table as a `StructType`, with comments, and NOT NULL where that holds."""
    from pyspark.sql.types import StructType

    required = find_layout(name).required
    columns = StructType()
    for field in _parse_columns(TABLES[name]):
        metadata = {"comment": describe_column(name, field.name)}
        columns.add(field.name, field.dataType, field.name not in required, metadata)
    return columns


def _make_properties(name: str) -> dict[str, str]:
    """The properties of a table, with the version of its schema."""
    return {**find_layout(name).make_properties(), PROPERTY: str(VERSION)}


def filesystem(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's `FileSystem` for a path, and the path as Hadoop's `Path`."""
    context = spark.sparkContext
    assert context._jvm is not None
    assert context._jsc is not None
    hadoop_path = context._jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(context._jsc.hadoopConfiguration()), hadoop_path


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a small UTF-8 file, wherever Hadoop can read it."""
    fs, hadoop_path = filesystem(spark, path)
    assert spark.sparkContext._jvm is not None
    stream = fs.open(hadoop_path)
    try:
        return str(spark.sparkContext._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
