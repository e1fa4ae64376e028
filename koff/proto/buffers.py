"""Columns of bytes and of strings, each in one buffer, in the memory layout of Arrow's arrays."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from koff.proto.primitives import JAVA_REPLACEMENT
from koff.proto.slices import PAD, Bytes, Ints, Mask, cut_rows


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """A column of bytes in one buffer. Row i is `lengths[i]` bytes of `data` from `starts[i]` on, or null."""

    data: Bytes
    starts: Ints
    lengths: Ints
    valid: Mask | None = None
    """True for the rows that are not null. None: no row is null."""

    @classmethod
    def from_values(cls, values: Sequence[bytes | None]) -> Self:
        """Returns the column that holds a copy of the values, one row for each value."""
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
        """Returns the column whose row i is `data[offsets[i]:offsets[i + 1]]`: one more offset than rows."""
        bounds = offsets.astype(np.int64, copy=False)
        return cls(data, bounds[:-1], np.diff(bounds), valid)

    @classmethod
    def from_arrow(
        cls, rows: int, start: int, validity: Any, offsets: Any, data: Any, *, large: bool = False
    ) -> Self:
        """Returns the column that the buffers of an Arrow binary array hold, without a copy of the data.

        `start` is the array's offset: the buffers' rows before it belong to other slices. `validity` is the
        validity bitmap, or None. `data` is None if Arrow left the buffer out. `large` means 64-bit offsets.
        """
        bounds: NDArray[np.signedinteger[Any]] = np.frombuffer(offsets, np.int64 if large else np.int32)
        valid = None
        if validity is not None:
            # Arrow's bitmaps begin with the lowest bit of a byte.
            bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=start + rows)
            valid = bits[start:].astype(np.bool_)
        data_bytes = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls.from_offsets(bounds[start : start + rows + 1], data_bytes, valid)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> bytes | Self | None:
        if isinstance(row, slice):
            valid = None if self.valid is None else self.valid[row]
            return type(self)(self.data, self.starts[row], self.lengths[row], valid)
        if self.valid is not None and not self.valid[row]:
            return None
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        return (self[row] for row in range(len(self)))

    def hash_rows(self) -> Ints:
        """Returns Python's hash of each row, as `hash(column[row])` does."""
        hashes = np.full(len(self), hash(None), np.int64)
        rows = np.arange(len(self)) if self.valid is None else np.flatnonzero(self.valid)
        if len(rows) == len(self) and len(self) and self.lengths.min() == self.lengths.max():
            return _hash_spans(self.data, self.starts, int(self.lengths[0]))
        # One call of numpy makes the bytes objects of all rows of one length: there are few lengths.
        lengths = self.lengths[rows]
        order = np.argsort(lengths, kind="stable")
        rows, lengths = rows[order], lengths[order]
        firsts = np.flatnonzero(np.diff(lengths, prepend=-1))
        for own in np.split(rows, firsts[1:]) if len(rows) else ():
            hashes[own] = _hash_spans(self.data, self.starts[own], int(self.lengths[own[0]]))
        return hashes

    def select_rows(self, rows: Ints | Mask) -> Self:
        """Returns the column of these rows (indexes or a mask), over the same `data`."""
        valid = None if self.valid is None else self.valid[rows]
        return type(self)(self.data, self.starts[rows], self.lengths[rows], valid)

    def slice_block(self, start: int, stop: int) -> tuple[Bytes, int, Ints, Ints, Mask]:
        """Returns the data of a block of rows, how many bytes were cut off its front, and the rows.

        The data has `PAD` bytes after the last row. A row is a start, a length, and whether it is not null.
        """
        at, lengths, data, shift = self.starts[start:stop], self.lengths[start:stop], self.data, 0
        end = int((at + lengths).max())
        if end + PAD > len(data):  # only a block at the end of the data needs a copy
            shift = int(at.min())
            data = np.concatenate((data[shift:end], np.zeros(PAD, np.uint8)))
            at = at - shift
        if self.valid is None:
            return data, shift, at, lengths, np.ones(len(at), np.bool_)
        valid = self.valid[start:stop]
        return data, shift, at, lengths * valid, valid


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A column of strings in UTF-8, laid out as in Arrow. Row i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    data: Bytes

    @classmethod
    def from_slices(
        cls, source: Bytes, at: Ints, sizes: Ints, replaced: Mapping[int, bytes] | None = None
    ) -> Self:
        """Returns the column whose row i is a copy of `source[at[i]:at[i] + sizes[i]]`.

        A row that is in `replaced` holds the bytes given there. Invalid UTF-8 becomes U+FFFD, exactly as
        Java's decoder does it.
        """
        if replaced:
            source, at, sizes = _replace_rows(source, at, sizes, replaced)
        # Gather all rows with one index array.
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if offsets[-1] == 0:
            return cls(offsets, np.zeros(0, np.uint8))
        data = source[np.repeat(at - offsets[:-1], sizes) + np.arange(offsets[-1])]
        texts = cls(offsets, data)
        # A corrected row has another length, so all rows must be gathered again. This recurses once at most.
        corrected = texts._correct_invalid_rows()
        return cls.from_slices(data, offsets[:-1], sizes, corrected) if corrected else texts

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self._row_bytes(row).decode()

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def _row_bytes(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def _correct_invalid_rows(self) -> dict[int, bytes]:
        """Returns the corrected bytes of each row that is not valid UTF-8, by row number."""
        if self.data.max() < 0x80:
            return {}
        # One decode of the whole buffer checks all rows, but only if no row begins inside a character:
        # two invalid rows could otherwise make up a valid character together.
        starts = self.offsets[:-1][np.diff(self.offsets) > 0]
        if not ((self.data[starts] & 0xC0) == 0x80).any():
            try:
                self.data.tobytes().decode()
            except UnicodeDecodeError:
                pass
            else:
                return {}
        # Some row is invalid: decode each row that is not ASCII.
        not_ascii = np.unique(np.searchsorted(self.offsets, np.flatnonzero(self.data & 0x80), "right") - 1)
        decoded = (
            (row, self._row_bytes(row), self._row_bytes(row).decode("utf-8", JAVA_REPLACEMENT).encode())
            for row in not_ascii.tolist()
        )
        return {row: corrected for row, raw, corrected in decoded if raw != corrected}


def _hash_spans(data: Bytes, starts: Ints, size: int) -> Ints:
    """Python's hash of `size` bytes from each position."""
    if size == 0:  # numpy has no rows without bytes
        return np.full(len(starts), hash(b""), np.int64)
    spans = cut_rows(data, starts, size)
    values = np.ascontiguousarray(spans).view(f"V{size}")[:, 0].tolist()
    return np.fromiter(map(hash, values), np.int64, len(values))


def _replace_rows(
    source: Bytes, at: Ints, sizes: Ints, replaced: Mapping[int, bytes]
) -> tuple[Bytes, Ints, Ints]:
    """Returns `source`, `at` and `sizes` with new bytes for some rows, which are appended to the source."""
    rows = np.fromiter(replaced, np.int64, len(replaced))
    new_sizes = np.fromiter(map(len, replaced.values()), np.int64, len(replaced))
    at, sizes = at.copy(), sizes.copy()
    at[rows], sizes[rows] = len(source) + np.cumsum(new_sizes) - new_sizes, new_sizes
    return np.concatenate((source, np.frombuffer(b"".join(replaced.values()), np.uint8))), at, sizes
