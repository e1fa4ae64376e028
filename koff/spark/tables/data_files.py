"""Rows of a table as Parquet files, with what Delta's log says of each. Needs no session of Spark."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from koff.spark.tables.schemas import DISTINCT, TABLES

MOST_OPEN = 100
"""So many files are open at once at most."""
_LONGEST = 256
"""Delta's log has the least and the largest text of a file only if they are no longer than this."""
_DAY_US = 86_400_000_000


class DataFile(NamedTuple):
    """A file: its path in the table, Delta's action that adds it (JSON), its bytes if it is not on disk."""

    path: str
    action: str
    content: bytes | None


class DataFiles:
    """The files of a batch of a cluster in a table: for each day at least one, in the folder of the table.

    `folder` is that of the table if files are to be written there; None: their bytes are returned. Rows
    without a time count as of `at`. Until Delta adds the files, they are none of the table's: VACUUM deletes
    them.
    """

    def __init__(self, name: str, folder: str | None, cluster: str, number: int, at: datetime) -> None:
        self._name, self._folder, self._cluster, self._number = name, folder, cluster, number
        self._at_us = round(at.timestamp() * 1e6)
        partitioning = TABLES[name].partitioning
        self._schema = pa.schema([each for each in TABLES[name].schema if each.name not in partitioning])
        self._open: dict[int, _File] = {}
        self._closed: list[DataFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Writes rows with the columns of the table; `cluster`, `number` and `day` may be missing."""
        number = pa.repeat(pa.scalar(self._number, pa.int64()), len(rows))
        columns = [number if name == "number" else rows.column(name) for name in self._schema.names]
        whole = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        for day, part in _split_days(whole, self._list_days(rows)):
            self._find_file(day).write(part)

    def close(self) -> list[DataFile]:
        """Closes the files, and returns them."""
        while self._open:
            self._close_oldest()
        return self._closed

    def _list_days(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """The day of each row, since 1970; all 0 in a table without days."""
        time_column = TABLES[self._name].time
        if not time_column:
            return np.zeros(len(rows), np.int64)
        times = rows.column(time_column).cast(pa.int64()).fill_null(self._at_us)
        days: NDArray[np.int64] = times.to_numpy(zero_copy_only=False) // _DAY_US
        return days

    def _find_file(self, day: int) -> _File:
        if day not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._close_oldest()
            partition = {"cluster": self._cluster, "day": date.fromordinal(_EPOCH + day).isoformat()}
            partition = {name: partition[name] for name in TABLES[self._name].partitioning}
            self._open[day] = _File(self._folder, partition, self._schema, TABLES[self._name].filtered)
        return self._open[day]

    def _close_oldest(self) -> None:
        self._closed.append(self._open.pop(next(iter(self._open))).close())


def _split_days(rows: pa.Table, days: NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each day."""
    if not len(days) or (days == days[0]).all():
        yield from ([(int(days[0]), rows)] if len(days) else ())
        return
    order = np.argsort(days, kind="stable")
    rows, days = rows.take(pa.array(order)), days[order]
    firsts = np.flatnonzero(np.diff(days, prepend=days[0] - 1)).tolist()
    for first, end in zip(firsts, [*firsts[1:], len(days)], strict=True):
        yield int(days[first]), rows.slice(first, end - first)


class _File:
    """A file of a partition of the table. Delta's log has statistics of the columns `filtered`."""

    def __init__(
        self, folder: str | None, partition: dict[str, str], schema: pa.Schema, filtered: Iterable[str]
    ) -> None:
        self._partition, self._filtered = partition, frozenset(filtered)
        parts = [f"{name}={quote(value, safe='')}" for name, value in partition.items()]
        self._path = "/".join([*parts, f"part-{uuid4()}.zstd.parquet"])
        self._on_disk = folder and os.path.join(folder, self._path)
        if self._on_disk:
            os.makedirs(os.path.dirname(self._on_disk), exist_ok=True)
        self._sink = pa.BufferOutputStream()
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._on_disk or self._sink,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in DISTINCT],
            metadata_collector=self._footers,
        )

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            self._writer.write_batch(batch)

    def close(self) -> DataFile:
        """Closes the file."""
        self._writer.close()
        content = None if self._on_disk else self._sink.getvalue().to_pybytes()
        add = {
            "path": quote(self._path, safe="/="),
            "partitionValues": self._partition,
            "size": os.path.getsize(self._on_disk) if self._on_disk else len(content or b""),
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": True,
            "stats": json.dumps(_read_statistics(self._footers[0], self._filtered)),
        }
        return DataFile(self._path, json.dumps({"add": add}), content)


_EPOCH = date(1970, 1, 1).toordinal()


def _read_statistics(footer: pq.FileMetaData, filtered: frozenset[str]) -> dict[str, Any]:
    """What Delta's log says of the values in a file."""
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for place in range(footer.num_columns):
        name = footer.schema.column(place).path
        groups = [footer.row_group(n).column(place).statistics for n in range(footer.num_row_groups)]
        if name not in filtered or any(each is None or not each.has_null_count for each in groups):
            continue
        found["nullCount"][name] = sum(each.null_count for each in groups)
        known = [each for each in groups if each.num_values]
        if known and all(each.has_min_max for each in known):
            ends = min(each.min for each in known), max(each.max for each in known)
            if not any(isinstance(end, str) and len(end) > _LONGEST for end in ends):
                found["minValues"][name], found["maxValues"][name] = map(_to_json, ends)
    return found


def _to_json(value: Any) -> Any:
    """Times in milliseconds, as Kafka has them."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
