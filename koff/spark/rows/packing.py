"""Packs a batch of decoded rows into one row with a binary column, which Spark caches at little cost.

A batch is cached because it is read again for each table. Spark's cache splits rows into their seventeen
columns and joins them again at each use, which costs more than to read the log. A packed batch is only bytes
to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from koff.spark.rows.decoding import COMMITS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMIT, GROUP, UNDECODED = "commit", "group", "undecoded"
"""What a packed batch contains (its column `what`): commits and their deletions; records about groups;
records that could not be decoded."""
EXTENT = "extent"
"""One more content: no rows, but an `Extent`."""
PACKED = pa.schema(
    [
        ("what", pa.string()),
        ("records", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("packed", pa.binary()),
    ]
)
"""A row for each packed batch. `records` is the number of its rows, `first_ms` and `last_ms` bound their
timestamps (null: no row has one). `packed` is an Arrow IPC stream; of EXTENT, JSON."""
BUCKETED = pa.schema([("bucket", pa.int32()), ("packed", pa.binary())])
"""A row for each part of a batch of commits, as `pack_buckets` splits it."""
_AT = ("offsets_partition", "log_offset", "timestamp")
_COMMIT = (
    *(*_AT, "group", "topic", "partition", "committed", "leader_epoch", "metadata"),
    *("commit_timestamp", "topic_id", "tombstone"),
)
COLUMNS = {
    COMMIT: _COMMIT,
    GROUP: (*_AT, "group", "key", "value"),
    UNDECODED: (*_AT, "key", "value", "reason"),
}
"""The columns of each content's packed rows."""
COMMIT_ROWS = pa.schema([SCHEMA.field(name) for name in _COMMIT])
_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


class Extent(NamedTuple):
    """The offsets of a partition that a task read: from `start` up to `end`, without `end`.

    Up to `sound_end`, all committed records are among the rows: nothing is damaged, no transaction is open.
    """

    partition: int
    start: int
    end: int
    sound_end: int

    def pack(self) -> pa.RecordBatch:
        """A row of `PACKED`."""
        row = {"what": EXTENT, "records": 0, "packed": json.dumps(self).encode()}
        return pa.RecordBatch.from_pylist([row], schema=PACKED)

    @classmethod
    def decode(cls, packed: bytes) -> Extent:
        """The extent that `pack` wrote."""
        return cls(*json.loads(packed))


def pack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs each batch of decoded rows (columns `SCHEMA`) into up to three rows of `PACKED`."""
    for batch in batches:
        rows = [pack_rows(content, part) for content, part in split_by_content(batch)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=PACKED)


def split_by_content(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Splits decoded rows by content. Each part has its content's columns and at least one row."""
    kinds = batch.column("kind")
    commits = pc.is_in(kinds, pa.array(COMMITS))
    undecoded = pc.is_in(kinds, pa.array(("Undecodable", "Unknown")))
    about_groups = pc.invert(pc.or_(commits, undecoded))
    for content, mask in ((COMMIT, commits), (GROUP, about_groups), (UNDECODED, undecoded)):
        if pc.any(mask).as_py():
            rows = batch if pc.all(mask).as_py() else batch.filter(mask)
            yield content, rows.select(list(COLUMNS[content]))


def pack_rows(content: str, rows: pa.RecordBatch) -> dict[str, object]:
    """Packs rows with the columns of that content into one row of `PACKED`."""
    times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
    return {
        "what": content,
        "records": len(rows),
        "first_ms": _to_ms(times["min"]),
        "last_ms": _to_ms(times["max"]),
        "packed": _encode_rows(rows),
    }


def _encode_rows(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema, options=_OPTIONS) as stream:
        stream.write_batch(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def pack_buckets(rows: pa.RecordBatch, buckets: int) -> pa.RecordBatch:
    """Packs commits (`BUCKETED`), so that all rows of a topic's partition get the same bucket.

    Tasks that read different parts of the log must agree on the bucket, so it depends on the name alone.
    """
    # crc32 and not Python's hash of strings, which has another seed in each worker process.
    topics = rows.column("topic").dictionary_encode()
    hashes = [crc32((topic or "").encode()) for topic in topics.dictionary.to_pylist()]
    hash_ = np.array([*hashes, 0], np.int64)[topics.indices.fill_null(len(hashes)).to_numpy()]
    bucket = (hash_ + rows.column("partition").fill_null(0).to_numpy(zero_copy_only=False)) % buckets

    # Sort by bucket, so that a bucket is one slice; stable, so that log order stays within it.
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    rows = rows.take(pa.array(order))
    packs = [
        {"bucket": number, "packed": _encode_rows(rows.slice(start, end - start))}
        for number, (start, end) in enumerate(pairwise([0, *ends.tolist()]))
        if end > start
    ]
    return pa.RecordBatch.from_pylist(packs, schema=BUCKETED)


def _to_ms(time_us: int | None) -> int | None:
    return None if time_us is None else time_us // 1000


def unpack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of packed batches. The only column of `batches` is `packed`."""
    for batch in batches:
        for blob in batch.column(0):
            with ipc.open_stream(blob.as_buffer()) as stream:
                yield from stream


def unpack_frame(frame: DataFrame, content: str) -> DataFrame:
    """The decoded rows of one content in a packed frame, with that content's columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = from_arrow_schema(pa.schema([SCHEMA.field(name) for name in COLUMNS[content]]))
    return frame.where(frame["what"] == content).select("packed").mapInArrow(unpack_batches, columns)
