"""The tables: their names, columns and schema version, and how they are created.

Each table is a Delta table in a folder below one root, with the version of its schema in the property
`koff.schema`. Offsets are Kafka's, times UTC, `..._s` are seconds, `..._per_s` offsets a second. `day` is the
day of the row's time. A table is partitioned by cluster, and by day if it has that column.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from koff.errors import KoffError
from koff.spark.requirements import check_writable
from koff.spark.tables.conflicts import is_conflict
from koff.spark.tables.descriptions import TABLE_TEXTS, describe_column
from koff.spark.tables.layout import LAYOUTS
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
NextTransaction = Callable[[], tuple[str, int]]
"""Returns the application and the version of a new transaction of Delta, as `Lease.next_transaction` does."""
_BEGUN = ("DELTA_TABLE_NOT_FOUND", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")
"""Delta's errors when it is to create a table in a folder in which a creation was begun."""
_CREATED_WITHIN_S = 10.0
"""How long another process may take to create a table that it has begun."""


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

        `transaction`: the application and the version for Delta, instead of those of the session. A table
        takes one write of each version of an application.
        """
        self._write_rows(name, frame, "append", {}, transaction)

    def replace_rows(
        self, name: str, frame: DataFrame, where: str, transaction: tuple[str, int] | None = None
    ) -> None:
        """Replaces the rows for which the SQL condition is true, in one commit of Delta.

        `frame` has all columns of the table, in any order. `transaction` is as in `append_rows`.
        """
        self._write_rows(name, frame, "overwrite", {"replaceWhere": where}, transaction)

    def _write_rows(
        self,
        name: str,
        frame: DataFrame,
        mode: str,
        options: Mapping[str, str],
        transaction: tuple[str, int] | None,
    ) -> None:
        write = frame.select(*self.frame(name).columns).write.format("delta").mode(mode).options(**options)
        if transaction is not None:
            write = write.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
        write.save(self.path(name))

    def make_frame(self, name: str, cluster: str, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
        """A few rows of a cluster, without `cluster` and `day`, as a frame that has the cluster."""
        from pyspark.sql import functions as f

        frame = self.spark.createDataFrame(list(rows), TABLES[name].columns)
        return frame.coalesce(1).withColumn("cluster", f.lit(cluster))

    def find_version(self, name: str, app: str) -> int:
        """The largest version of the application's transactions that the table has now; 0 without one."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        nothing = jvm.scala.Option.empty()
        delta_log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self.spark._jsparkSession, self.path(name)
        )
        found = delta_log.update(False, nothing, nothing).transactions().get(app)
        return int(found.get()) if found.isDefined() else 0

    def create_tables(self) -> None:
        """Creates the tables that are missing.

        Raises `UnsafeLogStore`, and `WrongTables`, before anything is written, if the root contains other
        files or tables of another koff.
        """
        is_single_driver(self.spark, self.root)  # raises `UnsafeLogStore`

        present = self._list_names()
        _check_names(self.root, present, create=True)
        self._check_versions([name for name in TABLES if name in present])

        for_each_table(self._create_table, (name for name in TABLES if name not in present))
        self.new_tables = set(TABLES) - present

    def _create_table(self, name: str) -> None:
        """Creates a table, unless another process does so at the same time."""
        from delta.tables import DeltaTable

        builder = DeltaTable.createIfNotExists(self.spark).location(self.path(name))
        builder = builder.comment(TABLE_TEXTS.get(name, "")).addColumns(_define_columns(name))
        builder = builder.partitionedBy(*TABLES[name].partitioning)
        for key, value in make_properties(name).items():
            builder = builder.property(key, value)
        try:
            builder.execute()
        except Exception as error:
            if not (is_conflict(error) or any(name in str(error) for name in _BEGUN)):
                raise
            # Another process creates the table now, or was killed while it did.
            deadline = time.monotonic() + _CREATED_WITHIN_S
            while self._is_unfinished(name):
                if time.monotonic() > deadline:
                    self._remove_unfinished(name)
                    builder.execute()
                    return
                time.sleep(0.1)

    def check_tables(self) -> None:
        """Raises `WrongTables` unless every table exists and has the current version."""
        _check_names(self.root, self._list_names(), create=False)
        self._check_versions(TABLES)

    def _check_versions(self, names: Iterable[str]) -> None:
        for_each_table(self._check_version, names)

    def _check_version(self, name: str) -> None:
        from delta.tables import DeltaTable

        if not DeltaTable.isDeltaTable(self.spark, self.path(name)):
            raise WrongTables(f"{self.path(name)} is not a Delta table: give --tables a folder of its own")
        rows = self.spark.sql(f"SHOW TBLPROPERTIES delta.`{self.path(name)}`").collect()
        version = {row.key: row.value for row in rows}.get(PROPERTY, "(none)")
        if version != str(VERSION):
            raise WrongTables(
                f"{self.path(name)} has schema {version}, this koff writes {VERSION}:"
                " use the koff that wrote it, or another --tables"
            )

    def _list_names(self) -> set[str]:
        """The names of files and folders in the root; empty if there is no root.

        Hidden ones are left out, and tables whose creation was interrupted.
        """
        fs, path = filesystem(self.spark, self.root)
        if not fs.exists(path):
            return set()
        if not fs.getFileStatus(path).isDirectory():
            raise WrongTables(f"{self.root} is a file: give --tables a folder")
        names = {status.getPath().getName() for status in fs.listStatus(path)}
        tables = sorted(names & TABLES.keys())
        unfinished = dict(zip(tables, for_each_table(self._is_unfinished, tables), strict=True))
        # Hadoop's .crc files are hidden, for example.
        return {name for name in names if not (name.startswith(".") or unfinished.get(name))}

    def _is_unfinished(self, name: str) -> bool:
        """Whether the folder of a table does not exist, or has no file that is not hidden.

        Delta writes a hidden file first, and renames it when it is complete.
        """
        fs, path = filesystem(self.spark, self.path(name))
        if not fs.exists(path):
            return True
        files = fs.listFiles(path, True)
        while files.hasNext():
            if not files.next().getPath().getName().startswith("."):
                return False
        return True

    def _remove_unfinished(self, name: str) -> None:
        """Removes what an interrupted creation of a table left: Delta creates a table in no other folder."""
        fs, path = filesystem(self.spark, self.path(name))

        def remove(folder: Any) -> None:
            for status in fs.listStatus(folder):
                if status.isDirectory():
                    remove(status.getPath())
                elif status.getPath().getName().startswith("."):
                    fs.delete(status.getPath(), False)
            fs.delete(folder, False)  # raises an error if a file was put in place meanwhile

        remove(path)


def check_root(root: str, *, create: bool, write: bool = False) -> None:
    """Raises an error if the local folder `root` cannot be one of tables; needs no Spark.

    `create`: the tables will be created if they are missing. `write`: they will be changed. The error is
    `WrongTables`, or `ConfigError` if the folder cannot be written. A root that is not a local folder is not
    checked.
    """
    if "://" in root:
        return
    folder = Path(root).absolute()
    if folder.is_file():
        raise WrongTables(f"{folder} is a file: give --tables a folder")
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    _check_names(str(folder), names, create=create)
    if create or write:
        check_writable(folder, folder=True)


def _check_names(root: str, present: Collection[str], *, create: bool) -> None:
    """Raises `WrongTables` if the names in the root are not those of tables."""
    missing = sorted(TABLES.keys() - present)
    if not create and missing:
        if any(name in present for name in TABLES):
            raise WrongTables(
                f"{root} lacks the table {missing[0]}: the creation of the tables was interrupted;"
                " `koff pipeline run` completes it"
            )
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


def for_each_table(work: Callable[[str], Result], names: Iterable[str]) -> list[Result]:
    """Calls `work` for every table, in four threads: most of the time, `work` waits for files or Spark."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, names))


def parse_columns(table: Table) -> Any:
    """The columns as a `StructType`."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(table.ddl)


def _define_columns(name: str) -> Any:
    """The columns of a new table as a `StructType`, with comments, and NOT NULL where that holds."""
    from pyspark.sql.types import StructType

    required = LAYOUTS[name].required
    columns = StructType()
    for field in parse_columns(TABLES[name]):
        metadata = {"comment": describe_column(name, field.name)}
        columns.add(field.name, field.dataType, field.name not in required, metadata)
    return columns


def make_properties(name: str) -> dict[str, str]:
    """The properties of a table, with the version of its schema."""
    return {**LAYOUTS[name].make_properties(), PROPERTY: str(VERSION)}


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
