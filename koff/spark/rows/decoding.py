"""Decodes Arrow batches of raw records of the log into Arrow batches of decoded rows. Imports no Spark."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.errors import KoffError
from koff.proto.buffers import Binary, Text
from koff.proto.primitives import format_uuid
from koff.records import (
    DecodedMessage,
    KeyCodes,
    RecordColumns,
    Undecodable,
    Unknown,
    decode_columns,
    type_name,
)
from koff.records.record_types import record_type_name

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
"""The columns that `decode_batch` takes: a row is a record as the log has it."""
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
"""The columns that `decode_batch` returns. A field is null if the record does not have it.

`key` and `value` are set for every record except offset commits."""
COMMITS = ("OffsetCommit", "LegacyOffsetCommit")
"""The values of `kind` that are offset commits."""

_KINDS = [*(type_name(number) for number in range(32)), "Undecodable", "Unknown"]


class DataLost(KoffError):
    """Records that have yet to be read are no longer in the log."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which decoded rows to keep; a row must satisfy every condition that is not None.

    `group`, `topic` and `commits_to` are regular expressions that may match anywhere in the name. `topic`
    keeps only commits to matching topics. `commits_to` keeps the same commits, and every record that is not
    a commit. `since_ms` (inclusive) and `until_ms` (exclusive) bound the record's own timestamp.
    """

    group: str | None = None
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    commits_to: str | None = None

    def filter_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a decoded batch that satisfy the filter."""
        if self == _KEEP_ALL:
            return rows
        kept = np.ones(len(rows), np.bool_)
        for name in ("group", "topic"):
            pattern = getattr(self, name)
            if pattern is not None:
                kept &= _match_names(rows.column(name), re.compile(pattern))
        if self.commits_to is not None:
            topics = rows.column("topic")
            is_no_commit = topics.is_null().to_numpy(zero_copy_only=False)
            kept &= _match_names(topics, re.compile(self.commits_to)) | is_no_commit
        if self.since_ms is not None or self.until_ms is not None:
            # With nulls this becomes a float array with NaN, and no comparison with NaN is true: rows without
            # a timestamp are left out.
            time_us = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
            kept &= time_us >= self.since_ms * 1000 if self.since_ms is not None else True
            kept &= time_us < self.until_ms * 1000 if self.until_ms is not None else True
        return rows if kept.all() else rows.filter(pa.array(kept))


_KEEP_ALL = RecordFilter()


def _match_names(names: pa.StringArray, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Whether the pattern matches each name; false where the name is null."""
    # Python's regular expressions and not Arrow's, which have another syntax; once for each distinct name.
    encoded = names.dictionary_encode()
    matches = [name is not None and bool(pattern.search(name)) for name in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(matches)).to_numpy(zero_copy_only=False)
    matched: NDArray[np.bool_] = np.array([*matches, False], np.bool_)[codes]
    return matched


def decode_batch(batch: pa.RecordBatch, cluster: str, names: KeyCodes | None = None) -> pa.RecordBatch:
    """Decodes a batch with the columns `RAW` into one with the columns `SCHEMA`, in the same order of rows.

    To decode many batches of a cluster, keep one `Decoder` instead.
    """
    return Decoder(cluster, names)(batch)


class Decoder:
    """Decodes batches of one cluster, and keeps the names of groups and topics for the next batch."""

    def __init__(self, cluster: str, names: KeyCodes | None = None) -> None:
        self._cluster = cluster
        self._keys = names or KeyCodes()
        self._names: dict[str, pa.StringArray] = {}
        self._kinds = pa.array(_KINDS)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decodes a batch with the columns `RAW` into one with the columns `SCHEMA`."""
        partition, offset, timestamp, key, value = (batch.column(name) for name in RAW.names)
        times = timestamp.fill_null(-1).to_numpy(zero_copy_only=False)
        return self.decode_buffers(
            partition.cast(pa.int32()), offset, times, _to_binary(key), _to_binary(value)
        )

    def decode_buffers(
        self,
        partition: pa.Int32Array,
        offset: pa.Int64Array,
        timestamp_ms: NDArray[np.int64],
        keys: Binary,
        values: Binary,
    ) -> pa.RecordBatch:
        """Decodes records whose keys and values are in buffers: item i of each argument is of record i."""
        decoded = decode_columns(keys, values, names=self._keys)
        has_value = decoded.ok & ~decoded.tombstone

        # Columns of offset commits. In the rows of other records they have placeholders until `_fill_others`.
        columns = {
            # The same name in every row: much cheaper to make from a dictionary than from a list.
            "cluster": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(len(keys), np.int8)), pa.array([self._cluster])
            ).dictionary_decode(),
            "offsets_partition": partition,
            "log_offset": offset,
            "timestamp": _to_timestamps(timestamp_ms),
            "kind": self._kinds.take(pa.array(np.where(decoded.ok, decoded.type, 0))),
            "tombstone": pa.array(decoded.tombstone),
            "group": self._take_names("group", decoded.groups, decoded.group, decoded.ok),
            "topic": self._take_names("topic", decoded.topics, decoded.topic, decoded.ok),
            "partition": pa.array(decoded.partition, mask=_null_mask(~decoded.ok)),
            "committed": pa.array(decoded.offset, mask=_null_mask(~has_value)),
            "leader_epoch": pa.array(decoded.leader_epoch, mask=_null_mask(decoded.leader_epoch < 0)),
            "metadata": _to_strings(decoded.metadata, has_value),
            "commit_timestamp": _to_timestamps(decoded.commit_timestamp),
            "topic_id": _format_topic_ids(decoded),
        }

        # Columns of all other records.
        if decoded.others:
            columns |= _fill_others(decoded.others, columns, keys, values)
        else:
            columns |= {name: pa.nulls(len(keys), SCHEMA.field(name).type) for name in _NOT_OF_COMMITS}
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _take_names(
        self, column: str, names: list[str], codes: NDArray[np.int32], ok: NDArray[np.bool_]
    ) -> pa.StringArray:
        """The names for an array of codes; null where not ok."""
        # Names are only ever added (`KeyCodes`), so an Arrow array of the same length is still complete.
        cached = self._names.get(column)
        if cached is None or len(cached) != len(names):
            cached = self._names[column] = pa.array(names, pa.string())
        return cached.take(pa.array(codes, mask=_null_mask(~ok)))


_NOT_OF_COMMITS = ("key", "value", "reason")


def _fill_others(
    others: Mapping[int, DecodedMessage], columns: Mapping[str, pa.Array], keys: Binary, values: Binary
) -> dict[str, pa.Array]:
    """The columns that records other than commits set. `others` maps a row to its record."""
    # `position` is the row's index among the other records, -1 for commits.
    rows = np.fromiter(others, np.int64, len(others))
    position = np.full(len(keys), -1, np.int64)
    position[rows] = np.arange(len(rows))
    messages = others.values()
    null_for_commits = pa.array(np.maximum(position, 0), mask=_null_mask(position < 0))

    def fill_column(column: str, field: Callable[[DecodedMessage], Any]) -> pa.Array:
        """The column with the field of the other records in their rows."""
        # Arrow arrays are immutable: append the new values, and take each row from where its value is.
        both = pa.concat_arrays(
            [columns[column], pa.array([field(message) for message in messages], columns[column].type)]
        )
        return both.take(pa.array(np.where(position >= 0, len(keys) + position, np.arange(len(keys)))))

    reasons = pa.array([getattr(message.record, "reason", None) for message in messages], pa.string())
    return {
        "kind": fill_column("kind", _kind),
        "group": fill_column("group", lambda message: message.consumer or None),
        "tombstone": fill_column("tombstone", lambda message: message.tombstone),
        "key": pa.array([keys[row] for row in others], pa.binary()).take(null_for_commits),
        "value": pa.array([values[row] for row in others], pa.binary()).take(null_for_commits),
        "reason": reasons.take(null_for_commits),
    }


def _kind(message: DecodedMessage) -> str:
    """Kafka's name of the record type, or `Undecodable` or `Unknown`."""
    record = message.record
    return type(record).__name__ if isinstance(record, Undecodable | Unknown) else record_type_name(record)


def _to_binary(column: pa.Array) -> Binary:
    """The buffers of an Arrow binary column, without a copy."""
    validity, offsets, data = column.buffers()
    large = pa.types.is_large_binary(column.type)
    if len(column) == 0:
        return Binary.from_values([])  # Arrow may leave out the buffers of an empty column
    if column.null_count == 0:
        validity = None  # a slice without nulls may still have its parent's bitmap
    return Binary.from_arrow(len(column), column.offset, validity, offsets, data, large=large)


def to_arrow(column: Binary) -> pa.BinaryArray:
    """A copy of the column. Its rows must be in the order in which they are in `data`."""
    valid = np.ones(len(column), np.bool_) if column.valid is None else column.valid
    # Row 2i is a row of the column, row 2i + 1 what lies behind it: Arrow takes every other one.
    bounds = np.zeros((len(column), 2), np.int64)
    bounds[valid, 0], bounds[valid, 1] = column.starts[valid], (column.starts + column.lengths)[valid]
    bounds = np.maximum.accumulate(bounds.ravel())  # nulls have no place
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), max(len(bounds) - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(column.data)]
    )
    rows = pa.array(np.arange(0, len(bounds), 2), mask=_null_mask(~valid))
    return whole.take(rows).cast(pa.binary())


def _null_mask(is_null: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """The mask for `pa.array`; None if nothing is null, so that Arrow makes no bitmap."""
    return is_null if is_null.any() else None


def _to_timestamps(timestamp_ms: NDArray[np.int64]) -> pa.Array:
    """Milliseconds as Spark's timestamps (microseconds); null if negative, or after the year 9999."""
    # The bound is checked before the product, which would overflow for a corrupt time.
    is_null = (timestamp_ms < 0) | (timestamp_ms > LAST_MS)
    return pa.array(np.where(is_null, 0, timestamp_ms) * 1000, mask=_null_mask(is_null)).view(TIME)


LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last time that Spark and Python can hold."""


def _to_strings(text: Text, valid: NDArray[np.bool_]) -> pa.StringArray:
    """The buffers of a text column as an Arrow column; null where not valid."""
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    offsets = pa.py_buffer(text.offsets.astype(np.int32))
    return pa.StringArray.from_buffers(
        len(text),
        offsets,
        pa.py_buffer(np.ascontiguousarray(text.data)),
        bits,
        -1,  # -1: Arrow counts nulls
    )


def _format_topic_ids(decoded: RecordColumns) -> pa.StringArray:
    """Topic ids as Kafka writes them; null for the zero id, which stands for no id."""
    if decoded.topic_id is None:
        return pa.nulls(len(decoded.ok), pa.string())
    # A batch has few distinct ids: only these are formatted.
    data = pa.py_buffer(np.ascontiguousarray(decoded.topic_id))
    ids = pa.Array.from_buffers(pa.binary(16), len(decoded.ok), [None, data]).dictionary_encode()
    texts = [format_uuid(topic_id) if any(topic_id) else None for topic_id in ids.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(ids.indices)
