"""Record batches of format 2, as they are in log segments and in fetch responses.

The position of a batch follows from the size of the batch before it. So does the position of a record inside
a batch. Only these two walks are Python loops, with as few steps as possible. All other fields are
read with numpy, from all batches or all records at once.
"""

import dataclasses
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.proto.buffers import Binary
from koff.proto.primitives import INT32_MAX
from koff.proto.slices import Bytes, Ints, Mask, cut_rows

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""The header of a batch of format 2 (Kafka's `DefaultRecordBatch`)."""
LOG_OVERHEAD = 12
"""The bytes of a batch that its `length` does not count: the base offset and the length itself."""
CRC_BEGIN = 21
"""The position in a batch after the checksum, which covers everything from here to the end of the batch."""
SMALLEST_RECORD = 7
"""The least bytes of a record, its length included."""
_FEW_BATCHES = 150
"""Up to this number of batches, a Python loop over the records of each batch is faster than numpy."""
_STRETCH = 16
"""How many records of one length are looked for at first. Twice as many whenever all were found."""
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""The bits of a batch's attributes."""
SMALLEST_BATCH = LOG_OVERHEAD + 14
"""The least bytes of a batch of any format: a message of format 0 without key and value."""
_LENGTH_AND_MAGIC = Struct(">iib").unpack_from


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordFields:
    """The fields of records, one row for each record. Where `ok` is false the record is malformed."""

    timestamp_delta: Ints
    offset_delta: Ints
    keys: Binary
    values: Binary
    ok: Mask


def find_batches(data: bytes) -> tuple[list[int], int, int]:
    """Returns the positions of all whole batches, the end of the last, and the size of the next one.

    `data` begins with a batch. The size is the one that the header of the next, incomplete batch states, or
    `SMALLEST_BATCH` if too few bytes are left for any header. A size that is not greater than the number of
    bytes left is too small for a batch: the data is damaged there.
    """
    begins: list[int] = []
    at, size = 0, len(data)
    while at + SMALLEST_BATCH <= size:
        length, _, magic = _LENGTH_AND_MAGIC(data, at + 8)  # 8: after the base offset
        needed = LOG_OVERHEAD + length
        if at + needed > size or needed < (HEADER.itemsize if magic >= 2 else SMALLEST_BATCH):
            return begins, at, needed
        begins.append(at)
        at += needed
    return begins, at, SMALLEST_BATCH


def read_headers(data: Bytes, begins: Ints) -> NDArray[Any]:
    """Returns the headers of the batches at these positions, as an array of dtype `HEADER`."""
    headers: NDArray[Any] = cut_rows(data, begins, HEADER.itemsize).view(HEADER)[:, 0]
    return headers


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordBounds:
    """Where the records of batches begin (after their length) and end, and which batches are malformed."""

    batch: Ints
    """The index of each record's batch."""
    begin: Ints
    end: Ints
    bad: Mask
    """One row for each batch: true if its records do not fill it exactly. Then its records are left out."""


def find_records(data: bytes, begins: Ints, ends: Ints, counts: Ints) -> RecordBounds:
    """Finds the records of batches, in order. Batch i has `counts[i]` records from `begins[i]` to `ends[i]`.

    `data` must continue for `slices.PAD` bytes after the last batch.
    """
    # A count that cannot fit is refused before anything is allocated for it.
    bad = (counts < 0) | (counts * SMALLEST_RECORD > ends - begins)
    counts = np.where(bad, 0, counts)
    first = np.cumsum(counts) - counts
    begin, end = np.zeros(int(counts.sum()), np.int64), np.zeros(int(counts.sum()), np.int64)
    at, step, active = begins.copy(), 0, np.flatnonzero(counts)
    source = np.frombuffer(data, np.uint8)
    # Step k finds the k-th record of every batch that has one, as long as there are many such batches.
    while len(active) > _FEW_BATCHES:
        size, start, ok = read_varints(source, at[active])
        ok &= (size >= 0) & (size <= ends[active] - start)
        bad[active[~ok]] = True
        active, start, size = active[ok], start[ok], size[ok]
        at[active] = start + size
        begin[first[active] + step], end[first[active] + step] = start, at[active]
        step += 1
        active = active[counts[active] > step]
    # The rest, batch by batch: a quick loop guesses the ends, then numpy checks all lengths of the batch.
    for row in active.tolist():
        rows = slice(int(first[row]) + step, int(first[row] + counts[row]))
        guessed = _guess_record_ends(data, int(at[row]), int(ends[row]), int(counts[row]) - step)
        size, start, ok = read_varints(source, np.minimum(np.append(at[row], guessed[:-1]), ends[row]))
        begin[rows], end[rows] = start, guessed
        at[row] = guessed[-1] if (ok & (size >= 0) & (start + size == guessed)).all() else -1
    # A batch is good only if its last record ends where the batch ends.
    bad |= at != ends
    batch = np.repeat(np.arange(len(counts)), counts)
    good = ~bad[batch]
    return RecordBounds(batch[good], begin[good], end[good], bad)


def _guess_record_ends(data: bytes, at: int, end: int, count: int) -> Ints:
    """Returns where the records of one batch end if their lengths are sound; beyond `end` for the rest.

    Neighbours often have the same length: all records of such a stretch are found by a few calls.
    """
    start, left, before, looks = at, count, -1, _STRETCH
    # Each step is the size of a record with its length, and how many records of that size follow.
    steps, repeats = [], []
    while left and at < end:
        size = data[at]
        if size < 128:
            width = 1
            step = 1 + (size >> 1)  # the zigzag code of a number that is not negative is twice the number
        elif data[at + 1] < 128:
            width = 2
            step = 2 + ((size & 0x7F | data[at + 1] << 7) >> 1)
        else:
            size = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data[at : at + 5]))
            width = next((index for index in (3, 4) if data[at + index - 1] < 128), 5)
            step = width + ((size & ((1 << 7 * width) - 1)) >> 1)
        same = 1
        if step == before and width <= 2:
            # As many records of this size follow as there are equal bytes where their lengths would be.
            stop = min(at + step * min(looks, left), end)
            same = _count_equal(data[at:stop:step])
            if width == 2:
                same = min(same, _count_equal(data[at + 1 : stop + 1 : step]))
            looks = 2 * looks if same == looks else _STRETCH
        before = step
        steps.append(step)
        repeats.append(same)
        at += same * step
        left -= same
    ends = start + np.cumsum(np.repeat(np.array(steps, np.int64), repeats))
    return np.concatenate([ends, np.full(left, end + 1)])


def _count_equal(data: bytes) -> int:
    """How many bytes at the front are equal to the first."""
    return len(data) - len(data.lstrip(data[:1]))


def read_fields(data: Bytes, begins: Ints, ends: Ints) -> RecordFields:
    """Reads the records at these positions. `data` must continue for `slices.PAD` bytes after the last."""
    timestamp_delta, at, ok_time = read_varints(
        data, begins + 1
    )  # + 1: after the attributes, which are unused
    offset_delta, at, ok_offset = read_varints(data, np.minimum(at, ends))
    ok = ok_time & ok_offset & (ends > begins)
    keys, at, ok_key = _read_sized(data, np.minimum(at, ends), ends)
    values, at, ok_value = _read_sized(data, np.minimum(at, ends), ends)
    # at < ends: the count of the headers must follow.
    return RecordFields(timestamp_delta, offset_delta, keys, values, ok & ok_key & ok_value & (at < ends))


def _read_sized(data: Bytes, at: Ints, ends: Ints) -> tuple[Binary, Ints, Mask]:
    """Reads bytes after their length (-1: null). Returns them, the next positions, and which rows fit."""
    size, at, ok = read_varints(data, at)
    valid = size >= 0
    next_at = at + np.clip(size, 0, INT32_MAX)
    ok &= (size >= -1) & (size <= INT32_MAX) & (next_at <= ends)
    return Binary(data, at, np.where(ok & valid, size, 0), None if valid.all() else valid), next_at, ok


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints, Mask]:
    """Reads zigzag varints. Returns the numbers, the next positions, and which rows are valid.

    A valid varint has 64 bits at most. Varints of up to eight bytes (56 bits) are read in all rows at once,
    longer varints row by row.
    """
    words = cut_rows(data, at, 8).view("<u8")[:, 0].astype(np.uint64)
    # The last byte of a varint is the first one whose top bit is clear.
    stops = ~words & _TOP_BITS
    ok = stops != 0
    last = stops & (~stops + _ONE)  # the lowest bit set: the top bit of the last byte
    # `last` is a single bit, so its float64 is exact, and the exponent is the place of the bit.
    size = (last | _TOP_BIT * ~ok).astype(np.float64).view(np.int64)
    size = ((size >> 52) - 1023 + 1) >> 3
    # Keep the bits up to the last byte, and push the groups of seven together.
    value = words & (last | (last - _ONE)) & ~_TOP_BITS
    for mask, high, shift in _SQUEEZES:
        value = (value & mask) | ((value & high) >> shift)
    numbers = (value >> _ONE).astype(np.int64) ^ -(value & _ONE).astype(np.int64)  # zigzag
    if not ok.all():
        _read_long_varints(data, at, numbers, size, ok)
    return numbers, at + size, ok


_ONE = np.uint64(1)
_TOP_BIT = np.uint64(1 << 63)
_TOP_BITS = np.uint64(0x8080808080808080)
_SQUEEZES = tuple(
    (np.uint64(mask), np.uint64(mask << width), np.uint64(width // 8))
    for mask, width in ((0x007F007F007F007F, 8), (0x00003FFF00003FFF, 16), (0x0FFFFFFF, 32))
)
"""Mask, mask of the higher half, and shift: groups of seven bits move together by pairs, fours and eights."""


def _read_long_varints(data: Bytes, at: Ints, numbers: Ints, size: Ints, ok: Mask) -> None:
    """Reads the varints of nine and ten bytes, which only an extreme timestamp can need, into the arrays."""
    for row in np.flatnonzero(~ok).tolist():
        start = int(at[row])
        raw = data[start : start + 10].tolist()
        length = next((index + 1 for index, byte in enumerate(raw) if byte < 128), 0)
        value = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(raw[:length]))
        size[row] = length
        if length and value < 1 << 64:
            numbers[row], ok[row] = (value >> 1) ^ -(value & 1), True
