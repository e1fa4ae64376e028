"""The values of offset commits by the batch: bytes in, numpy columns out, no Python loop over the records.

Rows that are out of the ordinary are not `ok` and belong to the scalar decoder; one that is ok says
what the scalar decoder would say. `batches` does the same for keys and values together.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koff.proto.slices import PAD, Bytes, Ints, Mask, column, cut

BLOCK = 16384
"""Rows worked on at a time, so that what is computed on the way stays in the processor's cache."""

_NEWEST = 4
_METADATA_AT = (10, 10, 10, 14, 14)
"""By version: where the length of the metadata stands."""
_FIXED = (20, 28, 20, 24, 24)
"""By version: the bytes of a value without metadata and tags."""
_HEAD = 16
"""The bytes in front that always stand at the same place, up to a length of two bytes."""
_TAIL = 27
"""The bytes behind the metadata in v4: a timestamp, the count of tags, number and size of one, a uuid."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CommitColumns:
    """One row a value. Rows that are not `ok` hold no meaning."""

    offset: Ints
    leader_epoch: NDArray[np.int32]
    commit_timestamp: Ints
    """Milliseconds."""
    expire_timestamp: Ints
    """Milliseconds; -1 where the value has none."""
    topic_id: Bytes | None
    """(rows, 16); None when no row names a topic id other than zero."""
    ok: Mask


def commit_values(values: Sequence[bytes]) -> CommitColumns:
    """The values of offset commits, any mix of versions 0 to 4. None of them may be null."""
    draft = Draft(len(values))
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        lengths = np.fromiter(map(len, block), np.int64, len(block))
        data = np.frombuffer(b"".join(block) + bytes(PAD), np.uint8)
        draft.fill(start, data, np.cumsum(lengths) - lengths, lengths)
    return draft.columns()


class Draft:
    """Columns in the making, filled block by block."""

    def __init__(self, rows: int, *, metadata: bool = False) -> None:
        self.offset = np.zeros(rows, np.int64)
        self.leader_epoch = np.full(rows, -1, np.int32)
        self.commit_timestamp = np.zeros(rows, np.int64)
        self.expire_timestamp = np.full(rows, -1, np.int64)
        self.topic_id: NDArray[np.void] | None = None
        self.metadata = (np.zeros(rows, np.int64), np.zeros(rows, np.int64)) if metadata else None
        """Where the strings are in the data, and how long."""
        self.ok = np.zeros(rows, np.bool_)

    def columns(self) -> CommitColumns:
        topic_id = self.topic_id
        return CommitColumns(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            commit_timestamp=self.commit_timestamp,
            expire_timestamp=self.expire_timestamp,
            topic_id=None if topic_id is None else topic_id.view(np.uint8).reshape(-1, 16),
            ok=self.ok,
        )

    def fill(self, row: int, data: Bytes, starts: Ints, lengths: Ints) -> None:
        """Decodes the values at `starts` into the rows from `row` on. Behind them are `PAD` bytes more."""
        heads = cut(data, starts, _HEAD)
        versions = column(heads, 0, ">i2")
        first = int(versions[0])
        if 0 <= first <= _NEWEST and (versions == first).all() and lengths.min() >= _FIXED[first]:
            self._fill_version(slice(row, row + len(starts)), data, starts, lengths, heads, first)
            return
        for version in range(_NEWEST + 1):
            found = (versions == version) & (lengths >= _FIXED[version])
            if found.any():
                some = np.flatnonzero(found)
                self._fill_version(
                    row + some, data, starts[some], lengths[some], heads.take(some, axis=0), version
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
        begin, behind, ok = _metadata(heads, lengths, version)
        tails = cut(data, starts + behind, _TAIL)
        self.offset[rows] = column(heads, 2, ">i8")
        if version >= 3:
            self.leader_epoch[rows] = column(heads, 10, ">i4")
        self.commit_timestamp[rows] = column(tails, 0, ">i8")
        if version == 1:
            self.expire_timestamp[rows] = column(tails, 8, ">i8")
        if version == 4:
            tagged = _topic_tagged(tails) & (behind + _TAIL <= lengths)
            ok &= tagged | (tails[:, 8] == 0)
            self._fill_topic_ids(rows, column(tails, 11, "V16"), tagged & ok)
        self.ok[rows] = ok
        if self.metadata is not None:
            at, size = self.metadata
            at[rows], size[rows] = starts + begin, (behind - begin) * ok

    def _fill_topic_ids(self, rows: slice | NDArray[np.intp], ids: NDArray[np.void], named: Mask) -> None:
        if not named.all():
            rows = (np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)[named]
            ids = ids[named]
        ids = np.ascontiguousarray(ids)
        if not ids.view(np.int64).any():
            return
        if self.topic_id is None:
            self.topic_id = np.zeros(len(self.ok), "V16")
        self.topic_id[rows] = ids


def _metadata(heads: Bytes, lengths: Ints, version: int) -> tuple[Ints | int, Ints, Mask]:
    """Where in each value the metadata begins and ends, and whether all that must follow can.

    Where it cannot, it ends at 0.
    """
    at = _METADATA_AT[version]
    if version == 4:
        begin, behind = _compact_metadata(heads)
        ok = (behind > 0) & (behind + 9 <= lengths)
        return begin, behind * ok, ok
    size = column(heads, at, ">i2").astype(np.int64)
    ok = (size >= 0) & (size + _FIXED[version] <= lengths)
    return at + 2, (size + (at + 2)) * ok, ok


def _compact_metadata(heads: Bytes) -> tuple[Ints | int, Ints]:
    """Where it begins and ends in v4, if its length is a varint of one or two bytes; at 0 if not."""
    at = _METADATA_AT[4]
    first = heads[:, at].astype(np.int64)
    if (first == 1).all():
        return at + 1, first + at
    second = heads[:, at + 1].astype(np.int64)
    long = first >= 128
    length = np.where(long, (first & 127) | second << 7, first)
    begin: Ints = at + 1 + long
    behind: Ints = (begin + length - 1) * ((length > 0) & ~(long & (second >= 128)))
    return begin, behind


def _topic_tagged(tails: Bytes) -> Mask:
    """Whether the tag section begins like that of a topic id alone."""
    count, number, size = tails[:, 8], tails[:, 9], tails[:, 10]
    tagged: Mask = (count == 1) & (number == 0) & (size == 16)
    return tagged
