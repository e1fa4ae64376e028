"""The keys of offset commits as brokers write them, and their hashes, which differ in each process."""

from collections.abc import Sequence
from operator import add

import numpy as np
from numpy.typing import NDArray

from koff.tracker.row_index import Ints

_TYPE = b"\0\1"  # OffsetCommit
_OF_SHARE_STATE = np.int64(0x5DEECE66D1CE4E5B)
"""Makes another hash of that of a commit's key."""


def commit_key(group: str, topic: str, partition: int) -> bytes:
    """The bytes of the OffsetCommit key (type 1) of a group, topic and partition."""
    return _TYPE + _encode_text(group) + _encode_text(topic) + _encode_partition(partition)


def key_hashes(
    groups: Sequence[str],
    topics: Sequence[str],
    group: NDArray[np.int32],
    topic: NDArray[np.int32],
    partition: NDArray[np.int32],
) -> Ints:
    """`hash(commit_key(...))` of each row; `group` and `topic` (N,) are indexes into the names."""
    # Each distinct part is encoded once; the parts are joined and hashed by C code, without a Python loop.
    numbers, number = np.unique(partition, return_inverse=True)
    heads = [_TYPE + _encode_text(name) for name in groups]
    middles = [_encode_text(name) for name in topics]
    tails = [_encode_partition(value) for value in numbers.tolist()]
    fronts = map(add, map(heads.__getitem__, group.tolist()), map(middles.__getitem__, topic.tolist()))
    keys = map(add, fronts, map(tails.__getitem__, number.tolist()))
    return np.fromiter(map(hash, keys), np.int64, len(partition))


def convert_to_share_keys(hashes: Ints) -> Ints:
    """The hashes under which rows from share state are found, from those of the same keys of commits.

    So a group that has taken the name of a share group, or has given its name to one, has rows of its own.
    """
    return hashes ^ _OF_SHARE_STATE


def _encode_text(name: str) -> bytes:
    data = name.encode(errors="replace")  # a lone surrogate has no UTF-8 form
    return len(data).to_bytes(2, "big") + data


def _encode_partition(partition: int) -> bytes:
    return partition.to_bytes(4, "big", signed=True)
