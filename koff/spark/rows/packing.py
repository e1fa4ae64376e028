"""Batches of decoded rows, each packed into one row: cheap to hold while table after table takes its part.

Spark's own cache takes the seventeen columns of a record apart and puts them together again for every use,
which costs more than reading the log; a packed batch is bytes to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from koff.spark.rows.decoding import COMMITS, DDL, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMIT, GROUP, UNDECODED = "commit", "group", "undecoded"
"""What a packed batch holds: commits and their deletions; records about groups; what did not decode."""
NOTED, FILE = "noted", "file"
"""Of commits that are in files already, those that may matter to what is current; such a file, no rows."""
PACKED_DDL = "what STRING, bucket INT, records BIGINT, first_ms BIGINT, last_ms BIGINT, packed BINARY"
PACKED = pa.schema(
    [
        ("what", pa.string()),
        ("bucket", pa.int32()),
        ("records", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("packed", pa.binary()),
    ]
)
"""The times of so many `records` lie from `first_ms` to `last_ms`; `bucket` as `bucketed` has it, if any."""
BUCKETS = 32
_AT = ("offsets_partition", "log_offset", "timestamp")
_COMMIT = (
    *(*_AT, "group", "topic", "partition", "committed", "leader_epoch", "metadata"),
    *("commit_timestamp", "topic_id", "tombstone"),
)
COLUMNS = {
    COMMIT: _COMMIT,
    NOTED: _COMMIT,
    GROUP: (*_AT, "group", "key", "value"),
    UNDECODED: (*_AT, "key", "value", "reason"),
}
"""What is packed of a row."""
COMMIT_ROWS = pa.schema([SCHEMA.field(name) for name in _COMMIT])
_DDL = {column.split()[0]: column for column in DDL.split(", ")}
_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decoded rows (`koff.spark.rows.decoding.SCHEMA`) packed, what is of one use together."""
    for batch in batches:
        rows = [packed(what, part) for what, part in parts(batch)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=PACKED)


def parts(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The decoded rows by their use, in its columns; none is empty."""
    kinds = batch.column("kind")
    commits = pc.is_in(kinds, pa.array(COMMITS))
    undecoded = pc.is_in(kinds, pa.array(("Undecodable", "Unknown")))
    about_groups = pc.invert(pc.or_(commits, undecoded))
    for what, mask in ((COMMIT, commits), (GROUP, about_groups), (UNDECODED, undecoded)):
        if pc.any(mask).as_py():
            rows = batch if pc.all(mask).as_py() else batch.filter(mask)
            yield what, rows.select(list(COLUMNS[what]))


def packed(what: str, rows: pa.RecordBatch, bucket: int | None = None) -> dict[str, object]:
    """Rows of that use as one row of `PACKED`."""
    times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema, options=_OPTIONS) as stream:
        stream.write_batch(rows)
    return {
        "what": what,
        "bucket": bucket,
        "records": len(rows),
        "first_ms": _ms(times["min"]),
        "last_ms": _ms(times["max"]),
        "packed": sink.getvalue().to_pybytes(),
    }


def bucketed(rows: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Rows of `NOTED`, packed so that all of a topic's partition are in one bucket."""
    topics = rows.column("topic").dictionary_encode()
    hashes = [crc32((topic or "").encode()) for topic in topics.dictionary.to_pylist()]
    topic = np.array([*hashes, 0], np.int64)[topics.indices.fill_null(len(hashes)).to_numpy()]
    bucket = (topic + rows.column("partition").fill_null(0).to_numpy(zero_copy_only=False)) % BUCKETS
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
    rows = rows.take(pa.array(order))
    for number, (start, end) in enumerate(pairwise([0, *ends.tolist()])):
        if end > start:
            yield packed(NOTED, rows.slice(start, end - start), number)


def _ms(at_us: int | None) -> int | None:
    return None if at_us is None else at_us // 1000


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that were packed."""
    for batch in batches:
        for blob in batch.column(0):
            with ipc.open_stream(blob.as_buffer()) as stream:
                yield from stream


def unpacked(frame: DataFrame, what: str) -> DataFrame:
    """The decoded rows of a packed frame that are of that use, in its columns."""
    ddl = ", ".join(_DDL[name] for name in COLUMNS[what])
    return frame.where(frame["what"] == what).select("packed").mapInArrow(unpack, ddl)
