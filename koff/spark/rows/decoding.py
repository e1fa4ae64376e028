"""Records as they stand in the log in, decoded rows out: Arrow to Arrow, and nothing of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.errors import KoffError
from koff.proto.buffers import Binary, Text
from koff.proto.primitives import uuid_text
from koff.records import Keys, Message, RecordColumns, Undecodable, Unknown, decode_columns, record_name
from koff.records.record_types import title

TIME = pa.timestamp("us", "UTC")
RAW = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""What `decoded` takes: a record as it stands in its partition."""
SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("offsets_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("timestamp", TIME),
        ("kind", pa.string()),
        ("tombstone", pa.bool_()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp", TIME),
        ("topic_id", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
    ]
)
"""What it gives. Null is what a record does not say; `key` and `value` are there for all but commits."""
DDL = (
    "cluster STRING, offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP, kind STRING, "
    "tombstone BOOLEAN, group STRING, topic STRING, partition INT, committed BIGINT, leader_epoch INT, "
    "metadata STRING, commit_timestamp TIMESTAMP, topic_id STRING, key BINARY, value BINARY, reason STRING"
)
"""The same in Spark's words."""
COMMITS = ("OffsetCommit", "LegacyOffsetCommit")
"""The kinds that are offset commits."""

_KINDS = [*(record_name(number) for number in range(32)), "Undecodable", "Unknown"]


class DataLost(KoffError):
    """Records that are to be read are in the log no more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records. `group` and `topic` match anywhere; with `topic` there are only commits, with
    `commits_to` only those to such topics, and all that is no commit.

    `since_ms` and `until_ms` are of the record's own timestamp, the latter exclusive.
    """

    group: str | None = None
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    commits_to: str | None = None

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the decoded rows that are wanted."""
        if self == _ALL:
            return rows
        kept = np.ones(len(rows), np.bool_)
        for name in ("group", "topic"):
            pattern = getattr(self, name)
            if pattern is not None:
                kept &= _matching(rows.column(name), re.compile(pattern))
        if self.commits_to is not None:
            to = rows.column("topic")
            kept &= _matching(to, re.compile(self.commits_to)) | to.is_null().to_numpy(zero_copy_only=False)
        if self.since_ms is not None or self.until_ms is not None:
            at = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
            kept &= at >= (self.since_ms or 0) * 1000 if self.since_ms is not None else True
            kept &= at < self.until_ms * 1000 if self.until_ms is not None else True
        return rows if kept.all() else rows.filter(pa.array(kept))


_ALL = Wanted()


def _matching(names: pa.StringArray, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    found = names.dictionary_encode()
    known = [name is not None and bool(pattern.search(name)) for name in found.dictionary.to_pylist()]
    codes = found.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    kept: NDArray[np.bool_] = np.array([*known, False], np.bool_)[codes]
    return kept


def decoded(batch: pa.RecordBatch, cluster: str, names: Keys | None = None) -> pa.RecordBatch:
    """The records of a `RAW` batch by `SCHEMA`, row by row. For batch after batch keep a `Decoder`."""
    return Decoder(cluster, names)(batch)


class Decoder:
    """Decodes batches of one cluster; what it learns of names serves the next batch."""

    def __init__(self, cluster: str, names: Keys | None = None) -> None:
        self._cluster = cluster
        self._keys = names or Keys()
        self._names: dict[str, pa.StringArray] = {}
        self._kinds = pa.array(_KINDS)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The decoded rows of a batch in the columns of `RAW`."""
        partition, offset, timestamp, key, value = (batch.column(name) for name in RAW.names)
        times = timestamp.fill_null(-1).to_numpy(zero_copy_only=False)
        return self.rows(partition.cast(pa.int32()), offset, times, _binary(key), _binary(value))

    def rows(
        self,
        partition: pa.Int32Array,
        offset: pa.Int64Array,
        timestamp_ms: NDArray[np.int64],
        keys: Binary,
        values: Binary,
    ) -> pa.RecordBatch:
        """The decoded rows of records whose keys and values lie in buffers."""
        made = decode_columns(keys, values, names=self._keys)
        valid = made.ok & ~made.tombstone
        columns = {
            "cluster": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(len(keys), np.int8)), pa.array([self._cluster])
            ).dictionary_decode(),
            "offsets_partition": partition,
            "log_offset": offset,
            "timestamp": _time(timestamp_ms),
            "kind": self._kinds.take(pa.array(np.where(made.ok, made.type, 0))),
            "tombstone": pa.array(made.tombstone),
            "group": self._named("group", made.groups, made.group, made.ok),
            "topic": self._named("topic", made.topics, made.topic, made.ok),
            "partition": pa.array(made.partition, mask=_mask(~made.ok)),
            "committed": pa.array(made.offset, mask=_mask(~valid)),
            "leader_epoch": pa.array(made.leader_epoch, mask=_mask(made.leader_epoch < 0)),
            "metadata": _text(made.metadata, valid),
            "commit_timestamp": _time(made.commit_timestamp),
            "topic_id": _topic_ids(made),
        }
        if made.others:
            columns |= _others(made.others, columns, keys, values)
        else:
            columns |= {name: pa.nulls(len(keys), SCHEMA.field(name).type) for name in _OWN}
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _named(
        self, column: str, names: list[str], codes: NDArray[np.int32], ok: NDArray[np.bool_]
    ) -> pa.StringArray:
        """Strings by their codes. The array of all of them is made anew only when there are more."""
        known = self._names.get(column)
        if known is None or len(known) != len(names):
            known = self._names[column] = pa.array(names, pa.string())
        return known.take(pa.array(codes, mask=_mask(~ok)))


_OWN = ("key", "value", "reason")


def _others(
    others: Mapping[int, Message], columns: Mapping[str, pa.Array], keys: Binary, values: Binary
) -> dict[str, pa.Array]:
    """The columns that records other than commits fill in."""
    rows = np.fromiter(others, np.int64, len(others))
    place = np.full(len(keys), -1, np.int64)
    place[rows] = np.arange(len(rows))
    messages = others.values()
    mine = pa.array(np.maximum(place, 0), mask=_mask(place < 0))

    def filled(column: str, of: Callable[[Message], Any]) -> pa.Array:
        both = pa.concat_arrays(
            [columns[column], pa.array([of(message) for message in messages], columns[column].type)]
        )
        return both.take(pa.array(np.where(place >= 0, len(keys) + place, np.arange(len(keys)))))

    reasons = pa.array([getattr(message.record, "reason", None) for message in messages], pa.string())
    return {
        "kind": filled("kind", _kind),
        "group": filled("group", lambda message: message.consumer or None),
        "tombstone": filled("tombstone", lambda message: message.tombstone),
        "key": pa.array([keys[row] for row in others], pa.binary()).take(mine),
        "value": pa.array([values[row] for row in others], pa.binary()).take(mine),
        "reason": reasons.take(mine),
    }


def _kind(message: Message) -> str:
    record = message.record
    return type(record).__name__ if isinstance(record, Undecodable | Unknown) else title(record)


def _binary(column: pa.Array) -> Binary:
    validity, offsets, data = column.buffers()
    large = pa.types.is_large_binary(column.type)
    if len(column) == 0:
        return Binary.of([])
    if column.null_count == 0:
        validity = None
    return Binary.from_arrow(len(column), column.offset, validity, offsets, data, large=large)


def _mask(void: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return void if void.any() else None


def _time(timestamp_ms: NDArray[np.int64]) -> pa.Array:
    """Milliseconds as Spark has times; null where negative, and beyond what it can hold."""
    void = (timestamp_ms < 0) | (timestamp_ms > _LAST_MS)
    return pa.array(np.where(void, 0, timestamp_ms) * 1000, mask=_mask(void)).view(TIME)


_LAST_MS = 253_402_300_799_999  # the year 9999


def _text(text: Text, valid: NDArray[np.bool_]) -> pa.StringArray:
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    offsets = pa.py_buffer(text.offsets.astype(np.int32))
    return pa.StringArray.from_buffers(
        len(text), offsets, pa.py_buffer(np.ascontiguousarray(text.data)), bits, -1
    )


def _topic_ids(made: RecordColumns) -> pa.StringArray:
    if made.topic_id is None:
        return pa.nulls(len(made.ok), pa.string())
    data = pa.py_buffer(np.ascontiguousarray(made.topic_id))
    ids = pa.Array.from_buffers(pa.binary(16), len(made.ok), [None, data]).dictionary_encode()
    texts = [uuid_text(each) if any(each) else None for each in ids.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(ids.indices)
