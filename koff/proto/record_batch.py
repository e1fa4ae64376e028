"""Record batches of format 2, as they lie in log segments and in fetch responses.

Where a batch begins follows from the one before it, and so for the records in one: these two walks are
Python loops, of as few steps as there are. All else is read from all batches, or all records, at once.
"""

import dataclasses
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.proto.buffers import Binary
from koff.proto.primitives import INT32_MAX
from koff.proto.slices import Bytes, Ints, Mask, cut

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
LOG_OVERHEAD = 12
"""The bytes that a batch's length does not count: its offset and the length."""
CRC_BEGIN = 21
"""Behind the checksum, which is over all that follows."""
SMALLEST_RECORD = 7
_FEW = 150
"""Batches, below which their records are better followed one by one."""
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
SMALLEST = LOG_OVERHEAD + 14
"""The bytes of a message of the formats before 2, without key and value."""
_LENGTH_AND_MAGIC = Struct(">iib").unpack_from


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """What records say, one row each. Those that are not `ok` do not hold together."""

    timestamp_delta: Ints
    offset_delta: Ints
    keys: Binary
    values: Binary
    ok: Mask


def walk(data: bytes) -> tuple[list[int], int, int]:
    """Where each whole batch begins, where the last of them ends, and how many bytes the next one would need.

    That next one is not whole; or `SMALLEST` is more than it says to need, and it is none.
    """
    begins: list[int] = []
    at, size = 0, len(data)
    while at + SMALLEST <= size:
        length, _, magic = _LENGTH_AND_MAGIC(data, at + 8)
        needed = LOG_OVERHEAD + length
        if at + needed > size or needed < (HEADER.itemsize if magic >= 2 else SMALLEST):
            return begins, at, needed
        begins.append(at)
        at += needed
    return begins, at, SMALLEST


def headers(data: Bytes, begins: Ints) -> NDArray[Any]:
    """The headers of the batches, as `HEADER` has them."""
    found: NDArray[Any] = cut(data, begins, HEADER.itemsize).view(HEADER)[:, 0]
    return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Where records begin, behind their length, and end; which batches are not filled by theirs exactly."""

    batch: Ints
    begin: Ints
    end: Ints
    bad: Mask
    """One row a batch. Bad ones have no records."""


def bounds(data: bytes, begins: Ints, ends: Ints, counts: Ints) -> Bounds:
    """The records of batches that have `counts` of them between those places, batch by batch.

    The k-th records of all batches are found at once, as long as many batches have one.
    """
    bad = (counts < 0) | (counts * SMALLEST_RECORD > ends - begins)
    counts = np.where(bad, 0, counts)
    first = np.cumsum(counts) - counts
    begin, end = np.zeros(int(counts.sum()), np.int64), np.zeros(int(counts.sum()), np.int64)
    at, step, active = begins.copy(), 0, np.flatnonzero(counts)
    source = np.frombuffer(data, np.uint8)
    while len(active) > _FEW:
        size, behind, ok = varints(source, at[active])
        ok &= (size >= 0) & (size <= ends[active] - behind)
        bad[active[~ok]] = True
        active, behind, size = active[ok], behind[ok], size[ok]
        at[active] = behind + size
        begin[first[active] + step], end[first[active] + step] = behind, at[active]
        step += 1
        active = active[counts[active] > step]
    for row in active.tolist():
        rows = slice(int(first[row]) + step, int(first[row] + counts[row]))
        found = np.array(_ends_of_one(data, int(at[row]), int(ends[row]), int(counts[row]) - step))
        size, behind, ok = varints(source, np.minimum(np.append(at[row], found[:-1]), ends[row]))
        begin[rows], end[rows] = behind, found
        at[row] = found[-1] if (ok & (size >= 0) & (behind + size == found)).all() else -1
    bad |= at != ends
    batch = np.repeat(np.arange(len(counts)), counts)
    good = ~bad[batch]
    return Bounds(batch[good], begin[good], end[good], bad)


def _ends_of_one(data: bytes, at: int, end: int, count: int) -> list[int]:
    """Where the records of one batch end if all is well; beyond `end` for those that do not fit."""
    ends = []
    for _ in range(count):
        if at >= end:
            break
        size = data[at]
        if size < 128:
            at += 1 + (size >> 1)  # zigzag, and not negative
        elif data[at + 1] < 128:
            at += 2 + ((size & 0x7F | data[at + 1] << 7) >> 1)
        else:
            size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[at : at + 5]))
            width = next((place for place in (3, 4) if data[at + place - 1] < 128), 5)
            at += width + ((size & ((1 << 7 * width) - 1)) >> 1)
        ends.append(at)
    return ends + [end + 1] * (count - len(ends))


def fields(data: Bytes, begins: Ints, ends: Ints) -> Fields:
    """What stands in the records between those places. `data` goes on for `cuts.PAD` bytes behind."""
    timestamp_delta, at, ok_time = varints(data, begins + 1)  # behind the attributes, of which there are none
    offset_delta, at, ok_offset = varints(data, np.minimum(at, ends))
    ok = ok_time & ok_offset & (ends > begins)
    keys, at, ok_key = _sized(data, np.minimum(at, ends), ends)
    values, at, ok_value = _sized(data, np.minimum(at, ends), ends)
    return Fields(timestamp_delta, offset_delta, keys, values, ok & ok_key & ok_value & (at < ends))


def _sized(data: Bytes, at: Ints, ends: Ints) -> tuple[Binary, Ints, Mask]:
    """Bytes with their length in front, -1 for null; what stands behind them, and whether they fit."""
    size, at, ok = varints(data, at)
    valid = size >= 0
    behind = at + np.clip(size, 0, INT32_MAX)
    ok &= (size >= -1) & (size <= INT32_MAX) & (behind <= ends)
    return Binary(data, at, np.where(ok & valid, size, 0), None if valid.all() else valid), behind, ok


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints, Mask]:
    """Zigzag varints at those places, what stands behind them, and which of them have at most eight bytes.

    That is 56 bits. Longer ones are read one by one.
    """
    words = cut(data, at, 8).view("<u8")[:, 0].astype(np.uint64)
    stops = ~words & _TOP_BITS
    ok = stops != 0
    last = stops & (~stops + _ONE)  # the lowest bit set: the top bit of the last byte
    size = (last | _TOP_BIT * ~ok).astype(np.float64).view(np.int64)
    size = ((size >> 52) - 1023 + 1) >> 3
    value = words & (last | (last - _ONE)) & ~_TOP_BITS
    for mask, high, shift in _SQUEEZES:
        value = (value & mask) | ((value & high) >> shift)
    found = (value >> _ONE).astype(np.int64) ^ -(value & _ONE).astype(np.int64)
    if not ok.all():
        _read_long(data, at, found, size, ok)
    return found, at + size, ok


_ONE = np.uint64(1)
_TOP_BIT = np.uint64(1 << 63)
_TOP_BITS = np.uint64(0x8080808080808080)
_SQUEEZES = tuple(
    (np.uint64(mask), np.uint64(mask << width), np.uint64(width // 8))
    for mask, width in ((0x007F007F007F007F, 8), (0x00003FFF00003FFF, 16), (0x0FFFFFFF, 32))
)
"""Groups of seven bits move together, by pairs, by fours, by eights."""


def _read_long(data: Bytes, at: Ints, found: Ints, size: Ints, ok: Mask) -> None:
    """Varints of nine and ten bytes, which only a timestamp far off can need."""
    for row in np.flatnonzero(~ok).tolist():
        start = int(at[row])
        raw = data[start : start + 10].tolist()
        length = next((place + 1 for place, byte in enumerate(raw) if byte < 128), 0)
        value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw[:length]))
        size[row] = length
        if length and value < 1 << 64:
            found[row], ok[row] = (value >> 1) ^ -(value & 1), True
