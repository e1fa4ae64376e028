"""The state of one partition of `__consumer_offsets`: its groups, and a row for each of their commits.

A group lives in one partition, so rebuilding a partition is replacing its `Shard`. Rows are numpy columns;
a commit is found by its key's bytes, so that a batch is applied without a step per record in Python.
Offsets are kept apart from groups: only its own tombstone removes one (RECORDS.md 4.3).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import cast

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.records import GroupMetadata, Message, OffsetCommit, Undecodable, Unknown, decode, record_name
from koff.records.columns import commit_values
from koff.tracker.groups import GROUP_RECORDS, ConsumerState, Group, classic
from koff.tracker.partitions import PartitionTable
from koff.tracker.snapshot import ShardSnapshot

NO_ROW = -1
_COMMIT = "OffsetCommit"


class Shard:
    """Takes batches of records of one partition in log order; see the module's text."""

    def __init__(self, partitions: PartitionTable) -> None:
        self._partitions = partitions
        self._rows: dict[bytes | None, int] = {}
        self._keys: list[bytes | None] = []
        self._free: list[int] = []
        self._committed = np.full(16, UNKNOWN, np.int64)
        self._committed_at = np.full(16, UNKNOWN, np.int64)
        self._partition = np.zeros(16, np.int32)
        self._group = np.zeros(16, np.int32)
        self._live = np.zeros(16, np.bool_)
        self._names: list[str | None] = []
        self._indexes: dict[str, int] = {}
        self._free_names: list[int] = []
        self._row_count: list[int] = []
        self._metadata: dict[str, Group | ConsumerState] = {}
        self._layout: object | None = None

    def apply(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], seen: Counter[str]) -> None:
        """Applies records in log order, and counts them into `seen` by record name."""
        find: Callable[[bytes | None, int], int] = self._rows.get
        rows = np.fromiter(map(find, keys, repeat(NO_ROW)), np.int64, len(keys))
        for i in np.flatnonzero(rows == NO_ROW).tolist():
            rows[i] = self._first_sight(keys[i], values[i], seen)
        at = np.flatnonzero(rows >= 0)
        if not at.size:
            return
        if at.size != rows.size:
            rows, places = rows[at], at.tolist()
            keys, values = [keys[i] for i in places], [values[i] for i in places]
        self._commit(rows, keys, values, seen)

    def snapshot(self) -> ShardSnapshot:
        """A copy that later batches leave alone. `layout` is the same object while rows and names are."""
        if self._layout is None:
            self._layout = object()
        live = np.flatnonzero(self._live)
        return ShardSnapshot(
            layout=self._layout,
            groups=[None if name is None else self._view(name) for name in self._names],
            group=self._group[live],
            partition=self._partition[live],
            committed=self._committed[live],
            committed_at=self._committed_at[live],
        )

    def _commit(
        self,
        rows: NDArray[np.int64],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        seen: Counter[str],
    ) -> None:
        """Sets the rows to what the values say; the last of a row wins, as numpy assigns in order."""
        live = np.ones(len(rows), np.bool_)
        if None in values:
            live[:] = [value is not None for value in values]
            values = [value or b"" for value in values]
        decoded = commit_values(cast(Sequence[bytes], values))
        committed, committed_at = decoded.offset, decoded.commit_timestamp
        committed[~live] = UNKNOWN
        bad = np.flatnonzero(~decoded.ok & live)
        if bad.size:
            good = np.ones(len(rows), np.bool_)
            for i in bad.tolist():
                record = decode(keys[i], values[i]).record
                if isinstance(record, OffsetCommit) and record.value is not None:
                    committed[i], committed_at[i] = record.value.offset, record.value.commit_timestamp
                else:
                    good[i] = False
                    seen[type(record).__name__] += 1
            rows, live, committed, committed_at = rows[good], live[good], committed[good], committed_at[good]
        seen[_COMMIT] += len(rows)
        self._committed[rows] = committed
        self._committed_at[rows] = committed_at
        was_live = self._live[rows].all()
        self._live[rows] = live
        if not was_live:
            self._layout = None
        if not live.all():
            self._release(rows[~live])

    def _first_sight(self, key: bytes | None, value: bytes | None, seen: Counter[str]) -> int:
        """The row of a commit whose key is not in the index as it stands; else applies the record itself."""
        if (row := self._rows.get(key, NO_ROW)) != NO_ROW:  # it came up earlier in this batch
            return row
        message = decode(key, value)
        record = message.record
        if isinstance(record, OffsetCommit):
            return self._row(record, value, seen)
        if isinstance(record, Unknown):
            seen["Unknown"] += 1
        elif isinstance(record, Undecodable):
            seen["Undecodable"] += 1
        else:
            seen[record_name(record.type)] += 1
            self._describe(message)
        return NO_ROW

    def _row(self, record: OffsetCommit, value: bytes | None, seen: Counter[str]) -> int:
        """The row of this group, topic and partition, however its key is spelt (type 0, trailing bytes)."""
        key = _key(record.group, record.topic, record.partition)
        row = self._rows.get(key, NO_ROW)
        if row == NO_ROW and value is None:
            seen[_COMMIT] += 1
        if row != NO_ROW or value is None:
            return row
        group = self._index(record.group)
        row = self._free.pop() if self._free else len(self._keys)
        if row == len(self._keys):
            self._keys.append(None)
            self._grow()
        self._rows[key], self._keys[row] = row, key
        self._group[row] = group
        self._row_count[group] += 1
        self._partition[row] = self._partitions.id(record.topic, record.partition)
        self._layout = None
        return row

    def _release(self, rows: NDArray[np.int64]) -> None:
        """Frees those of the rows that ended up deleted."""
        for row in np.unique(rows[~self._live[rows]]).tolist():
            key = self._keys[row]
            if key is None:
                continue
            del self._rows[key]
            self._keys[row] = None
            self._free.append(row)
            self._row_count[self._group[row]] -= 1
            self._drop_name(self._names[self._group[row]])
        self._layout = None

    def _describe(self, message: Message) -> None:
        """Applies a record about a group (not one of its offsets)."""
        record, name = message.record, message.consumer
        if isinstance(record, GroupMetadata):
            if record.value is None:
                if not isinstance(self._metadata.get(name), ConsumerState):
                    self._forget(name)
            else:
                self._index(name)
                self._metadata[name] = classic(message)
        elif isinstance(record, GROUP_RECORDS):
            self._describe_consumer(name, message)

    def _describe_consumer(self, name: str, message: Message) -> None:
        state = self._metadata.get(name)
        if message.tombstone and (not isinstance(state, ConsumerState) or message.record.type == 3):
            if isinstance(state, ConsumerState):
                self._forget(name)
            return
        if not isinstance(state, ConsumerState):
            self._index(name)
            state = self._metadata[name] = ConsumerState()
        state.apply(message.record)

    def _forget(self, name: str) -> None:
        self._metadata.pop(name, None)
        self._drop_name(name)

    def _index(self, name: str) -> int:
        """The group's number in this shard; a new one if it has none."""
        index = self._indexes.get(name)
        if index is None:
            if self._free_names:
                index = self._free_names.pop()
                self._names[index] = name
            else:
                index = len(self._names)
                self._names.append(name)
                self._row_count.append(0)
            self._indexes[name] = index
            self._layout = None
        return index

    def _drop_name(self, name: str | None) -> None:
        """Lets the group go when nothing is left of it: no offsets, no metadata."""
        if name is None or name not in self._indexes or name in self._metadata:
            return
        if self._row_count[self._indexes[name]] == 0:
            index = self._indexes.pop(name)
            self._names[index] = None
            self._free_names.append(index)
            self._layout = None

    def _view(self, name: str) -> Group:
        state = self._metadata.get(name)
        if isinstance(state, ConsumerState):
            return state.view(name)
        return Group(name) if state is None else state

    def _grow(self) -> None:
        more = len(self._keys) - len(self._committed)
        if more <= 0:
            return
        size = len(self._committed)
        self._committed = np.concatenate([self._committed, np.full(size, UNKNOWN, np.int64)])
        self._committed_at = np.concatenate([self._committed_at, np.full(size, UNKNOWN, np.int64)])
        self._partition = np.concatenate([self._partition, np.zeros(size, np.int32)])
        self._group = np.concatenate([self._group, np.zeros(size, np.int32)])
        self._live = np.concatenate([self._live, np.zeros(size, np.bool_)])


def _key(group: str, topic: str, partition: int) -> bytes:
    """The bytes of an OffsetCommit key (type 1) as brokers write them."""
    g, t = group.encode(errors="replace"), topic.encode(errors="replace")
    return struct.pack(f">hh{len(g)}sh{len(t)}si", 1, len(g), g, len(t), t, partition)
