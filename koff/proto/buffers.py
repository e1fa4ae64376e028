"""Columns of bytes and of strings, each in one buffer; made from Arrow's, and laid out for it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from koff.proto.primitives import JAVA_TEXT
from koff.proto.slices import Bytes, Ints, Mask


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """A column of bytes in one buffer. Row i is `lengths[i]` bytes from `starts[i]` on, or null."""

    data: Bytes
    starts: Ints
    lengths: Ints
    valid: Mask | None = None
    """Which rows are not null; None: all."""

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Self:
        """The column of those values."""
        present = [value or b"" for value in values]
        lengths = np.fromiter(map(len, present), np.int64, len(values))
        valid = None
        if None in values:
            valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return cls(np.frombuffer(b"".join(present), np.uint8), np.cumsum(lengths) - lengths, lengths, valid)

    @classmethod
    def from_offsets(
        cls, offsets: NDArray[np.signedinteger[Any]], data: Bytes, valid: Mask | None = None
    ) -> Self:
        """The column whose row i is `data[offsets[i]:offsets[i + 1]]`. There is one offset more than rows."""
        every = offsets.astype(np.int64, copy=False)
        return cls(data, every[:-1], np.diff(every), valid)

    @classmethod
    def from_arrow(
        cls, rows: int, start: int, validity: Any, offsets: Any, data: Any, *, large: bool = False
    ) -> Self:
        """The column in the buffers of an Arrow binary array, without a copy of the data.

        `start` is the array's offset, `validity` its bitmap or None; `large` says that offsets have 64 bits.
        """
        every: NDArray[np.signedinteger[Any]] = np.frombuffer(offsets, np.int64 if large else np.int32)
        valid = None
        if validity is not None:
            bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=start + rows)
            valid = bits[start:].astype(np.bool_)
        found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls.from_offsets(every[start : start + rows + 1], found, valid)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes | None:
        if self.valid is not None and not self.valid[row]:
            return None
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: Ints | Mask) -> Self:
        """Those rows, in the same buffer."""
        valid = None if self.valid is None else self.valid[rows]
        return type(self)(self.data, self.starts[rows], self.lengths[rows], valid)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A column of strings in UTF-8, as Arrow has it. Row i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    data: Bytes

    @classmethod
    def cut(cls, source: Bytes, at: Ints, sizes: Ints, other: Mapping[int, bytes] | None = None) -> Self:
        """The strings at those places, or `other` ones by row. What is no UTF-8 is replaced as by Java."""
        if other:
            source, at, sizes = _with_others(source, at, sizes, other)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if offsets[-1] == 0:
            return cls(offsets, np.zeros(0, np.uint8))
        data = source[np.repeat(at - offsets[:-1], sizes) + np.arange(offsets[-1])]
        made = cls(offsets, data)
        unsound = made._unsound()
        return cls.cut(data, offsets[:-1], sizes, unsound) if unsound else made

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self._raw(row).decode()

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def _raw(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def _unsound(self) -> dict[int, bytes]:
        """The rows that are not UTF-8, as they should be."""
        if self.data.max() < 0x80:
            return {}
        starts = self.offsets[:-1][np.diff(self.offsets) > 0]
        if not ((self.data[starts] & 0xC0) == 0x80).any():  # no row begins inside a character
            try:
                self.data.tobytes().decode()
            except UnicodeDecodeError:
                pass
            else:
                return {}
        suspect = np.unique(np.searchsorted(self.offsets, np.flatnonzero(self.data & 0x80), "right") - 1)
        fixed = (
            (row, self._raw(row), self._raw(row).decode("utf-8", JAVA_TEXT).encode())
            for row in suspect.tolist()
        )
        return {row: right for row, raw, right in fixed if raw != right}


def _with_others(
    source: Bytes, at: Ints, sizes: Ints, other: Mapping[int, bytes]
) -> tuple[Bytes, Ints, Ints]:
    """The same with other bytes in some rows: they are put behind the source."""
    rows = np.fromiter(other, np.int64, len(other))
    added = np.fromiter(map(len, other.values()), np.int64, len(other))
    at, sizes = at.copy(), sizes.copy()
    at[rows], sizes[rows] = len(source) + np.cumsum(added) - added, added
    return np.concatenate((source, np.frombuffer(b"".join(other.values()), np.uint8))), at, sizes
