"""The state of one partition of `__consumer_offsets`: its groups, and a row for each committed offset.

All records of a group are in one partition, so a partition is rebuilt by replacing its `Shard`.

Rows are numpy columns, so that a batch is applied without a Python loop over its records. The row of a commit
is found by Python's 64-bit hash of the record key. The hash differs in each process; with a million keys, two
keys have the same hash in one process of thirty million.

Offsets are kept apart from groups: only its own tombstone removes an offset (docs/records-format.md 4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, Features, FirstRecords, window_features
from koff.proto.buffers import Binary
from koff.records import Message, OffsetCommit, Undecodable, Unknown, decode, type_name
from koff.records.columns import decode_columns
from koff.records.commit_values import decode_commit_values
from koff.tracker.commit_keys import commit_key, key_hashes
from koff.tracker.first_records import FirstRecordTable
from koff.tracker.groups import Described, Group, GroupTable
from koff.tracker.recent_commits import WindowTable
from koff.tracker.registry import Registry
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_occurrences
from koff.tracker.saved_state import State, compact_codes, expand_codes
from koff.tracker.seeds import Commits
from koff.tracker.snapshot import ShardSnapshot
from koff.tracker.topic_partitions import fold_topic_id, fold_topic_ids

Blobs = Sequence[bytes | None]
_COMMIT = "OffsetCommit"
_AT_ONCE = 8192  # rows: the windows of a chunk fit the cache of a core
_FEW = 32
"""Up to this number of records, applying them one by one is faster than with numpy."""
_COLUMNS = (
    "_hash",
    "_committed",
    "_committed_at",
    "_topic_id",
    "_seen_at",
    "_partition",
    "_group",
    "_live",
    "_changed",
    "_first_s",
    "_last_s",
    "_commits",
    "_marks",
    "_consumed",
)
_SAVED = ("_committed", "_committed_at", "_topic_id", "_seen_at")
"""The columns that are saved as they are. All others follow from these, from names, or from windows."""


class Shard:
    """Applies batches of records of one partition of `__consumer_offsets`, in log order.

    A caller that changes a shard must hold the tracker's lock (see `Registry`).
    """

    def __init__(self, registry: Registry) -> None:
        self.groups = GroupTable()
        self._registry = registry
        registry.shards.add(self)
        self._record_counts = registry.record_counts
        self._index = RowIndex()
        self._rows = 0
        self._free: list[int] = []
        # The columns (`_COLUMNS`), by row. They have room for more rows than there are.
        self._hash = np.zeros(0, np.int64)
        self._committed = np.zeros(0, np.int64)
        self._committed_at = np.zeros(0, np.int64)
        self._topic_id = np.zeros(0, np.int64)
        self._seen_at = np.zeros(0, np.int64)
        self._partition = np.zeros(0, np.int32)
        self._group = np.zeros(0, np.int32)
        self._live = np.zeros(0, np.bool_)
        self._changed = np.zeros(0, np.bool_)
        self._first_s = np.zeros(0, np.int32)
        self._last_s = np.zeros(0, np.int32)
        self._commits = np.zeros(0, np.uint8)
        self._marks = np.zeros(0, np.uint8)
        self._consumed = np.zeros(0, np.float32)
        self._windows = WindowTable()
        self._first_records = FirstRecordTable()
        self._chosen_cache: tuple[_Layout, Callable[[str], bool], Ints] | None = None
        self._layout: _Layout | None = None
        self.version = next(registry.versions)
        """Changes whenever records are applied."""

    @classmethod
    def from_state(cls, registry: Registry, state: State) -> Self:
        """A shard restored from `to_state`. The state must be of this `STATE_SCHEMA`."""
        shard, facts, columns = cls(registry), state.facts, state.columns
        group, topic, partition = columns["group"], columns["topic"], columns["partition"]
        shard.groups = GroupTable.from_state(facts["groups"])
        rows = shard._fill_rows(facts["group_names"], facts["topic_names"], group, topic, partition)
        for name in _SAVED:
            getattr(shard, name)[rows] = columns[name[1:]]
        shard._windows.restore(rows, columns)
        return shard

    @classmethod
    def from_descriptions(cls, registry: Registry, commits: Commits, groups: Mapping[str, Described]) -> Self:
        """A shard with the offsets and groups that coordinators returned.

        The responses have no commit timestamps, no earlier commits and no topic ids.
        """
        shard = cls(registry)
        rows = shard._fill_rows(
            commits.groups, commits.topics, commits.group, commits.topic, commits.partition
        )
        shard._committed[rows] = commits.offset
        shard._committed_at[rows] = shard._seen_at[rows] = UNKNOWN  # a topic id of 0 is unknown
        for name, group in groups.items():
            shard.groups.put(name, group)
        return shard

    def _fill_rows(
        self,
        groups: Sequence[str],
        topics: Sequence[str],
        group: NDArray[np.int32],
        topic: NDArray[np.int32],
        partition: NDArray[np.int32],
    ) -> Ints:
        """Makes the rows of an empty shard. The caller sets their committed offsets."""
        self._rows = len(group)
        self._grow_columns()
        rows = np.arange(self._rows)
        self._hash[rows] = key_hashes(groups, topics, group, topic, partition)
        self._group[rows] = expand_codes(groups, group, self._registry.names.groups)
        # A topic needs a code before its partitions can have numbers.
        codes = expand_codes(topics, topic, self._registry.names.topics)
        self._partition[rows] = self._registry.partitions.assign_numbers(codes, partition)
        self._live[rows] = self._changed[rows] = True
        self._index.add(self._hash[rows], rows)
        return rows

    def to_state(self, *, without: Collection[str] = ()) -> State:
        """A copy of the shard's state for `from_state`, but no commits of the groups `without`."""
        names, partitions = self._registry.names, self._registry.partitions
        rows = np.flatnonzero(self._live[: self._rows])
        if without:
            excluded = [names.groups.assign_code(name) for name in without]
            rows = rows[~np.isin(self._group[rows], excluded)]
        # Codes and partition numbers are of this process: save names in their place.
        topic, partition = partitions.codes_and_partitions(self._partition[rows])
        group_names, group = compact_codes(self._group[rows], names.groups)
        topic_names, topic = compact_codes(topic, names.topics)
        return State(
            {"groups": self.groups.to_state(), "group_names": group_names, "topic_names": topic_names},
            {"group": group, "topic": topic, "partition": partition}
            | {name[1:]: getattr(self, name)[rows] for name in _SAVED}
            | self._windows.save(rows),
        )

    def used_groups(self) -> list[int]:
        """The codes of the groups with a commit in this shard."""
        codes: list[int] = np.unique(self._group[: self._rows][self._live[: self._rows]]).tolist()
        return codes

    def used_partitions(self) -> Ints:
        """The numbers of the topic partitions with a commit in this shard. A number may repeat."""
        live = self._live[: self._rows]
        return self._partition[: self._rows][live].astype(np.int64)

    def group_names(self) -> set[str]:
        """The names of all groups, with commits or without."""
        return set(self._current_layout().names)

    def apply(self, keys: Blobs, values: Blobs, *, seen_at_ms: int = UNKNOWN, counted: bool = True) -> None:
        """Applies records in log order; see `Tracker.apply`.

        `counted` is False for records that are not from a log: `record_counts` leaves them out.
        """
        self._record_counts = self._registry.record_counts if counted else Counter()
        self._registry.forget_unused()  # before any name of this batch is looked up
        self.version = next(self._registry.versions)
        if len(keys) <= _FEW:
            for key, value in zip(keys, values, strict=True):
                self._apply_record(key, value, seen_at_ms)
            return
        # Find the row of each key. Keys that are not in the index need to be decoded.
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        rows = self._index.find(hashes)
        missing = np.flatnonzero(rows == NO_ROW)
        if missing.size:
            rows[missing] = self._apply_unindexed(missing, keys, values, hashes)
            # Keep the commits that have a row now.
            kept = np.flatnonzero(rows != NO_ROW)
            if kept.size != rows.size:
                rows, indexes = rows[kept], kept.tolist()
                keys, values = [keys[i] for i in indexes], [values[i] for i in indexes]
        if rows.size:
            self._apply_commits(rows, keys, values, seen_at_ms)

    def take_snapshot(self, now_ms: int | None = None) -> ShardSnapshot:
        """A copy of the state. `layout` is the same object for as long as rows and group names do not change.

        Without `now_ms`, the snapshot has no time lag.
        """
        layout = self._current_layout()
        live = layout.rows
        self._update_features(live)
        time_lag = None
        if now_ms is not None:
            partitions = self._registry.partitions
            committed = self._committed[live]
            records = self._first_records.get(live, committed)
            # Exact where the record was read, else estimated from the history of end offsets.
            time_lag = partitions.time_lags(layout.partition.astype(np.int64), committed, now_ms, records)
        return ShardSnapshot(
            layout=layout,
            groups=[self.groups.get(name) or Group(name) for name in layout.names],
            group=layout.group,
            partition=layout.partition,
            committed=self._committed[live],
            committed_at=self._committed_at[live],
            topic_id=self._topic_id[live],
            seen_at=self._seen_at[live],
            features=Features(
                self._first_s[live] * np.int64(1000),
                self._last_s[live] * np.int64(1000),
                self._commits[live],
                self._marks[live],
                self._consumed[live],
            ),
            time_lag=time_lag,
        )

    def find_unread_rows(self, is_chosen: Callable[[str], bool]) -> tuple[Ints, Ints, Ints]:
        """The rows of chosen groups that have a lag and no known first record: keys, partitions, offsets.

        `is_chosen` returns whether to include a group of that name. Share groups are left out: the offset
        that stands for their commit is not a position in the log.
        """
        rows = self._find_chosen_rows(is_chosen)
        partition, committed = self._partition[rows].astype(np.int64), self._committed[rows]
        records = self._first_records.get(rows, committed)
        unread = self._registry.partitions.is_unread(partition, committed, records)
        return self._hash[rows][unread], partition[unread], committed[unread]

    def _find_chosen_rows(self, is_chosen: Callable[[str], bool]) -> Ints:
        """The rows of chosen groups that are not share groups. Cached until the layout changes."""
        layout, groups = self._current_layout(), self.groups
        if self._chosen_cache is None or self._chosen_cache[:2] != (layout, is_chosen):
            included = [is_chosen(name) and not _is_share_group(groups.get(name)) for name in layout.names]
            self._chosen_cache = (layout, is_chosen, layout.rows[np.array(included, np.bool_)[layout.group]])
        return self._chosen_cache[2]

    def first_records(self) -> tuple[Ints, Ints, FirstRecords]:
        """The first records that are known and match a present commit: keys, committed offsets, records."""
        rows = np.flatnonzero(self._live[: self._rows])
        committed = self._committed[rows]
        records = self._first_records.get(rows, committed)
        if records is None:
            none = np.zeros(0, np.int64)
            return none, none, FirstRecords(none, none)
        known = records.offset >= 0
        return self._hash[rows][known], committed[known], FirstRecords(*(column[known] for column in records))

    def note_first_records(self, keys: Ints, committed: Ints, records: FirstRecords) -> None:
        """Sets the first record at or after `committed` of each row key. Ignores keys of other shards."""
        rows = self._index.find(keys)
        here = rows != NO_ROW
        own = FirstRecords(*(column[here] for column in records))
        self._first_records.put(rows[here], committed[here], own)

    def _update_features(self, live: Ints) -> None:
        """Computes the features of the windows that changed since the last snapshot."""
        changed = live[self._changed[live]]
        for start in range(0, len(changed), _AT_ONCE):
            rows = changed[start : start + _AT_ONCE]
            window = self._windows.get(rows)
            features = window_features(window.offset, window.time_ms, window.lag, window.count)
            self._first_s[rows], self._last_s[rows] = features.first_ms // 1000, features.last_ms // 1000
            self._commits[rows], self._marks[rows] = features.commits, features.marks
            self._consumed[rows] = features.consumed
        self._changed[changed] = False

    def _current_layout(self) -> _Layout:
        """The layout, built again if rows or described groups have changed."""
        # Rows that come or go clear the layout. Described groups are compared: they change without it.
        described = self.groups.names()
        if self._layout is None or self._layout.described != described:
            live = np.flatnonzero(self._live[: self._rows])
            codes, group = np.unique(self._group[live], return_inverse=True)
            names = [self._registry.names.groups.names[code] for code in codes.tolist()]
            with_commits = set(names)
            names += [name for name in described if name not in with_commits]
            self._layout = _Layout(described, live, names, group.astype(np.int32), self._partition[live])
        return self._layout

    def _apply_record(self, key: bytes | None, value: bytes | None, seen_at_ms: int) -> None:
        """Applies one record, faster than numpy could."""
        message, hashed = decode(key, value), hash(key)
        record, row = message.record, self._index.get(hashed)
        if not isinstance(record, OffsetCommit):
            self._apply_group_record(message)
            return
        self._record_counts[_COMMIT] += 1
        if row == NO_ROW:
            # Another encoding of the key (type 0, trailing bytes) has the row of the usual encoding.
            usual_key = commit_key(record.group, record.topic, record.partition)
            if usual_key != key:
                hashed = hash(usual_key)
                row = self._index.get(hashed)
        # A tombstone frees the row.
        if record.value is None:
            if row != NO_ROW:
                self._live[row] = False
                self._release_rows(np.array([row]))
            return
        # The first commit of a row makes the row.
        if row == NO_ROW:
            names = self._registry.names
            codes = names.groups.assign_code(record.group), names.topics.assign_code(record.topic)
            self._make_rows(np.array([hashed]), *np.array([[*codes, record.partition]], np.int32).T)
            row = self._index.get(hashed)
            self._live[row] = True
        offset, at_ms = record.value.offset, record.value.commit_timestamp
        self._committed[row], self._committed_at[row] = offset, at_ms
        self._topic_id[row], self._seen_at[row] = fold_topic_id(record.value.topic_id), seen_at_ms
        # The lag at commit is known only for a record that was read live, of a partition with a known end.
        if offset >= 0:
            end = (
                UNKNOWN if seen_at_ms == UNKNOWN else int(self._registry.partitions.end[self._partition[row]])
            )
            self._windows.add_one(row, offset, at_ms, UNKNOWN if end < 0 else max(end - offset, 0))
            self._changed[row] = True

    def _apply_commits(self, rows: Ints, keys: Blobs, values: Blobs, seen_at_ms: int) -> None:
        """Applies commits and deletions to `rows` (N,). A row may repeat: its last record wins.

        This relies on numpy assigning repeated indexes in order.
        """
        # Decode the values. `kept` is False for tombstones.
        all_rows, kept = rows, np.ones(len(rows), np.bool_)
        if None in values:
            kept[:] = [value is not None for value in values]
            values = [value or b"" for value in values]
        columns = decode_commit_values(cast(Sequence[bytes], values))
        offset, at_ms = columns.offset, columns.commit_timestamp
        topic_id = (
            np.zeros(len(rows), np.int64) if columns.topic_id is None else fold_topic_ids(columns.topic_id)
        )
        offset[~kept] = UNKNOWN
        # Values that `decode_commit_values` does not handle are decoded one by one. Undecodable: left out.
        bad = np.flatnonzero(~columns.ok & kept)
        if bad.size:
            good = np.ones(len(rows), np.bool_)
            for i in bad.tolist():
                record = decode(keys[i], values[i]).record
                if isinstance(record, OffsetCommit) and record.value is not None:
                    offset[i], at_ms[i] = record.value.offset, record.value.commit_timestamp
                    topic_id[i] = fold_topic_id(record.value.topic_id)
                else:
                    good[i] = False
                    self._record_counts[type(record).__name__] += 1
            rows, kept, offset, at_ms = rows[good], kept[good], offset[good], at_ms[good]
            topic_id = topic_id[good]
        self._record_counts[_COMMIT] += len(rows)
        # Set the columns, then the windows, then free the rows that ended up deleted.
        self._committed[rows], self._committed_at[rows] = offset, at_ms
        self._topic_id[rows], self._seen_at[rows] = topic_id, seen_at_ms
        if not self._live[rows].all():  # a row becomes live; `_release_rows` handles deleted rows
            self._layout = None
        self._live[rows] = kept
        in_window = offset >= 0
        if not kept.all():
            in_window &= self._clear_deleted(rows, ~kept)
        if in_window.any():
            live = seen_at_ms != UNKNOWN
            self._add_to_windows(rows[in_window], offset[in_window], at_ms[in_window], live=live)
        if bad.size or not kept.all():
            self._release_rows(all_rows)

    def _clear_deleted(self, rows: Ints, deleted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Clears the windows of deleted rows. Returns which records follow the last deletion of their row."""
        distinct, numbers = np.unique(rows, return_inverse=True)
        last = np.full(len(distinct), -1)
        deletions = np.flatnonzero(deleted)
        last[numbers[deletions]] = deletions  # numpy assigns in order: the last deletion stays
        self._windows.clear(distinct[last >= 0])
        after: NDArray[np.bool_] = np.arange(len(rows)) > last[numbers]
        return after

    def _add_to_windows(self, rows: Ints, offset: Ints, at_ms: Ints, *, live: bool) -> None:
        """Adds commits to the windows of `rows`, with their lag at commit; it is unknown unless `live`."""
        lag = np.full(len(rows), UNKNOWN, np.int64)
        if live:
            end = self._registry.partitions.end[self._partition[rows]]
            lag = np.where(end >= 0, np.maximum(end - offset, 0), UNKNOWN)
        self._windows.add(rows, offset, at_ms, lag)
        self._changed[rows] = True

    def _apply_unindexed(self, missing: Ints, keys: Blobs, values: Blobs, hashes: Ints) -> Ints:
        """Applies records whose keys are not in the index, except commits. Returns the rows of the commits.

        A row is NO_ROW where the record is not a commit, or deletes an offset that does not exist.
        """
        indexes = missing.tolist()
        # Decode. Records about groups are applied here, in log order among themselves.
        batch_keys = Binary.from_values([keys[i] for i in indexes])
        columns = decode_columns(
            batch_keys, Binary.from_values([values[i] for i in indexes]), names=self._registry.names
        )
        for message in columns.others.values():
            self._apply_group_record(message)
        rows = np.full(len(indexes), NO_ROW, np.int64)
        # The hash of each commit's usual key. A key whose length is not the usual length is another encoding
        # (type 0, trailing bytes) of the usual key, and belongs to the same row.
        commits = np.flatnonzero(columns.ok)
        groups, topics = columns.groups, columns.topics
        usual_hashes = hashes[missing]
        group_size, topic_size = self._registry.name_sizes("groups"), self._registry.name_sizes("topics")
        usual_size = 2 + 2 + group_size[columns.group + 1] + 2 + topic_size[columns.topic + 1] + 4
        unusual = columns.ok & ((columns.type != 1) | (batch_keys.lengths != usual_size))
        for i in np.flatnonzero(unusual).tolist():
            key = commit_key(groups[columns.group[i]], topics[columns.topic[i]], int(columns.partition[i]))
            usual_hashes[i] = hash(key)
        # Make rows for new commits. A tombstone without a row makes none.
        rows[commits] = self._index.find(usual_hashes[commits])
        new = commits[(rows[commits] == NO_ROW) & ~columns.tombstone[commits]]
        if new.size:
            self._make_rows(usual_hashes[new], columns.group[new], columns.topic[new], columns.partition[new])
        rows[commits] = self._index.find(usual_hashes[commits])
        if dropped := int((rows[commits] == NO_ROW).sum()):  # tombstones of offsets that do not exist
            self._record_counts[_COMMIT] += dropped
        return rows

    def _make_rows(
        self,
        hashes: Ints,
        groups: NDArray[np.int32],
        topics: NDArray[np.int32],
        partitions: NDArray[np.int32],
    ) -> None:
        """Makes a row for each distinct hash, not yet live. Freed rows are used first."""
        first = first_occurrences(hashes)
        hashes, count = hashes[first], len(first)
        freed = [self._free.pop() for _ in range(min(count, len(self._free)))]
        rows = np.array([*freed, *range(self._rows, self._rows + count - len(freed))], np.int64)
        self._rows += count - len(freed)
        self._grow_columns()
        self._hash[rows] = hashes
        self._group[rows] = groups[first]
        self._partition[rows] = self._registry.partitions.assign_numbers(topics[first], partitions[first])
        # A freed row still has the values of its earlier commit.
        self._committed[rows] = UNKNOWN
        self._live[rows] = False
        self._windows.clear(rows)
        self._first_records.clear(rows)
        self._changed[rows] = True
        self._index.add(hashes, rows)
        self._layout = None

    def _release_rows(self, rows: Ints) -> None:
        """Frees the rows that ended up deleted, or never became live."""
        rows = np.unique(rows[~self._live[rows]])
        rows = rows[self._index.find(self._hash[rows]) == rows]  # leave out rows that are free already
        if rows.size:
            self._index.remove(self._hash[rows])
            self._free.extend(rows.tolist())
            self._layout = None

    def _apply_group_record(self, message: Message) -> None:
        """Applies and counts a record that is not an offset commit."""
        record = message.record
        if isinstance(record, Undecodable | Unknown):
            self._record_counts[type(record).__name__] += 1
            return
        self._record_counts[type_name(record.type)] += 1
        self.groups.apply(message)

    def _grow_columns(self) -> None:
        size = len(self._hash)
        if size >= self._rows:
            return
        # At least an eighth more, so that many small batches seldom copy the columns.
        size = max(self._rows, size + size // 8 + 16)
        for name in _COLUMNS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(size - len(old), old.dtype)]))
        self._windows.resize(size)


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """The live rows, each with its group and partition. The same object until rows or groups come or go.

    `names` are the groups with commits, by the numbers in `group`, then the described groups without commits.
    """

    described: list[str]
    rows: Ints
    names: list[str]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]


def _is_share_group(group: Group | None) -> bool:
    return group is not None and group.type == "share"
