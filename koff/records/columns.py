"""Whole batches of `__consumer_offsets`: buffers of keys and values in, numpy columns out.

Offset commits of any mix of versions, and their tombstones, come out as columns without a Python loop
over the records. Every other row goes through the scalar decoder, and none is lost.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from koff.proto.buffers import Binary, Text
from koff.proto.primitives import ZERO_UUID, uuid_bytes
from koff.proto.slices import PAD, Bytes, Ints, Mask, column, cut
from koff.records.commit_records import OffsetCommit, OffsetCommitValue
from koff.records.commit_values import BLOCK, Draft
from koff.records.decoder import decode
from koff.records.key_codes import PARTITION, Codes, Keys
from koff.records.message import Message


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """One row a record. Where `ok` is false the record is in `others`, and here only its type."""

    ok: Mask
    """Whether the record is an offset commit, or the tombstone of one."""
    type: NDArray[np.int16]
    """-1 where the key is too short to have one."""
    group: Codes
    """Indexes into `groups`; -1 where not ok."""
    topic: Codes
    """Indexes into `topics`; -1 where not ok."""
    partition: NDArray[np.int32]
    tombstone: Mask
    """Whether the commit is deleted: offset, leader epoch, timestamps are -1 then."""
    offset: Ints
    leader_epoch: NDArray[np.int32]
    metadata: Text
    commit_timestamp: Ints
    """Milliseconds."""
    expire_timestamp: Ints
    """Milliseconds; -1 where the value has none."""
    topic_id: Bytes | None
    """(rows, 16); None when no row names a topic id other than zero."""
    groups: list[str]
    topics: list[str]
    others: Mapping[int, Message]
    """By row: every record that is no offset commit."""


def decode_columns(keys: Binary, values: Binary, *, names: Keys | None = None) -> RecordColumns:
    """The columns of a batch. With the same `names`, codes of groups and topics stay the same over calls."""
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys but {len(values)} values")
    batch = _Batch(keys, values, names or Keys())
    for start in range(0, len(keys), BLOCK):
        batch.fill(start, min(start + BLOCK, len(keys)))
    return batch.columns()


class _Batch:
    def __init__(self, keys: Binary, values: Binary, names: Keys) -> None:
        rows = len(keys)
        self.keys, self.values, self.names = keys, values, names
        self.draft = Draft(rows, metadata=True)
        assert self.draft.metadata is not None
        self.metadata_at, self.metadata_size = self.draft.metadata
        self.type = np.full(rows, -1, np.int16)
        self.group = np.full(rows, -1, np.int32)
        self.topic = np.full(rows, -1, np.int32)
        self.partition = np.full(rows, -1, np.int32)
        self.tombstone = np.zeros(rows, np.bool_)

    def fill(self, start: int, stop: int) -> None:
        rows = slice(start, stop)
        data, shift, at, lengths, keyed = _block(self.keys, start, stop)
        type_, self.group[rows], self.topic[rows] = self.names.look_up(data, at, lengths)
        behind = at + np.maximum(lengths - PARTITION, 0)
        self.partition[rows] = column(cut(data, behind, 4), 0, ">i4")
        self.type[rows] = type_
        if type_.min() < 0:
            named = start + np.flatnonzero(keyed & (type_ < 0) & (lengths >= 2))
            self.type[named] = column(cut(data, at[named - start], 2), 0, ">i2")
        data, shift, at, lengths, valued = _block(self.values, start, stop)
        self.draft.fill(start, data, at, lengths)
        self.metadata_at[rows] += shift
        self.tombstone[rows] = ~valued
        self.draft.ok[rows] |= ~valued
        self.draft.ok[rows] &= keyed & (type_ >= 0)

    def columns(self) -> RecordColumns:
        draft = self.draft
        patched: dict[int, bytes] = {}
        others: dict[int, Message] = {}
        for row in np.flatnonzero(~draft.ok).tolist():
            message = decode(self.keys[row], self.values[row])
            if isinstance(message.record, OffsetCommit):
                patched[row] = self._patch(row, message.record)
            else:
                others[row] = message
        self._clear()
        made = draft.columns()
        return RecordColumns(
            ok=draft.ok,
            type=self.type,
            group=self.group,
            topic=self.topic,
            partition=self.partition,
            tombstone=self.tombstone,
            offset=made.offset,
            leader_epoch=made.leader_epoch,
            metadata=Text.cut(self.values.data, self.metadata_at, self.metadata_size, patched),
            commit_timestamp=made.commit_timestamp,
            expire_timestamp=made.expire_timestamp,
            topic_id=made.topic_id if made.topic_id is not None and made.topic_id.any() else None,
            groups=self.names.groups.names,
            topics=self.names.topics.names,
            others=others,
        )

    def _patch(self, row: int, record: OffsetCommit) -> bytes:
        """Fills in a row that only the scalar decoder could read; gives its metadata."""
        draft, value = self.draft, record.value
        draft.ok[row] = True
        self.metadata_size[row] = 0
        self.group[row] = self.names.groups.code(record.group)
        self.topic[row] = self.names.topics.code(record.topic)
        self.partition[row] = record.partition
        self.tombstone[row] = value is None
        if value is None:
            return b""
        draft.offset[row] = value.offset
        draft.leader_epoch[row] = value.leader_epoch
        draft.commit_timestamp[row] = value.commit_timestamp
        draft.expire_timestamp[row] = value.expire_timestamp
        self._patch_topic_id(row, value)
        return value.metadata.encode()

    def _patch_topic_id(self, row: int, value: OffsetCommitValue) -> None:
        draft = self.draft
        if value.topic_id == ZERO_UUID and draft.topic_id is None:
            return
        if draft.topic_id is None:
            draft.topic_id = np.zeros(len(draft.ok), "V16")
        draft.topic_id.view(np.uint8).reshape(-1, 16)[row] = np.frombuffer(
            uuid_bytes(value.topic_id), np.uint8
        )

    def _clear(self) -> None:
        """Rows without a commit hold -1, whatever was read in them on the way."""
        draft = self.draft
        self.tombstone &= draft.ok
        void = ~draft.ok | self.tombstone
        if void.any():
            for each in (draft.offset, draft.leader_epoch, draft.commit_timestamp, draft.expire_timestamp):
                each[void] = -1
            self.metadata_size[void] = 0
            if draft.topic_id is not None:
                draft.topic_id.view(np.uint8).reshape(-1, 16)[void] = 0
        for codes in (self.group, self.topic, self.partition):
            codes[~draft.ok] = -1


def _block(binary: Binary, start: int, stop: int) -> tuple[Bytes, int, Ints, Ints, Mask]:
    """Data that goes on for `PAD` bytes behind the rows, and how much of the front it lacks.

    And of the rows: where they start in it, how long they are, which are not null.
    """
    at, lengths, data, shift = binary.starts[start:stop], binary.lengths[start:stop], binary.data, 0
    end = int((at + lengths).max())
    if end + PAD > len(data):
        shift = int(at.min())
        data = np.concatenate((data[shift:end], np.zeros(PAD, np.uint8)))
        at = at - shift
    if binary.valid is None:
        return data, shift, at, lengths, np.ones(stop - start, np.bool_)
    valid = binary.valid[start:stop]
    return data, shift, at, lengths * valid, valid
