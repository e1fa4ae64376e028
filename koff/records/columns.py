"""Decodes batches of `__consumer_offsets` records: buffers of keys and values in, numpy columns out.

Offset commits in any mix of versions, and their tombstones, are decoded without a Python loop over the
records. Every other record is decoded by the scalar decoder, so no record is lost.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from koff.proto.buffers import Binary, Text
from koff.proto.primitives import ZERO_UUID, parse_uuid
from koff.proto.slices import Bytes, Ints, Mask, cut_rows, read_column
from koff.records.classic_records import OffsetCommit
from koff.records.commit_values import BLOCK_ROWS, CommitValues
from koff.records.decoded_message import DecodedMessage
from koff.records.decoder import decode
from koff.records.key_codes import PARTITION_SIZE, Codes, KeyCodes

_NUMBERS = ("offset", "leader_epoch", "commit_timestamp", "expire_timestamp")
"""The columns that are fields of `OffsetCommitValue` and of `CommitValues`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """One row for each record. If `ok` is false, the columns have only its type: see `others`."""

    ok: Mask
    """True for an offset commit, and for the tombstone of one."""
    type: NDArray[np.int16]
    """The record type; -1 if the key is null or too short to have one."""
    group: Codes
    """Indexes into `groups`; -1 if not ok."""
    topic: Codes
    """Indexes into `topics`; -1 if not ok."""
    partition: NDArray[np.int32]
    tombstone: Mask
    """True for a tombstone, which deletes the commit. Offset, leader epoch and timestamps are -1 then."""
    offset: Ints
    leader_epoch: NDArray[np.int32]
    metadata: Text
    commit_timestamp: Ints
    """Milliseconds."""
    expire_timestamp: Ints
    """Milliseconds; -1 if the value has none."""
    topic_id: Bytes | None
    """An array (rows, 16); None if no row has a topic id other than zero."""
    groups: list[str]
    topics: list[str]
    others: Mapping[int, DecodedMessage]
    """Every record that is not an offset commit, by row."""


def decode_columns(keys: Binary, values: Binary, *, names: KeyCodes | None = None) -> RecordColumns:
    """Decodes a batch of records. Raises ValueError if there are not as many keys as values.

    If the calls for several batches share `names`, a group or topic has the same code in all of them.
    """
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys but {len(values)} values")
    builder = _RecordColumnsBuilder(keys, values, names or KeyCodes())
    for start in range(0, len(keys), BLOCK_ROWS):
        builder.fill_rows(start, min(start + BLOCK_ROWS, len(keys)))
    return builder.build_columns()


class _RecordColumnsBuilder:
    """Builds `RecordColumns` in two steps: all rows by blocks, then each row that is not `ok`."""

    def __init__(self, keys: Binary, values: Binary, names: KeyCodes) -> None:
        rows = len(keys)
        self.keys, self.values, self.names = keys, values, names
        self.commits = CommitValues(rows, metadata=True)
        assert self.commits.metadata is not None
        self.metadata_at, self.metadata_size = self.commits.metadata
        self.type = np.full(rows, -1, np.int16)
        self.group = np.full(rows, -1, np.int32)
        self.topic = np.full(rows, -1, np.int32)
        self.partition = np.full(rows, -1, np.int32)
        self.tombstone = np.zeros(rows, np.bool_)

    def fill_rows(self, start: int, stop: int) -> None:
        """Decodes the usual rows of a block, all at once."""
        rows = slice(start, stop)
        # Keys: the bytes before the partition are looked up as a whole, the partition is the last four bytes.
        data, shift, at, lengths, has_key = self.keys.slice_block(start, stop)
        type_, self.group[rows], self.topic[rows] = self.names.look_up(data, at, lengths)
        partition_at = at + np.maximum(lengths - PARTITION_SIZE, 0)  # any four bytes if the key is too short
        self.partition[rows] = read_column(cut_rows(data, partition_at, 4), 0, ">i4")
        self.type[rows] = type_
        if type_.min() < 0:  # not an offset commit: read its type, if the key has one
            others = start + np.flatnonzero(has_key & (type_ < 0) & (lengths >= 2))
            self.type[others] = read_column(cut_rows(data, at[others - start], 2), 0, ">i2")
        # Values: a null value is a tombstone. `commits` decoded it as an empty row, so correct `ok`.
        data, shift, at, lengths, has_value = self.values.slice_block(start, stop)
        self.commits.fill_rows(start, data, at, lengths)
        self.metadata_at[rows] += shift  # from a position in the block to one in the whole buffer
        self.tombstone[rows] = ~has_value
        self.commits.ok[rows] |= ~has_value
        self.commits.ok[rows] &= has_key & (type_ >= 0)

    def build_columns(self) -> RecordColumns:
        """Decodes the rows that are not `ok` one by one, and returns the columns."""
        # A row that is not ok may still be a commit, in an unusual encoding: the scalar decoder decides.
        commits = self.commits
        metadata: dict[int, bytes] = {}
        others: dict[int, DecodedMessage] = {}
        for row in np.flatnonzero(~commits.ok).tolist():
            message = decode(self.keys[row], self.values[row])
            if isinstance(message.record, OffsetCommit):
                metadata[row] = self._fill_row(row, message.record)
            else:
                others[row] = message
        # The columns. Codes are indexes into the lists of names, which may be longer than this batch needs.
        self._clear_invalid_rows()
        topic_id = commits.topic_id
        return RecordColumns(
            ok=commits.ok,
            type=self.type,
            group=self.group,
            topic=self.topic,
            partition=self.partition,
            tombstone=self.tombstone,
            metadata=Text.from_slices(self.values.data, self.metadata_at, self.metadata_size, metadata),
            topic_id=topic_id if topic_id is not None and topic_id.any() else None,
            groups=self.names.groups.names,
            topics=self.names.topics.names,
            others=others,
            **{name: getattr(commits, name) for name in _NUMBERS},
        )

    def _fill_row(self, row: int, record: OffsetCommit) -> bytes:
        """Fills in a commit that only the scalar decoder could decode, and returns its metadata."""
        commits, value = self.commits, record.value
        commits.ok[row] = True
        # The metadata has no position in the values if invalid UTF-8 was replaced, so it is returned.
        self.metadata_size[row] = 0
        self.group[row] = self.names.groups.assign_code(record.group)
        self.topic[row] = self.names.topics.assign_code(record.topic)
        self.partition[row] = record.partition
        self.tombstone[row] = value is None
        if value is None:
            return b""
        for name in _NUMBERS:
            getattr(commits, name)[row] = getattr(value, name)
        if value.topic_id != ZERO_UUID or commits.topic_ids is not None:
            commits.make_topic_ids()[row] = np.void(parse_uuid(value.topic_id))
        return value.metadata.encode()

    def _clear_invalid_rows(self) -> None:
        """Overwrites what the columnar decoding left in rows that hold no commit."""
        commits = self.commits
        self.tombstone &= commits.ok
        empty = ~commits.ok | self.tombstone
        if empty.any():
            for name in _NUMBERS:
                getattr(commits, name)[empty] = -1
            self.metadata_size[empty] = 0
            if commits.topic_id is not None:
                commits.topic_id[empty] = 0
        for codes in (self.group, self.topic, self.partition):
            codes[~commits.ok] = -1
