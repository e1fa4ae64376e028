"""Batches of decoded rows, each packed into one row: cheap to hold while table after table takes its part.

Spark's own cache takes the seventeen columns of a record apart and puts them together again for every use,
which costs more than reading the log; a packed batch is bytes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from koff.spark.decoding import COMMITS, DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMIT, GROUP, UNDECODED = "commit", "group", "undecoded"
"""What a packed batch holds: commits and their deletions; records about groups; what did not decode."""
PACKED_DDL = "what STRING, records BIGINT, deletions BIGINT, first_ms BIGINT, last_ms BIGINT, packed BINARY"
PACKED = pa.schema(
    [
        ("what", pa.string()),
        ("records", pa.int64()),
        ("deletions", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("packed", pa.binary()),
    ]
)
"""`deletions` of the `records` are tombstones; their times lie from `first_ms` to `last_ms`."""
_AT = ("offsets_partition", "log_offset", "timestamp")
COLUMNS = {
    COMMIT: (
        *(*_AT, "group", "topic", "partition", "committed", "leader_epoch", "metadata"),
        *("commit_timestamp", "topic_id", "tombstone"),
    ),
    GROUP: (*_AT, "group", "key", "value"),
    UNDECODED: (*_AT, "key", "value", "reason"),
}
"""What is packed of a row."""
_DDL = {column.split()[0]: column for column in DDL.split(", ")}
_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decoded rows (`koff.spark.decoding.SCHEMA`) packed, what is of one use together."""
    for batch in batches:
        kinds = batch.column("kind")
        commits = pc.is_in(kinds, pa.array(COMMITS))
        undecoded = pc.is_in(kinds, pa.array(("Undecodable", "Unknown")))
        about_groups = pc.invert(pc.or_(commits, undecoded))
        parts = ((COMMIT, commits), (GROUP, about_groups), (UNDECODED, undecoded))
        rows = [_packed(what, batch, mask) for what, mask in parts if pc.any(mask).as_py()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=PACKED)


def _packed(what: str, batch: pa.RecordBatch, mask: pa.BooleanArray) -> dict[str, object]:
    rows = batch if pc.all(mask).as_py() else batch.filter(mask)
    deletions = pc.sum(rows.column("tombstone")).as_py() or 0
    rows = rows.select(list(COLUMNS[what]))
    times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema, options=_OPTIONS) as stream:
        stream.write_batch(rows)
    return {
        "what": what,
        "records": len(rows),
        "deletions": deletions,
        "first_ms": _ms(times["min"]),
        "last_ms": _ms(times["max"]),
        "packed": sink.getvalue().to_pybytes(),
    }


def _ms(at_us: int | None) -> int | None:
    return None if at_us is None else at_us // 1000


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that were packed."""
    for batch in batches:
        for packed in batch.column(0):
            with ipc.open_stream(packed.as_buffer()) as stream:
                yield from stream


def unpacked(frame: DataFrame, what: str) -> DataFrame:
    """The decoded rows of a packed frame that are of that use, in its columns."""
    return mapped(frame, what, unpack)


def mapped(
    frame: DataFrame, what: str, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """What that makes, in the same columns, of the packed batches of that use."""
    ddl = ", ".join(_DDL[name] for name in COLUMNS[what])
    return frame.where(frame["what"] == what).select("packed").mapInArrow(work, ddl)
