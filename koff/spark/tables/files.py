"""Lets workers write their rows into Parquet files; the driver adds the files to the table.

Spark's own writer takes every row through Java, which for commits costs several times what reading and
decoding cost. So a task writes files into the table's folder, as Spark's tasks do, and the driver adds all
of them to Delta's log in one transaction. A task that fails removes its files. The files of a killed worker
belong to no table, and VACUUM (`koff pipeline maintain`) deletes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from koff.spark.rows.newest import CHUNK_ROWS, keep_newest
from koff.spark.rows.packing import COLUMNS, COMMIT, FILE, PACKED, pack_buckets, pack_rows, split_by_content
from koff.spark.tables.schemas import TXN, Tables

FILE_COLUMNS = tuple(name for name in COLUMNS[COMMIT] if name != "tombstone")
"""The columns of a file of commits."""
_MAX_BUFFERED_ROWS = 1 << 20
"""How many rows of a task may wait in memory, in all its files together."""
_ROW_GROUP = 1 << 18
_NAMES = ("group", "topic", "metadata", "topic_id", "offsets_partition", "partition", "leader_epoch")
_NUMBERS = (
    *("log_offset", "timestamp", "committed", "commit_timestamp"),
    *(f"recent.list.element.{name}" for name in ("at_ms", "committed", "lag")),
)
_BOUNDED = ("offsets_partition", "log_offset", "timestamp")
"""Delta's log gets the least and the largest value of these columns in each file."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name of a partition's folder for null, as Spark writes it."""
_DAY_US = 86_400_000_000
_NO_DAY = -1
"""Stands for the day of a null timestamp. No real day is negative: decoding makes times before 1970 null."""


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The folder of the table `commits`, and the cluster whose rows are written into it.

    `last_written` maps an offsets partition to the last log offset that the table may have already. Rows up
    to that offset are not written into files.
    """

    folder: str
    cluster: str
    last_written: Mapping[int, int] = field(default_factory=dict)

    def to_option(self) -> str:
        """The target as the text of a source's option `into`."""
        return json.dumps([self.folder, self.cluster, self.last_written])

    @classmethod
    def from_option(cls, text: str) -> FileTarget:
        """The target that `to_option` wrote."""
        folder, cluster, last_written = json.loads(text)
        # The keys of a JSON object are strings.
        return cls(folder, cluster, {int(partition): offset for partition, offset in last_written.items()})

    def split_rows(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows that the table may have already, and the rows that are certainly new."""
        if not self.last_written:
            return rows.slice(0, 0), rows
        partitions = rows.column("offsets_partition").dictionary_encode()
        last = [self.last_written.get(partition, -1) for partition in partitions.dictionary.to_pylist()]
        new = rows.column("log_offset").to_numpy() > np.array(last, np.int64)[partitions.indices.to_numpy()]
        return rows.filter(pa.array(~new)), rows.filter(pa.array(new))


def write_batches(batches: Iterable[pa.RecordBatch], target: FileTarget) -> Iterator[pa.RecordBatch]:
    """Packs decoded rows as `pack_batches` does, but writes new commits into files.

    Instead of the commits in files, it yields those that may matter to the table `current` (`NOTED`), and at
    the end a row for each file (`FILE`). If the batches raise an error or the caller closes the iterator, the
    files are removed.
    """
    files = CommitFiles(target)
    pending: list[pa.RecordBatch] = []
    try:
        for batch in batches:
            rows = []
            for content, part in split_by_content(batch):
                to_pack = part
                if content == COMMIT:
                    to_pack, new = target.split_rows(part)
                    files.write_rows(new)
                    pending.append(new)
                if len(to_pack):
                    rows.append(pack_rows(content, to_pack))
            # Collect many commits first: of few commits, most would be the newest of their slot.
            if sum(map(len, pending)) >= CHUNK_ROWS:
                rows += pack_buckets(keep_newest(pa.concat_batches(pending)))
                pending = []
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=PACKED)
        if any(map(len, pending)):
            noted = list(pack_buckets(keep_newest(pa.concat_batches(pending))))
            yield pa.RecordBatch.from_pylist(noted, schema=PACKED)
        # A file's entry needs its final size and statistics, so these rows come last.
        if entries := files.close():
            yield pa.RecordBatch.from_pylist(entries, schema=PACKED)
    except BaseException:  # GeneratorExit too: Spark closes the iterator of a task that it cancels
        files.discard()
        raise


class CommitFiles:
    """The files of commits that one task writes, one for each day."""

    def __init__(self, target: FileTarget) -> None:
        self._target = target
        self._open: dict[date | None, _ParquetFile] = {}

    def write_rows(self, rows: pa.RecordBatch) -> None:
        """Adds commits with the columns `COLUMNS[COMMIT]`."""
        if not len(rows):
            return
        for day, part in _split_by_day(rows):
            if day not in self._open:
                values = {"cluster": self._target.cluster, "day": None if day is None else day.isoformat()}
                self._open[day] = _ParquetFile(self._target.folder, values)
            self._open[day].add_rows(part.select(list(FILE_COLUMNS)))
        # Flush the file with the most rows first, so that row groups are as large as possible.
        while sum(file.buffered_rows for file in self._open.values()) > _MAX_BUFFERED_ROWS:
            max(self._open.values(), key=lambda file: file.buffered_rows).flush()

    def close(self) -> list[dict[str, Any]]:
        """Completes the files. Returns a row of `PACKED` for each; `packed` is its entry for Delta's log."""
        files = self._open.values()
        return [{"what": FILE, "packed": file.close(), "records": file.rows} for file in files]

    def discard(self) -> None:
        """Removes the files."""
        for file in self._open.values():
            file.discard()


def write_file(folder: str, cluster: str, rows: pa.RecordBatch) -> bytes:
    """Writes rows of a table that has no days into one file. Returns its entry for Delta's log."""
    file = _ParquetFile(folder, {"cluster": cluster})
    try:
        file.add_rows(rows)
        return file.close()
    except BaseException:
        file.discard()
        raise


def _split_by_day(rows: pa.RecordBatch) -> Iterator[tuple[date | None, pa.RecordBatch]]:
    """The rows of each day (UTC); None is the day of rows without a timestamp."""
    times = rows.column("timestamp")
    days = times.cast(pa.int64()).fill_null(_NO_DAY * _DAY_US).to_numpy() // _DAY_US
    for number in np.unique(days).tolist():
        is_of_day = days == number
        day = None if number == _NO_DAY else date(1970, 1, 1) + timedelta(days=number)
        yield day, rows if is_of_day.all() else rows.filter(pa.array(is_of_day))


class _ParquetFile:
    """One file in the folder of a table. `partition_values` are the columns that its path holds."""

    def __init__(self, folder: str, partition_values: Mapping[str, str | None]) -> None:
        self._values = partition_values
        folders = (
            f"{name}={_NULL if value is None else quote(value, safe='')}"
            for name, value in partition_values.items()
        )
        self._path = "/".join((*folders, f"koff-{uuid4()}.parquet"))
        self._file = Path(folder) / self._path
        self._writer: parquet.ParquetWriter | None = None
        self._buffer: list[pa.RecordBatch] = []
        self.buffered_rows = self.rows = 0
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Buffers the rows, and writes a row group if there are enough of them."""
        self._buffer.append(rows)
        self.buffered_rows += len(rows)
        if self.buffered_rows >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered rows as a row group."""
        if not self._buffer:
            return
        rows = pa.Table.from_batches(self._buffer)

        # The first rows make the file: it has their schema.
        if self._writer is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(
                self._file,
                rows.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=list(_NAMES),
                column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
                store_schema=False,
            )
        # `row_group_size` is twice `_ROW_GROUP`: the last batch may go beyond `_ROW_GROUP`, and should not
        # make a second, small row group.
        self._writer.write_table(rows, row_group_size=2 * _ROW_GROUP)

        # Statistics for Delta's log.
        for name in _BOUNDED:
            bounds = pc.min_max(rows.column(name).cast(pa.int64())).as_py()
            if bounds["min"] is not None:
                self._least[name] = min(bounds["min"], self._least.get(name, bounds["min"]))
                self._most[name] = max(bounds["max"], self._most.get(name, bounds["max"]))
        self.rows += self.buffered_rows
        self._buffer, self.buffered_rows = [], 0

    def close(self) -> bytes:
        """Completes the file, which has at least one row. Returns its entry for Delta's log, as JSON."""
        self.flush()
        assert self._writer is not None
        self._writer.close()
        stats = {
            "numRecords": self.rows,
            "minValues": {name: _format_bound(name, least) for name, least in self._least.items()},
            # A timestamp is cut to milliseconds, so its upper bound is rounded up first.
            "maxValues": {name: _format_bound(name, most + 999) for name, most in self._most.items()},
        }
        add = {
            "path": quote(self._path, safe="/="),  # on top of the quotes in the path: Delta wants a URI
            "partitionValues": dict(self._values),
            "size": self._file.stat().st_size,
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        return json.dumps({"add": add}).encode()

    def discard(self) -> None:
        """Removes the file, complete or not."""
        if self._writer is not None:
            with suppress(OSError):  # for example a full disk; the first error has been raised already
                self._writer.close()
            self._file.unlink(missing_ok=True)


def _format_bound(name: str, value: int) -> int | str:
    """A bound as Delta's statistics have it: a timestamp (in microseconds) in whole milliseconds."""
    if name != "timestamp":
        return value
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value // 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def commit_files(tables: Tables, name: str, entries: Iterable[bytes]) -> None:
    """Adds files to a table in one transaction: all of them or none.

    `entries` are what `CommitFiles.close` and `write_file` return. Inside `write_once`, if the table already
    has files of that version or a later one, nothing is added, and the files are removed.
    """
    actions = [json.loads(entry) for entry in entries]
    transaction = tables.delta_log(name).startTransaction()
    conf = tables.spark.conf
    if app := conf.get(TXN + "AppId", None):
        app, version = app + _FILES, int(conf.get(TXN + "Version", None) or 0)
        # Always asked: Delta then refuses this commit if another writer of the application commits meanwhile.
        if transaction.txnVersion(app) >= version:
            folder = Path(tables.folder(name) or "")
            for action in actions:
                (folder / unquote(action["add"]["path"])).unlink(missing_ok=True)
            return
        actions.append(_make_txn(app, version))
    _commit_actions(tables, transaction, actions)


def seal_table(tables: Tables, name: str, app: str, version: int) -> None:
    """Makes the table ignore all that the application writes with this version or an earlier one."""
    transaction = tables.delta_log(name).startTransaction()
    actions = [
        _make_txn(each, version) for each in (app, app + _FILES) if transaction.txnVersion(each) < version
    ]
    if actions:
        _commit_actions(tables, transaction, actions)


_FILES = " files"
"""Is appended to the application's name for files. Spark may write rows of the same batch into the same
table, under the application's own name: with one name, Delta would ignore the second as a repetition."""


def _make_txn(app: str, version: int) -> dict[str, Any]:
    return {"txn": {"appId": app, "version": version, "lastUpdated": time.time_ns() // 1_000_000}}


def _commit_actions(tables: Tables, transaction: Any, actions: Iterable[Mapping[str, Any]]) -> None:
    # Delta's Python API cannot add files: use its Scala classes. MODULE$ is how Java sees a Scala object.
    jvm = cast("Any", tables.spark.sparkContext._jvm)
    java_actions = jvm.java.util.ArrayList()
    for action in actions:
        java_actions.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(action)))
    operation = getattr(jvm, "org.apache.spark.sql.delta.DeltaOperations$ManualUpdate$").__getattr__(
        "MODULE$"
    )
    transaction.commit(jvm.org.apache.spark.api.python.PythonUtils.toSeq(java_actions), operation)
