"""The keys of offset commits as numbers: a code for each group and each topic.

Keys repeat, since a group commits a topic's partitions again and again. So the bytes before the partition,
the prefix (type, group, topic), are looked up as a whole, all rows of a block at once, in a hash table that
is a numpy array. Only a prefix that is new is parsed, once.

A hash shows only where to look. Two prefixes are the same if their bytes are.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.proto.primitives import JAVA_REPLACEMENT
from koff.proto.slices import Bytes, Ints, cut_rows

Codes = NDArray[np.int32]
Words = NDArray[np.uint64]

PARTITION_SIZE = 4
"""The bytes of the partition, which follow the prefix."""
PREFIX_WIDTHS = (64, 128, 256, 640)
"""A prefix is padded to one of these sizes, none of which may exceed `slices.PAD`. Keys with longer prefixes
are left to the scalar decoder."""
_SHORTEST = 2 + 2 + 2
"""A type, and two empty strings with int16 lengths."""
_COMMIT_TYPES = (0, 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd multiplier (2**64 over the golden ratio) that spreads a hash over its upper bits."""
_FACTOR = np.uint64(0xD1342543DE82EF95)
"""An odd number. Its powers are the multipliers of the words of a prefix."""


class NameCodes:
    """Strings and their codes: 0, 1, 2... in the order of first use. Codes of forgotten names are reused."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """The name of each code; "" for a code that is free."""
        self._codes: dict[str, int] = {}
        self._free: list[int] = []

    @property
    def count(self) -> int:
        return len(self._codes)

    def assign_code(self, name: str) -> int:
        """Returns the code of the name. A new name gets a new code."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = self._add(name)
        return code

    def keep_only(self, codes: Iterable[int]) -> None:
        """Forgets the names of all other codes, which new names will get."""
        self._codes = {self.names[code]: code for code in codes}
        used = set(self._codes.values())
        self._free = [code for code in range(len(self.names)) if code not in used]
        for code in self._free:
            self.names[code] = ""

    def _add(self, name: str) -> int:
        if self._free:
            code = self._free.pop()
            self.names[code] = name
            return code
        self.names.append(name)
        return len(self.names) - 1


class KeyCodes:
    """The codes of the groups and topics in the keys looked up so far. A code is stable until `keep_only`."""

    def __init__(self) -> None:
        self.groups = NameCodes()
        self.topics = NameCodes()
        self._forget_prefixes()

    def keep_only(self, groups: Iterable[int], topics: Iterable[int]) -> None:
        """Forgets the groups and topics whose codes are not given. The given codes stay the same."""
        self.groups.keep_only(groups)
        self.topics.keep_only(topics)
        self._forget_prefixes()

    @property
    def prefix_count(self) -> int:
        """How many different prefixes of keys are in the tables."""
        return sum(table.count for table in self._tables)

    def _forget_prefixes(self) -> None:
        self._tables = [_PrefixTable(width, self.groups, self.topics) for width in PREFIX_WIDTHS]

    def look_up(self, data: Bytes, starts: Ints, lengths: Ints) -> tuple[Codes, Codes, Codes]:
        """Returns the type, and the codes of group and topic, of each key.

        The type is -1, and the codes mean nothing, if the key is not exactly that of an offset commit, or is
        too long. `data` must continue for `slices.PAD` bytes after the last key.
        """
        sizes = lengths - PARTITION_SIZE
        meanings = np.full((3, len(starts)), -1, np.int32)
        # A row belongs to the table of the least width that holds its prefix, usually the same for all rows.
        shorter = _SHORTEST - 1
        for table in self._tables:
            rows = np.flatnonzero((sizes > shorter) & (sizes <= table.width))
            shorter = table.width
            if len(rows) == len(starts):
                return table.look_up(data, starts, sizes)
            if len(rows):
                meanings[:, rows] = table.look_up(data, starts[rows], sizes[rows])
        return meanings[0], meanings[1], meanings[2]


class _PrefixTable:
    """A hash table of the prefixes of up to `width` bytes, with open addressing, a quarter full at most."""

    def __init__(self, width: int, groups: NameCodes, topics: NameCodes) -> None:
        self.width = width
        self._names = groups, topics
        words = width // 8
        # The hash is a sum of products with powers of an odd number. A collision only costs time.
        self._multipliers = np.cumprod(np.full(words + 1, _FACTOR))
        # By size of a prefix: which bits of each word belong to it.
        ends = np.clip(np.arange(width + 1)[:, None] - 8 * np.arange(words), 0, 8).astype(np.uint64)
        part = (np.uint64(1) << (8 * ends) % np.uint64(64)) - np.uint64(1)
        self._masks: Words = np.where(ends == 8, np.uint64(2**64 - 1), part)
        # The slots hold the number of a prefix, or -1. By that number: hash, bytes, and (type, group, topic).
        self._table = np.full(1 << 12, -1, np.int32)
        self.count = 0
        self._hashes = np.zeros(1 << 8, np.uint64)
        self._words = np.zeros((1 << 8, words), np.uint64)
        self._meaning = np.full((3, 1 << 8), -1, np.int32)

    def look_up(self, data: Bytes, starts: Ints, sizes: Ints) -> tuple[Codes, Codes, Codes]:
        """Returns what `KeyCodes.look_up` does. `sizes` are those of the prefixes. New prefixes are added."""
        # Set the bytes after each prefix to zero, then hash the words and the size.
        words = np.bitwise_and(
            cut_rows(data, starts, self.width).view("<u8"), self._masks.take(sizes, axis=0)
        )
        hashes = words @ self._multipliers[:-1] + sizes.view(np.uint64) * self._multipliers[-1]
        hashes = (hashes ^ (hashes >> np.uint64(32))) * _MIX
        numbers = self._find_prefixes(hashes)
        missing = np.flatnonzero(numbers < 0)
        if len(missing):
            self._add(hashes[missing], words[missing], sizes[missing])
            numbers[missing] = self._find_prefixes(hashes[missing])
        # Compare the bytes. Of several prefixes with the same hash, only the first has codes: the keys of the
        # others are left to the scalar decoder.
        type_, group, topic = self._meaning.take(numbers, axis=1)
        stored = self._words.take(numbers, axis=0)
        if not np.array_equal(stored, words):
            type_[(stored != words).any(axis=1)] = -1
        return type_, group, topic

    def _find_prefixes(self, hashes: Words) -> Codes:
        """Returns the number of the prefix with each hash; -1 if there is none."""
        mask = len(self._table) - 1
        slots = self._slots(hashes)
        numbers = self._table.take(slots)
        # Usually every first slot is right. A number of -1 reads the last hash here, which does no harm.
        if (self._hashes.take(numbers) == hashes).all() and (numbers >= 0).all():
            return numbers
        # Rows whose slot belongs to another hash try the next slot, until they find theirs or an empty one.
        unsettled = np.flatnonzero((numbers >= 0) & (self._hashes[numbers] != hashes))
        while len(unsettled):
            slots[unsettled] = (slots[unsettled] + 1) & mask
            numbers[unsettled] = self._table[slots[unsettled]]
            unsettled = unsettled[
                (numbers[unsettled] >= 0) & (self._hashes[numbers[unsettled]] != hashes[unsettled])
            ]
        return numbers

    def _slots(self, hashes: Words) -> Ints:
        """The first slot to try for each hash: its upper bits."""
        bits = np.uint64(64 - (len(self._table).bit_length() - 1))
        return (hashes >> bits).astype(np.int64)

    def _add(self, hashes: Words, words: Words, sizes: Ints) -> None:
        """Adds prefixes, one for each distinct hash, in the order of the rows."""
        first = np.sort(np.unique(hashes, return_index=True)[1])
        hashes = hashes[first]
        old, self.count = self.count, self.count + len(hashes)
        self._hashes = _grow(self._hashes, self.count, axis=0)
        self._words = _grow(self._words, self.count, axis=0)
        self._meaning = _grow(self._meaning, self.count, axis=1)
        self._hashes[old : self.count] = hashes
        self._words[old : self.count] = words[first]
        self._meaning[:, old : self.count] = self._parse_prefixes(words[first], sizes[first])
        # A table that is more than a quarter full is made larger, and all prefixes are inserted again.
        new = np.arange(old, self.count, dtype=np.int32)
        if 4 * self.count > len(self._table):
            self._table = np.full(1 << (8 * self.count).bit_length(), -1, np.int32)
            new = np.arange(self.count, dtype=np.int32)
        self._insert(new)

    def _insert(self, numbers: Codes) -> None:
        """Puts the numbers of prefixes into free slots of the table."""
        mask = len(self._table) - 1
        slots = self._slots(self._hashes[numbers])
        while len(numbers):
            free = self._table[slots] < 0
            # If several numbers have the same slot, numpy keeps the last. The others try the next slot.
            self._table[slots[free]] = numbers[free]
            waiting = self._table[slots] != numbers
            numbers, slots = numbers[waiting], (slots[waiting] + 1) & mask

    def _parse_prefixes(self, words: Words, sizes: Ints) -> Codes:
        """Returns type, group and topic of prefixes, as three rows; -1 for a prefix that no commit has."""
        # All rows at once: leave out prefixes of other types, and prefixes whose lengths do not fit.
        raw = words.view(np.uint8).astype(np.int64)
        meaning = np.full((3, len(words)), -1, np.int32)
        group_size = raw[:, 2] << 8 | raw[:, 3]
        fits = np.isin(raw[:, 0] << 8 | raw[:, 1], _COMMIT_TYPES) & (group_size <= sizes - _SHORTEST)
        rows = np.flatnonzero(fits)
        at = 4 + group_size[rows]
        topic_size = raw[rows, at] << 8 | raw[rows, at + 1]
        rows = rows[at + 2 + topic_size == sizes[rows]]
        # One by one: decode the names of the rows that are left.
        groups, topics = self._names
        for row in rows.tolist():
            prefix, group_end = words[row].tobytes(), 4 + int(group_size[row])
            meaning[0, row] = prefix[1]
            meaning[1, row] = groups.assign_code(prefix[4:group_end].decode("utf-8", JAVA_REPLACEMENT))
            meaning[2, row] = topics.assign_code(
                prefix[group_end + 2 : sizes[row]].decode("utf-8", JAVA_REPLACEMENT)
            )
        return meaning


def _grow(array: NDArray[Any], size: int, axis: int) -> NDArray[Any]:
    """Returns the array with room for `size` along the axis, at least doubled if it must grow."""
    room = array.shape[axis]
    if size <= room:
        return array
    more = list(array.shape)
    more[axis] = max(size - room, room)
    return np.concatenate((array, np.zeros(more, array.dtype)), axis)
