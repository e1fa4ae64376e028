"""Offset commits by the batch: bytes in, numpy columns out, and no Python loop over the records.

Rows that are out of the ordinary are not `ok` and belong to the scalar decoder; one that is ok says
what the scalar decoder would say.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_PAD = bytes(64)
"""Behind the data, so that a row's first fields can be looked at before it is known to have them."""
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
    rows = len(values)
    lengths = np.fromiter(map(len, values), np.int64, rows)
    data = np.frombuffer(b"".join(values) + _PAD, np.uint8)
    return commit_columns(data, np.cumsum(lengths) - lengths, lengths)


def commit_columns(data: Bytes, starts: Ints, lengths: Ints) -> CommitColumns:
    """The same of values that lie in one buffer, which must go on for 64 bytes behind the last of them."""
    rows = len(starts)
    made = CommitColumns(
        offset=np.zeros(rows, np.int64),
        leader_epoch=np.full(rows, -1, np.int32),
        commit_timestamp=np.zeros(rows, np.int64),
        expire_timestamp=np.full(rows, -1, np.int64),
        topic_id=None,
        ok=np.zeros(rows, np.bool_),
    )
    if rows == 0:
        return made
    heads = _cut(data, starts, _HEAD)
    versions = _column(heads, 0, ">i2")
    for version in range(_NEWEST + 1):
        found = (versions == version) & (lengths >= _FIXED[version])
        if found.all():
            return _fill(made, data, starts, lengths, heads, version, slice(None))
        if found.any():
            some: Ints = np.flatnonzero(found).astype(np.int64, copy=False)
            made = _fill(made, data, starts[some], lengths[some], heads[some], version, some)
    return made


def _cut(data: Bytes, at: Ints, width: int) -> Bytes:
    """(rows, width): the bytes that stand at those places; a view where those are evenly spaced."""
    step = int(at[1] - at[0]) if len(at) > 1 else width
    if step > 0 and (np.diff(at) == step).all():
        return as_strided(data[at[0] :], (len(at), width), (step, 1))
    everywhere: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return everywhere[at].view(np.uint8).reshape(-1, width)


def _column(rows: Bytes, at: int, dtype: str) -> NDArray[Any]:
    """The numbers at a place in every row."""
    column: NDArray[Any] = rows[:, at : at + np.dtype(dtype).itemsize].view(dtype)[:, 0]
    return column


def _fill(
    made: CommitColumns,
    data: Bytes,
    starts: Ints,
    lengths: Ints,
    heads: Bytes,
    version: int,
    rows: Ints | slice,
) -> CommitColumns:
    """`made` with the rows of one version filled in; starts, lengths and heads are of those rows."""
    if version < 4:
        size = _column(heads, _METADATA_AT[version], ">i2").astype(np.int64)
        behind = size + (_METADATA_AT[version] + 2)
        ok = (size >= 0) & (size + _FIXED[version] <= lengths)
    else:
        behind = _behind_compact(heads)
        ok = (behind > 0) & (behind + 9 <= lengths)
    behind *= ok
    tails = _cut(data, starts + behind, _TAIL)
    made.offset[rows] = _column(heads, 2, ">i8")
    if version >= 3:
        made.leader_epoch[rows] = _column(heads, 10, ">i4")
    made.commit_timestamp[rows] = _column(tails, 0, ">i8")
    if version == 1:
        made.expire_timestamp[rows] = _column(tails, 8, ">i8")
    if version == 4:
        tagged = _topic_tagged(tails) & (behind + _TAIL <= lengths)
        ok &= tagged | (tails[:, 8] == 0)
        made = _with_topic_ids(made, _column(tails, 11, "V16"), tagged & ok, rows)
    made.ok[rows] = ok
    return made


def _behind_compact(heads: Bytes) -> Ints:
    """Where the metadata ends if its length is a varint of one or two bytes; 0 for null and for any other."""
    first = heads[:, 14].astype(np.int64)
    if (first == 1).all():
        return np.full(len(heads), 15, np.int64)
    second = heads[:, 15].astype(np.int64)
    length = np.where(first < 128, first, (first & 127) | second << 7)
    fits = (length > 0) & ((first < 128) | (second < 128))
    return (14 + length + (first >= 128)) * fits + 0


def _topic_tagged(tails: Bytes) -> Mask:
    """Whether the tag section begins like that of a topic id alone."""
    count, number, size = tails[:, 8], tails[:, 9], tails[:, 10]
    tagged: Mask = (count == 1) & (number == 0) & (size == 16)
    return tagged


def _with_topic_ids(made: CommitColumns, ids: NDArray[Any], named: Mask, rows: Ints | slice) -> CommitColumns:
    """`made` with the ids of those of its `rows` that name one."""
    topic_id = np.zeros(len(made.ok), "V16")
    if named.all():
        topic_id[rows] = ids
    else:
        topic_id[np.arange(len(made.ok))[rows][named]] = ids[named]
    if not topic_id.view(np.int64).any():
        return made
    return dataclasses.replace(made, topic_id=topic_id.view(np.uint8).reshape(-1, 16))
