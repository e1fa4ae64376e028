"""The keys of commits as brokers write them, and what Python hashes them to: anew in each process."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np
from numpy.typing import NDArray

from koff.tracker.row_index import Ints

_TYPE = b"\0\1"


def commit_key(group: str, topic: str, partition: int) -> bytes:
    """The bytes of an OffsetCommit key (type 1)."""
    return _TYPE + _text(group) + _text(topic) + _number(partition)


def key_hashes(
    groups: Sequence[str],
    topics: Sequence[str],
    group: NDArray[np.int32],
    topic: NDArray[np.int32],
    partition: NDArray[np.int32],
) -> Ints:
    """`hash(commit_key(...))` of each row; `group` and `topic` are indexes into the names."""
    numbers, number = np.unique(partition, return_inverse=True)
    heads = [_TYPE + _text(name) for name in groups]
    middles = [_text(name) for name in topics]
    tails = [_number(each) for each in numbers.tolist()]
    fronts = map(add, map(heads.__getitem__, group.tolist()), map(middles.__getitem__, topic.tolist()))
    keys = map(add, fronts, map(tails.__getitem__, number.tolist()))
    return np.fromiter(map(hash, keys), np.int64, len(partition))


def _text(name: str) -> bytes:
    data = name.encode(errors="replace")
    return len(data).to_bytes(2, "big") + data


def _number(partition: int) -> bytes:
    return partition.to_bytes(4, "big", signed=True)
