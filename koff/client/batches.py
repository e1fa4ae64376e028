"""The committed records in the batches that a broker returns, as columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from koff.client.fetch_messages import AbortedTransaction
from koff.proto.buffers import Binary
from koff.proto.primitives import Malformed
from koff.proto.record_batch import find_batches, read_headers
from koff.proto.slices import PAD, Ints, Mask
from koff.records.segments import Chunk, read_batches


class RawRecord(NamedTuple):
    """A record of the log. `timestamp_ms` counts from the epoch; -1 if the record has no timestamp."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class RecordRun:
    """Records of one partition in log order, as columns. `leader_epoch` is that of the last batch."""

    partition: int
    keys: Binary
    values: Binary
    offsets: Sequence[int]
    timestamps_ms: Ints
    leader_epoch: int

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[RawRecord]:
        columns = self.offsets, self.timestamps_ms.tolist(), self.keys, self.values
        for offset, timestamp_ms, key, value in zip(*columns, strict=True):
            yield RawRecord(self.partition, offset, timestamp_ms, key, value)

    def before(self, offset: int) -> RecordRun:
        """The records before that offset, perhaps none."""
        count = bisect_left(self.offsets, offset)
        columns = self.keys[:count], self.values[:count], self.offsets[:count], self.timestamps_ms[:count]
        return RecordRun(self.partition, *columns, self.leader_epoch)


@dataclass(frozen=True, slots=True)
class Batches:
    """Whole record batches of a partition, and where they end."""

    partition: int
    data: bytes
    """With `PAD` zeros at the end."""
    begins: Ints
    position: int
    """The offset that was requested. It may lie within the first batch."""
    next_offset: int
    """The offset after the last batch."""
    leader_epoch: int
    aborted: Sequence[AbortedTransaction] = ()

    @classmethod
    def find(
        cls, partition: int, data: bytes, position: int, aborted: Sequence[AbortedTransaction] = ()
    ) -> Batches | None:
        """The batches that are whole; the last one in `data` may be cut off. None: there are none.

        Raises `Malformed` for bytes that are no batch, and batches that do not end after `position`.
        """
        begins, end, needed = find_batches(data)
        if needed <= len(data) - end:
            raise Malformed("there are bytes that are not a batch")
        if not begins:
            return None
        padded, positions = data[:end] + bytes(PAD), np.array(begins, np.int64)
        header = read_headers(np.frombuffer(padded, np.uint8), positions[-1:])[0]
        if header["magic"] != 2:
            raise Malformed(f"message format {header['magic']} is not supported")
        next_offset = int(header["base_offset"]) + int(header["last_offset_delta"]) + 1
        if not position < next_offset < 1 << 63:  # an int64
            raise Malformed("the batches end at an offset that cannot be")
        epoch = int(header["leader_epoch"])
        return cls(partition, padded, positions, position, next_offset, epoch, aborted)

    def decode(self) -> RecordRun | None:
        """The committed records from `position` on; None if there are none.

        Raises `Malformed` if a batch is damaged or the offsets do not increase, and `MissingLibrary` if a
        codec needs a library that is not installed.
        """
        chunk = read_batches(self.data, self.begins)
        if chunk.damage:
            raise Malformed(chunk.damage[0].reason)
        records = chunk.records
        if self.aborted:
            records = records.select_rows(~_find_aborted(chunk, self.aborted))
        if len(records) and records.offset[0] < self.position:  # the first batch begins before the position
            records = records.select_rows(records.offset >= self.position)
        if not len(records):
            return None
        first, last = int(records.offset[0]), int(records.offset[-1])
        if last >= self.next_offset or not (np.diff(records.offset) > 0).all():
            raise Malformed("the offsets of the records do not increase")
        has_no_gaps = last + 1 - first == len(records)
        offsets = range(first, last + 1) if has_no_gaps else records.offset.tolist()
        columns = records.keys, records.values, offsets, records.timestamp
        return RecordRun(self.partition, *columns, self.leader_epoch)


def _find_aborted(chunk: Chunk, aborted: Sequence[AbortedTransaction]) -> Mask:
    """Which records are of these transactions: those of the producer, from the first one to the marker."""
    records = chunk.records
    found: Mask = np.zeros(len(records), np.bool_)
    for transaction in aborted:
        ends = (
            marker.offset
            for marker in chunk.markers
            if marker.producer_id == transaction.producer_id
            if marker.kind == "abort" and marker.offset >= transaction.first_offset
        )
        end = min(ends, default=records.offset[-1] + 1 if len(records) else 0)
        own = records.transactional & (records.producer_id == transaction.producer_id)
        found |= own & (records.offset >= transaction.first_offset) & (records.offset < end)
    return found
