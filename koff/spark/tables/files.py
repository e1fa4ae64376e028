"""Rows into Parquet files by the workers that make them; the driver makes the files the table's.

Spark's own writer takes every row through Java, which for commits costs several times what reading and
decoding do. Here a task writes files beside the table's others, as Spark's tasks do, and the driver adds
them all to Delta's log in one transaction. A task that fails removes its files; those of a worker that was
killed are in no table, and VACUUM (`koff pipeline maintain`) clears them away.
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

from koff.spark.rows.newest import CHUNK, newest
from koff.spark.rows.packing import COLUMNS, COMMIT, FILE, PACKED, bucketed, packed, parts
from koff.spark.tables.schemas import TXN, Tables

WRITTEN = tuple(name for name in COLUMNS[COMMIT] if name != "tombstone")
"""The columns of a file."""
_HELD_ROWS = 1 << 20
"""So many rows wait in memory at most, over all days."""
_ROW_GROUP = 1 << 18
_NAMES = ("group", "topic", "metadata", "topic_id", "offsets_partition", "partition", "leader_epoch")
_NUMBERS = (
    *("log_offset", "timestamp", "committed", "commit_timestamp"),
    *(f"recent.list.element.{name}" for name in ("at_ms", "committed", "lag")),
)
_STATED = ("offsets_partition", "log_offset", "timestamp")
"""Of these the table's log says the least and the most in a file."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_DAY_US = 86_400_000_000
_NO_DAY = -1
"""Of a time that is not known: none is before 1970."""


@dataclass(frozen=True, slots=True)
class Into:
    """The folder of the table `commits` and the cluster whose rows are written.

    `behind`: up to which offset of a partition rows may be in the table already: those are not written.
    """

    folder: str
    cluster: str
    behind: Mapping[int, int] = field(default_factory=dict)

    def told(self) -> str:
        """Itself as an option of the source."""
        return json.dumps([self.folder, self.cluster, self.behind])

    @classmethod
    def of(cls, told: str) -> Into:
        """What `told` gave."""
        folder, cluster, behind = json.loads(told)
        return cls(folder, cluster, {int(partition): offset for partition, offset in behind.items()})

    def split(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Rows that may be in the table already, and those that are surely new."""
        if not self.behind:
            return rows.slice(0, 0), rows
        homes = rows.column("offsets_partition").dictionary_encode()
        behind = np.array([self.behind.get(home, -1) for home in homes.dictionary.to_pylist()], np.int64)
        new = rows.column("log_offset").to_numpy() > behind[homes.indices.to_numpy()]
        return rows.filter(pa.array(~new)), rows.filter(pa.array(new))


def written(batches: Iterable[pa.RecordBatch], into: Into) -> Iterator[pa.RecordBatch]:
    """Decoded rows packed, as `koff.spark.rows.packing.pack` does; but of the commits that are new only
    those that may matter to what is current (`NOTED`), and a row for each file that holds all of them
    (`FILE`)."""
    files = Files(into)
    held: list[pa.RecordBatch] = []
    try:
        for batch in batches:
            rows = []
            for what, part in parts(batch):
                old = part
                if what == COMMIT:
                    old, new = into.split(part)
                    files.write(new)
                    held.append(new)
                if len(old):
                    rows.append(packed(what, old))
            if sum(map(len, held)) >= CHUNK:
                rows += bucketed(newest(pa.concat_batches(held)))
                held = []
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=PACKED)
        if any(map(len, held)):
            last = list(bucketed(newest(pa.concat_batches(held))))
            yield pa.RecordBatch.from_pylist(last, schema=PACKED)
        if found := files.close():
            yield pa.RecordBatch.from_pylist(found, schema=PACKED)
    except BaseException:
        files.discard()
        raise


class Files:
    """The files of one task, one a day."""

    def __init__(self, into: Into) -> None:
        self._into = into
        self._open: dict[date | None, _File] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Takes commits in the columns of `COLUMNS[COMMIT]`."""
        if not len(rows):
            return
        for day, some in _by_day(rows):
            if day not in self._open:
                of = {"cluster": self._into.cluster, "day": None if day is None else day.isoformat()}
                self._open[day] = _File(self._into.folder, of)
            self._open[day].add(some.select(list(WRITTEN)))
        while sum(each.held_rows for each in self._open.values()) > _HELD_ROWS:
            max(self._open.values(), key=lambda each: each.held_rows).flush()

    def close(self) -> list[dict[str, Any]]:
        """Ends the files: a row of `PACKED` for each, in `packed` what Delta's log is to say of it."""
        return [{"what": FILE, "packed": each.close(), "records": each.rows} for each in self._open.values()]

    def discard(self) -> None:
        """Removes the files."""
        for each in self._open.values():
            each.discard()


def one_file(folder: str, cluster: str, rows: pa.RecordBatch) -> bytes:
    """Writes rows of a table that knows no days into one file; what Delta's log is to say of it."""
    file = _File(folder, {"cluster": cluster})
    try:
        file.add(rows)
        return file.close()
    except BaseException:
        file.discard()
        raise


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[date | None, pa.RecordBatch]]:
    times = rows.column("timestamp")
    days = times.cast(pa.int64()).fill_null(_NO_DAY * _DAY_US).to_numpy() // _DAY_US
    for number in np.unique(days).tolist():
        mine = days == number
        day = None if number == _NO_DAY else date(1970, 1, 1) + timedelta(days=number)
        yield day, rows if mine.all() else rows.filter(pa.array(mine))


class _File:
    def __init__(self, folder: str, of: Mapping[str, str | None]) -> None:
        self._of = of
        parts = (f"{name}={_NULL if value is None else quote(value, safe='')}" for name, value in of.items())
        self._path = "/".join((*parts, f"koff-{uuid4()}.parquet"))
        self._at = Path(folder) / self._path
        self._writer: parquet.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self.held_rows = self.rows = 0
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.held_rows += len(rows)
        if self.held_rows >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held)
        if self._writer is None:
            self._at.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(
                self._at,
                rows.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=list(_NAMES),
                column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
                store_schema=False,
            )
        self._writer.write_table(rows, row_group_size=2 * _ROW_GROUP)
        for name in _STATED:
            found = pc.min_max(rows.column(name).cast(pa.int64())).as_py()
            if found["min"] is not None:
                self._least[name] = min(found["min"], self._least.get(name, found["min"]))
                self._most[name] = max(found["max"], self._most.get(name, found["max"]))
        self.rows += self.held_rows
        self._held, self.held_rows = [], 0

    def close(self) -> bytes:
        self.flush()
        assert self._writer is not None
        self._writer.close()
        stats = {
            "numRecords": self.rows,
            "minValues": {name: _stated(name, least) for name, least in self._least.items()},
            "maxValues": {name: _stated(name, most + 999) for name, most in self._most.items()},
        }
        add = {
            "path": quote(self._path, safe="/="),
            "partitionValues": dict(self._of),
            "size": self._at.stat().st_size,
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        return json.dumps({"add": add}).encode()

    def discard(self) -> None:
        if self._writer is not None:
            with suppress(OSError):  # the disk is full, say: that is told already
                self._writer.close()
            self._at.unlink(missing_ok=True)


def _stated(name: str, value: int) -> int | str:
    """A bound as Delta's statistics have it: times in whole milliseconds."""
    if name != "timestamp":
        return value
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value // 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def commit(tables: Tables, name: str, files: Iterable[bytes], *, again: bool = True) -> None:
    """Makes the files part of that table, all or none, in one transaction.

    `files` as `Files.close` and `one_file` have them. Within `once`, what was written under that version (or
    a later one) before is not written again: the files are removed. Unless `again` it surely was not, and
    that is not looked up. The application is one of its own: Spark may write into the table as well.
    """
    adds = [json.loads(each) for each in files]
    conf, jvm = tables.spark.conf, cast("Any", tables.spark.sparkContext._jvm)
    delta = jvm.org.apache.spark.sql.delta
    transaction = tables.log(name).startTransaction()
    actions = [json.dumps(each) for each in adds]
    if app := conf.get(TXN + "AppId", None):
        app, version = f"{app} files", int(conf.get(TXN + "Version", None) or 0)
        if again and transaction.txnVersion(app) >= version:
            folder = Path(tables.folder(name) or "")
            for each in adds:
                (folder / unquote(each["add"]["path"])).unlink(missing_ok=True)
            return
        told = {"appId": app, "version": version, "lastUpdated": time.time_ns() // 1_000_000}
        actions.append(json.dumps({"txn": told}))
    made = jvm.java.util.ArrayList()
    for action in actions:
        made.add(delta.actions.Action.fromJson(action))
    manual = getattr(jvm, "org.apache.spark.sql.delta.DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
    transaction.commit(jvm.org.apache.spark.api.python.PythonUtils.toSeq(made), manual)
