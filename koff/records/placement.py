"""Which partition has the records of a group (docs/records-format.md, sections 4.1 and 2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LONG = 256
"""Names of more characters are hashed one by one: a table of names is as wide as the longest of them."""
_FEW = 16
"""Up to this number of names, hashing them one by one is faster than with numpy."""


def group_partition(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that has all records of the group.

    `partitions` is the partition count of that topic.
    """
    return _hash(group) % partitions


def has_other_places(cluster_id: str) -> bool:
    """Whether the cluster finds the partition of a group by another hash, as Redpanda does."""
    return cluster_id.startswith("redpanda.")


def hash_groups(groups: Sequence[str]) -> NDArray[np.int64]:
    """The hashes of many names. The remainder by the partition count is the `group_partition`."""
    if len(groups) <= _FEW:
        return np.array([_hash(name) for name in groups], np.int64)
    hashes = np.zeros(len(groups), np.int64)
    is_plain = np.array([name.isascii() and len(name) <= _LONG for name in groups], np.bool_)
    for index in np.flatnonzero(~is_plain).tolist():
        hashes[index] = _hash(groups[index])
    plain = [groups[index] for index in np.flatnonzero(is_plain).tolist()]
    if plain:
        # A row for each name. numpy fills short rows with zeros, which `sizes` tells from zeros in a name.
        sizes = np.fromiter(map(len, plain), np.int64, len(plain))
        units = np.array(plain, np.str_).view(np.uint32).reshape(len(plain), -1)
        found = np.zeros(len(plain), np.uint32)  # wraps around as Java's int does
        for column in range(sizes.max()):
            found = np.where(column < sizes, 31 * found + units[:, column], found)
        signed = found.view(np.int32).astype(np.int64)
        hashes[is_plain] = np.where(signed == -(1 << 31), 0, np.abs(signed))
    return hashes


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to a signed 32-bit number."""
    hash_code = 0
    if text.isascii():  # takes a third of the time
        for unit in text.encode():
            hash_code = 31 * hash_code + unit & 0xFFFFFFFF
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass"))
        for low, high in zip(units[::2], units[1::2], strict=True):
            hash_code = (31 * hash_code + (high << 8 | low)) & 0xFFFFFFFF
    return hash_code - (1 << 32) if hash_code >> 31 else hash_code


def _hash(text: str) -> int:
    """The hash code without its sign."""
    hash_code = java_hash(text)
    # Java's int has no absolute value of -2**31. Kafka's Utils.abs returns 0 for it.
    return 0 if hash_code == -(1 << 31) else abs(hash_code)
