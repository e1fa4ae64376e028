"""Decodes the values of offset commits in batches into numpy columns, without a Python loop over the records.

A row that is `ok` is equal to the result of the scalar decoder. A row that is not `ok` is unusual (not
necessarily malformed), and the caller should give it to the scalar decoder. `columns` decodes keys and
values together.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koff.proto.buffers import Binary
from koff.proto.slices import PAD, Bytes, Ints, Mask, cut_rows, read_column

BLOCK_ROWS = 16384
"""Rows decoded at a time: so few that the temporary arrays stay in the processor's cache."""

_NEWEST = 4
_METADATA_AT = (10, 10, 10, 14, 14)
"""By version: the position of the metadata's length in the value."""
_FIXED = (20, 28, 20, 24, 24)
"""By version: the least size of a value, that is without metadata and tags."""
_HEAD = 16
"""The bytes before the metadata, all at fixed positions: at most 14, and a metadata length of two bytes."""
_TAIL = 27
"""The bytes after the metadata in v4: a timestamp, the count of tags, one tag's number and size, a uuid."""


def decode_commit_values(values: Sequence[bytes] | Binary) -> "CommitValues":
    """Decodes the values of offset commits, in any mix of versions 0 to 4.

    None of them may be null; in a `Binary`, a row that is null is not ok.
    """
    columns = CommitValues(len(values))
    for start in range(0, len(values), BLOCK_ROWS):
        if isinstance(values, Binary):
            data, _, at, lengths, _ = values.slice_block(start, start + BLOCK_ROWS)
            columns.fill_rows(start, data, at, lengths)
            continue
        block = values[start : start + BLOCK_ROWS]
        lengths = np.fromiter(map(len, block), np.int64, len(block))
        data = np.frombuffer(b"".join(block) + bytes(PAD), np.uint8)
        columns.fill_rows(start, data, np.cumsum(lengths) - lengths, lengths)
    return columns


class CommitValues:
    """Columns with one row for each value, filled block by block.

    The other columns mean nothing where `ok` is false. Timestamps are in milliseconds; -1 in
    `expire_timestamp` if the value has none. With `metadata`, there is also the position and the size of each
    row's metadata in the data of `fill_rows`.
    """

    def __init__(self, rows: int, *, metadata: bool = False) -> None:
        self.offset = np.zeros(rows, np.int64)
        self.leader_epoch = np.full(rows, -1, np.int32)
        self.commit_timestamp = np.zeros(rows, np.int64)
        self.expire_timestamp = np.full(rows, -1, np.int64)
        self.topic_ids: NDArray[np.void] | None = None
        self.metadata = (np.zeros(rows, np.int64), np.zeros(rows, np.int64)) if metadata else None
        self.ok = np.zeros(rows, np.bool_)

    @property
    def topic_id(self) -> Bytes | None:
        """An array (rows, 16), without a copy; None if no row has a topic id other than zero."""
        return None if self.topic_ids is None else self.topic_ids.view(np.uint8).reshape(-1, 16)

    def make_topic_ids(self) -> NDArray[np.void]:
        """The topic ids, to be filled. They are made at the first topic id: many logs have none."""
        if self.topic_ids is None:
            self.topic_ids = np.zeros(len(self.ok), "V16")
        return self.topic_ids

    def fill_rows(self, row: int, data: Bytes, starts: Ints, lengths: Ints) -> None:
        """Decodes the values at `starts` into the rows from `row` on.

        `data` must continue for `PAD` bytes after the last value.
        """
        heads = cut_rows(data, starts, _HEAD)
        versions = read_column(heads, 0, ">i2")
        # Usually a whole block has the same version: then no row is copied.
        first = int(versions[0])
        if 0 <= first <= _NEWEST and (versions == first).all() and lengths.min() >= _FIXED[first]:
            self._fill_version(slice(row, row + len(starts)), data, starts, lengths, heads, first)
            return
        # A mix: the rows of one version at a time. Other versions and too short values stay not ok.
        for version in range(_NEWEST + 1):
            matches = (versions == version) & (lengths >= _FIXED[version])
            if matches.any():
                rows = np.flatnonzero(matches)
                self._fill_version(
                    row + rows, data, starts[rows], lengths[rows], heads.take(rows, axis=0), version
                )

    def _fill_version(
        self,
        rows: slice | NDArray[np.intp],
        data: Bytes,
        starts: Ints,
        lengths: Ints,
        heads: Bytes,
        version: int,
    ) -> None:
        """Decodes values that all have the same version, and at least its `_FIXED` size."""
        # Only the metadata has a varying size: all fields are at fixed positions before or after it.
        begin, end, ok = _find_metadata(heads, lengths, version)
        tails = cut_rows(data, starts + end, _TAIL)
        self.offset[rows] = read_column(heads, 2, ">i8")
        if version >= 3:
            self.leader_epoch[rows] = read_column(heads, 10, ">i4")
        self.commit_timestamp[rows] = read_column(tails, 0, ">i8")
        if version == 1:
            self.expire_timestamp[rows] = read_column(tails, 8, ">i8")
        if version == 4:
            # Tags are none, or the topic id alone. Anything else is left to the scalar decoder.
            # Bytes after the value belong to the next value, so the length is compared too.
            tagged = _has_only_topic_id(tails) & (end + _TAIL <= lengths)
            ok &= tagged | (tails[:, 8] == 0)
            self._fill_topic_ids(rows, read_column(tails, 11, "V16"), tagged & ok)
        self.ok[rows] = ok
        if self.metadata is not None:
            position, size = self.metadata
            position[rows], size[rows] = starts + begin, (end - begin) * ok

    def _fill_topic_ids(self, rows: slice | NDArray[np.intp], ids: NDArray[np.void], present: Mask) -> None:
        if not present.all():
            rows = (np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)[present]
            ids = ids[present]
        ids = np.ascontiguousarray(ids)  # a view of the tails cannot be viewed as int64
        if not ids.view(np.int64).any():
            return
        self.make_topic_ids()[rows] = ids


def _find_metadata(heads: Bytes, lengths: Ints, version: int) -> tuple[Ints | int, Ints, Mask]:
    """Returns where the metadata begins and ends in each value, and whether the rest fits after it.

    If the rest does not fit, the end is 0, so that no later read goes beyond the buffer.
    """
    at = _METADATA_AT[version]
    if version == 4:
        begin, end = _find_compact_metadata(heads)
        # After the metadata are a timestamp and the count of tags.
        ok = (end > 0) & (end + 9 <= lengths)
        return begin, end * ok, ok
    size = read_column(heads, at, ">i2").astype(np.int64)
    ok = (size >= 0) & (size + _FIXED[version] <= lengths)
    return at + 2, (size + (at + 2)) * ok, ok


def _find_compact_metadata(heads: Bytes) -> tuple[Ints | int, Ints]:
    """Returns where the metadata of v4 begins and ends. The end is 0 if the length is unusual.

    A usual length is not null, and a varint of one or two bytes: metadata of less than 16 KiB.
    """
    at = _METADATA_AT[4]
    first = heads[:, at].astype(np.int64)
    if (first == 1).all():  # the usual case: no metadata at all
        return at + 1, first + at
    second = heads[:, at + 1].astype(np.int64)
    long = first >= 128
    length = np.where(long, (first & 127) | second << 7, first)
    begin: Ints = at + 1 + long
    end: Ints = (begin + length - 1) * ((length > 0) & ~(long & (second >= 128)))
    return begin, end


def _has_only_topic_id(tails: Bytes) -> Mask:
    """Whether the tag section begins like that of a topic id alone: one tag, number 0, of 16 bytes."""
    count, number, size = tails[:, 8], tails[:, 9], tails[:, 10]
    has_topic_id: Mask = (count == 1) & (number == 0) & (size == 16)
    return has_topic_id
