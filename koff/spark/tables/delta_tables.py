"""The tables below one root as Delta tables: created, checked, read, and appended to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from koff.errors import KoffError
from koff.spark.requirements import check_writable
from koff.spark.tables.conflicts import is_conflict, retry_conflicts
from koff.spark.tables.data_files import DataFile, DataFiles
from koff.spark.tables.log_store import is_single_driver
from koff.spark.tables.schemas import PROPERTY, TABLES, VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")
_BEGUN = ("DELTA_TABLE_NOT_FOUND", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")
"""Delta's errors when it is to create a table in a folder in which a creation was begun."""
COMPACT_EVERY = 10
"""In each batch whose number is a multiple of this, Delta looks whether there are many small files."""
MOST_COMMITS = 50
"""After more commits than this, Delta is asked for the number of the newest batch."""
_CREATED_WITHIN_S = 10.0
"""How long another process may take to create a table that it has begun."""


class WrongTables(KoffError):
    """The folder has no tables of koff's, or tables of another version, or other files."""


class Tables:
    """The tables below `root`: a folder, or another place that Spark writes to (s3a://..., hdfs://...).

    Call `create_tables` or `check_tables` before the other methods. Both raise `WrongTables`.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.new_tables: set[str] = set()
        """The tables that `create_tables` created."""
        self._numbers: dict[tuple[str, str], tuple[int, int]] = {}
        """By table and cluster: a version of the table, and the number of the newest batch in it."""
        # Delta accepts only absolute paths.
        self.root = (root if "://" in root else os.path.abspath(root)).rstrip("/")

    def path(self, name: str) -> str:
        """The path of a table."""
        return f"{self.root}/{name}"

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine, or one that all machines have under this name."""
        return "://" not in self.root

    def frame(self, name: str) -> DataFrame:
        """The rows of a table as of now."""
        return self.spark.read.format("delta").load(self.path(name))

    def cluster_frame(self, name: str, cluster: str) -> DataFrame:
        """The rows of one cluster in a table, as of now."""
        from pyspark.sql import functions as f

        return self.frame(name).where(f.col("cluster") == cluster)

    def delta_table(self, name: str) -> DeltaTable:
        """The table as a `DeltaTable`, for changes."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self.spark, self.path(name))

    def write_batch(
        self,
        name: str,
        rows: pa.Table,
        cluster: str,
        number: int,
        *,
        at: datetime | None = None,
        replace: bool = False,
    ) -> bool:
        """Appends the rows of a batch of a cluster, in one commit of Delta.

        The table takes one write of each number of a cluster, and none of a lower number: else this does
        nothing, and returns False. `rows` may lack `cluster`, `number` and `day`; rows without a time count
        as of `at`. With `replace`, the rows replace all rows of the cluster.
        """
        files = DataFiles(name, None, cluster, number, at or datetime.now(UTC))
        for batch in rows.combine_chunks().to_batches():
            files.write(batch)
        return self.add_files(name, files.close(), cluster, number, replace=replace)

    def add_files(
        self,
        name: str,
        files: Sequence[DataFile],
        cluster: str,
        number: int,
        *,
        replace: bool = False,
    ) -> bool:
        """Appends files of a batch as `write_batch` does rows. Returns False if the table had the number.

        A file that is not on disk is written first.
        """
        for each in files:
            if each.content is not None:
                fs, path = filesystem(self.spark, f"{self.path(name)}/{each.path}")
                with closing(fs.create(path)) as stream:
                    stream.write(each.content)
        jvm: Any = self.spark.sparkContext._jvm
        delta, app, some = jvm.org.apache.spark.sql.delta, make_app(cluster), jvm.scala.Option.apply
        written = {"appId": app, "version": number, "lastUpdated": time.time_ns() // 1_000_000}
        texts = [*(each.action for each in files), json.dumps({"txn": written})]
        modes = jvm.org.apache.spark.sql.SaveMode
        condition = f"cluster = {quote_sql(cluster)}" if replace else None
        write = delta.DeltaOperations.Write(
            modes.Overwrite if replace else modes.Append, some(None), some(condition), some(None)
        )
        compacts = not (replace or number % COMPACT_EVERY) and bool(files)
        compact = getattr(getattr(delta.hooks, "AutoCompact$"), "MODULE$")  # an object of Scala
        session = self.spark._jsparkSession

        def add() -> bool:
            change = self._delta_log(name).startTransaction()
            # From here on, a commit of another process with a number of this cluster is a conflict.
            change.readTxn().addOne(app)
            if self._find_number(name, cluster, change.snapshot()) >= number:
                return False
            actions = list(map(delta.actions.Action.fromJson, texts))
            if condition:
                parsed = session.sessionState().sqlParser().parseExpression(condition)
                old = change.filterFiles(_to_seq(jvm, [parsed]), False)
                actions += [old.apply(n).remove() for n in range(old.size())]
            if compacts:
                change.registerPostCommitHook(compact)
            self._numbers[name, cluster] = change.commit(_to_seq(jvm, actions), write), number
            return True

        # After a conflict, the number of the other process may be there.
        return retry_conflicts(add)

    def find_number(self, name: str, cluster: str) -> int:
        """The number of the newest batch of the cluster that the table has rows of; 0 without one."""
        return self._find_number(name, cluster, self._update_log(name))

    def _find_number(self, name: str, cluster: str, snapshot: Any) -> int:
        """The number as of the snapshot.

        Delta runs a job of Spark for it. So from the first time on, the commits since then are read.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types

        version, number = snapshot.version(), None
        known = self._numbers.get((name, cluster), (0, 0) if name in self.new_tables else None)
        if known is not None and version - known[0] <= MOST_COMMITS:
            since = range(known[0] + 1, version + 1)
            with suppress(Py4JJavaError):  # Delta deletes commits after some days
                number = max(known[1], 0, *(self._read_number(name, cluster, each) for each in since))
        if number is None:
            found = snapshot.transactions().get(make_app(cluster))
            number = int(found.get()) if found.isDefined() else 0
        self._numbers[name, cluster] = version, number
        return number

    def _read_number(self, name: str, cluster: str, version: int) -> int:
        """The number of the cluster's batch that a commit has written; 0 without one."""
        fs, path = filesystem(self.spark, f"{self.path(name)}/_delta_log/{version:020}.json")
        with closing(fs.open(path)) as stream:
            actions = map(json.loads, stream.readAllBytes().splitlines())
        written = [action["txn"] for action in actions if "txn" in action]
        return max((txn["version"] for txn in written if txn["appId"] == make_app(cluster)), default=0)

    def _update_log(self, name: str) -> Any:
        """Delta's newest snapshot of the table."""
        jvm: Any = self.spark.sparkContext._jvm
        nothing = jvm.scala.Option.empty()
        return self._delta_log(name).update(False, nothing, nothing)

    def _delta_log(self, name: str) -> Any:
        jvm: Any = self.spark.sparkContext._jvm
        # Delta reads its checkpoints with the active session of the thread, and a new thread has none.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.spark._jsparkSession)
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path(name))

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
        table = TABLES[name]
        builder = builder.comment(table.text).addColumns(table.list_columns())
        builder = builder.partitionedBy(*table.partitioning)
        for key, value in table.make_properties().items():
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
        snapshot = self._update_log(name)
        if snapshot.version() < 0:
            raise WrongTables(f"{self.path(name)} is not a Delta table: give --tables a folder of its own")
        found = snapshot.metadata().configuration().get(PROPERTY)
        version = found.get() if found.isDefined() else "(none)"
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


def make_app(cluster: str) -> str:
    """The name under which Delta notes the numbers of a cluster's batches."""
    return f"koff {cluster}"


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
    foreign = sorted(name for name in present if name not in TABLES)
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


def filesystem(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's `FileSystem` for a path, and the path as Hadoop's `Path`."""
    context = spark.sparkContext
    assert context._jvm is not None
    assert context._jsc is not None
    hadoop_path = context._jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(context._jsc.hadoopConfiguration()), hadoop_path


def _to_seq(jvm: Any, items: Iterable[Any]) -> Any:
    """The items as a `Seq` of Scala."""
    array = jvm.java.util.ArrayList()
    for each in items:
        array.add(each)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(array).toSeq()
