"""Offset commits by the batch: bytes in, numpy columns out, and no Python loop over the records.

Rows that are out of the ordinary are not `ok` and belong to the scalar decoder; one that is ok says
what the scalar decoder would say.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
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
_TOPIC_TAG = 18
"""The bytes of the one known tag: its number, its size, a uuid."""


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
    data = np.frombuffer(b"".join((*values, _PAD)), np.uint8)
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
    versions = _numbers(data, ">i2", starts)
    for version in range(_NEWEST + 1):
        found = np.flatnonzero((versions == version) & (lengths >= _FIXED[version]))
        if len(found):
            made = _fill(made, data, starts[found], lengths[found], version, found)
    return made


def _numbers(data: Bytes, dtype: str, at: Ints) -> NDArray[Any]:
    """The numbers that stand at those places, which need not be aligned."""
    size = np.dtype(dtype).itemsize
    everywhere: NDArray[Any] = np.ndarray((len(data) - size + 1,), dtype, data, strides=(1,))
    return everywhere[at]


def _fill(
    made: CommitColumns, data: Bytes, starts: Ints, lengths: Ints, version: int, rows: Ints
) -> CommitColumns:
    """`made` with the rows of one version filled in."""
    metadata = starts + _METADATA_AT[version]
    if version < 4:
        size = _numbers(data, ">i2", metadata).astype(np.int64)
        behind = metadata + 2 + size
        ok = (size >= 0) & (_FIXED[version] + size <= lengths)
    else:
        size, behind = _compact_length(data, metadata)
        ok = (size >= 0) & (behind + 9 <= starts + lengths)
    behind[~ok] = 0
    made.offset[rows] = _numbers(data, ">i8", starts + 2)
    if version >= 3:
        made.leader_epoch[rows] = _numbers(data, ">i4", starts + 10)
    made.commit_timestamp[rows] = _numbers(data, ">i8", behind)
    if version == 1:
        made.expire_timestamp[rows] = _numbers(data, ">i8", behind + 8)
    if version == 4:
        tagged, tags_ok = _tags(data, behind + 8, starts + lengths)
        ok &= tags_ok
        made = _with_topic_ids(made, data, behind[tagged & ok] + 11, rows[tagged & ok])
    made.ok[rows] = ok
    return made


def _compact_length(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Lengths written as varints of one or two bytes, and what stands behind the text; -1 for any other."""
    first, second = data[at].astype(np.int64), data[at + 1].astype(np.int64)
    short = first < 128
    size = np.where(short, first, (first & 127) | second << 7) - 1
    size[~short & (second >= 128)] = -1
    return size, at + 2 - short + size


def _tags(data: Bytes, at: Ints, ends: Ints) -> tuple[Mask, Mask]:
    """Whether a topic id is there, and whether the section holds just that or nothing."""
    at = np.minimum(at, len(data) - _TOPIC_TAG - 1)
    count = data[at]
    tagged = (count == 1) & (data[at + 1] == 0) & (data[at + 2] == 16) & (at + 1 + _TOPIC_TAG <= ends)
    return tagged, tagged | (count == 0)


def _with_topic_ids(made: CommitColumns, data: Bytes, at: Ints, rows: Ints) -> CommitColumns:
    ids = _numbers(data, "V16", at).view(np.uint8).reshape(-1, 16)
    if not ids.any():
        return made
    topic_id = np.zeros((len(made.ok), 16), np.uint8)
    topic_id[rows] = ids
    return dataclasses.replace(made, topic_id=topic_id)
