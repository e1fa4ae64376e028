"""The committed records in the batches that a broker returns, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from koff.proto.buffers import Binary
from koff.proto.primitives import Malformed
from koff.proto.record_batch import find_batches, read_headers
from koff.proto.slices import PAD, Ints
from koff.records.segments import read_batches


@dataclass(frozen=True, slots=True, eq=False)
class RecordRun:
    """Records of one partition in log order, as columns. `leader_epoch` is that of the last batch."""

    partition: int
    keys: Binary
    values: Binary
    offsets: Sequence[int]
    leader_epoch: int


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

    @classmethod
    def find(cls, partition: int, data: bytes, position: int) -> Batches | None:
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
        return cls(partition, padded, positions, position, next_offset, int(header["leader_epoch"]))

    def decode(self) -> RecordRun | None:
        """The records from `position` on; None if there are none. No batch may be of an aborted transaction.

        Raises `Malformed` if a batch is damaged or the offsets do not increase, and `MissingLibrary` if a
        codec needs a library that is not installed.
        """
        chunk = read_batches(self.data, self.begins)
        if chunk.damage:
            raise Malformed(chunk.damage[0].reason)
        records = chunk.records
        if len(records) and records.offset[0] < self.position:  # the first batch begins before the position
            records = records.select_rows(records.offset >= self.position)
        if not len(records):
            return None
        first, last = int(records.offset[0]), int(records.offset[-1])
        if last >= self.next_offset or not (np.diff(records.offset) > 0).all():
            raise Malformed("the offsets of the records do not increase")
        has_no_gaps = last + 1 - first == len(records)
        offsets = range(first, last + 1) if has_no_gaps else records.offset.tolist()
        return RecordRun(self.partition, records.keys, records.values, offsets, self.leader_epoch)
