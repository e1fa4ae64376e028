"""The committed offsets of a shard as rows, each with its window of commits.

A row from share state is never that of a commit in the offsets topic. A name may be that of a share group and
then of another group, and their records come in any order. `Shard` shows the rows of the group that exists.

Rows are numpy columns, so that a batch is applied without a Python loop over its records. The row of a commit
is found by Python's 64-bit hash of the record key. The hash differs in each process; with a million keys, two
keys have the same hash in one process of thirty million.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, Features, FirstRecords, lacks_commit_time, window_features
from koff.tracker.commit_columns import Commits, find_possible_commits
from koff.tracker.commit_keys import commit_key, convert_to_share_keys, key_hashes
from koff.tracker.first_records import FirstRecordTable
from koff.tracker.impossible import is_possible_name
from koff.tracker.layout import Layout
from koff.tracker.name_changes import NameChanges
from koff.tracker.recent_commits import WindowTable
from koff.tracker.registry import Registry
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_occurrences
from koff.tracker.saved_state import expand_codes
from koff.tracker.snapshot_columns import ShardSnapshot

_AT_ONCE = 8192  # rows: the windows of a chunk fit the cache of a core
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
NOT_SHARED = -1
"""The partition of `__share_group_state` of a row whose commit does not come from there."""
DESCRIBED = -2
"""The same, of a row that a coordinator has returned the lag of a share group for. It has no commit."""


class CommitRows:
    """A row for each (group, topic, partition), found by the hash of its key."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
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
        # By row: the partition of `__share_group_state` that the commit is from. None: there is no such row.
        self._share_partition: NDArray[np.int32] | None = None
        # By row: the lag, where the row is `DESCRIBED`. None: there is no such row.
        self._share_lag: Ints | None = None
        # The number of rows of each group, and the groups whose number became or ceased to be 0.
        self._rows_of_group: dict[str, int] = {}
        self._row_changes = NameChanges()
        self._layout: Layout | None = None  # made again after rows have come or gone
        self._kept: ShardSnapshot | None = None  # the last snapshot, while its columns are those of now
        self.version = next(registry.versions)
        """Changes whenever records are applied."""

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return self._rows - len(self._free)

    def used_groups(self) -> list[int]:
        """The codes of the groups with a commit in this shard."""
        codes: list[int] = np.unique(self._group[: self._rows][self._live[: self._rows]]).tolist()
        return codes

    def newest_commit_ms(self, name: str) -> int:
        """The newest commit timestamp of the group; UNKNOWN without commits."""
        if name not in self._rows_of_group:
            return UNKNOWN
        code = self._registry.names.groups.assign_code(name)
        rows = np.flatnonzero(self._live[: self._rows] & (self._group[: self._rows] == code))
        return int(self._committed_at[rows].max(initial=UNKNOWN))

    def set_commits(
        self,
        commits: Commits,
        *,
        at_ms: Ints | int,
        topic_id: Ints | int = 0,
        seen_at_ms: int = UNKNOWN,
        is_live: bool = True,
        share_partition: Ints | None = None,
    ) -> None:
        """Applies commits that are in no offsets topic. No (group, topic, partition) may occur twice.

        `at_ms` are the commit times, `topic_id` the folded topic ids. If the commits are from
        `__share_group_state`, `share_partition` are its partitions. `seen_at_ms` and `is_live` are as in
        `Tracker.apply`.
        """
        self._registry.forget_unused()  # before any name is looked up
        size = len(commits.group)
        commits, kept = find_possible_commits(commits, self._registry.impossible_counts)
        times, topic_ids = (np.broadcast_to(column, size)[kept] for column in (at_ms, topic_id))
        if not kept.size:
            return
        self._note_change()
        hashes, rows = self._find_commit_rows(commits, shared=share_partition is not None)
        self._make_commit_rows(commits, hashes, rows)
        self._committed[rows], self._committed_at[rows] = commits.offset, times
        self._topic_id[rows], self._seen_at[rows] = topic_ids, seen_at_ms
        if share_partition is not None:
            self._set_share_partition(rows, share_partition[kept])
        known = commits.offset >= 0
        if known.any():
            live_ms = seen_at_ms if is_live else UNKNOWN
            self._add_to_windows(rows[known], commits.offset[known], times[known], live_ms)

    def set_share_lags(self, lags: Commits, *, topic_id: Ints, asked_ms: Ints) -> None:
        """Makes rows without a commit, each with the lag of a share group in place of `lags.offset`.

        `asked_ms` is when it was requested, by the clock of `Tracker.apply`.
        """
        if not len(lags.group):
            return
        self._registry.forget_unused()  # before any name is looked up
        self._kept = None
        lags, kept = find_possible_commits(lags, self._registry.impossible_counts)
        hashes, rows = self._find_commit_rows(lags, shared=True)
        self._make_commit_rows(lags, hashes, rows)
        self._committed[rows] = self._committed_at[rows] = UNKNOWN
        self._topic_id[rows], self._seen_at[rows] = topic_id[kept], asked_ms[kept]
        self._set_share_partition(rows, DESCRIBED)
        if self._share_lag is None:
            self._share_lag = np.full(len(self._hash), UNKNOWN, np.int64)
        self._share_lag[rows] = lags.offset
        # A window of commits that end before this lag says nothing about the present.
        self._windows.clear(rows)
        self._changed[rows] = True

    def _select_share_lags(self, rows: Ints) -> Ints | None:
        """The lags that coordinators returned, UNKNOWN elsewhere; None if there are none."""
        if self._share_lag is None or self._share_partition is None:
            return None
        return np.where(self._share_partition[rows] == DESCRIBED, self._share_lag[rows], UNKNOWN)

    def remove_commits(self, keys: Iterable[tuple[str, str, int]], *, shared: bool = False) -> None:
        """Removes the commits of these (group, topic, partition), where there are any.

        `shared`: those from share state, and described lags, in place of those from the offsets topic.
        """
        found = [
            hash(commit_key(group, topic, partition))
            for group, topic, partition in keys
            if partition >= 0 and is_possible_name(group) and is_possible_name(topic)
        ]
        hashes = np.array(found, np.int64)
        rows = self._index.find(convert_to_share_keys(hashes) if shared else hashes)
        self._remove_rows(rows[rows != NO_ROW])

    def remove_share_commits(self, groups: Collection[str]) -> None:
        """Removes the commits of these groups that come from `__share_group_state`, and described lags."""
        if self._share_partition is None:
            return
        names = self._registry.names.groups
        codes = [names.assign_code(name) for name in groups if name in self._rows_of_group]
        live = self._live[: self._rows] & (self._share_partition[: self._rows] != NOT_SHARED)
        self._remove_rows(np.flatnonzero(live & np.isin(self._group[: self._rows], codes)))

    def find_left_topics(self, commits: Commits, failed: Collection[str]) -> dict[str, set[str]]:
        """The topics of rows that a response of coordinators does not have, each with the groups of the rows.

        The rows of `failed` groups are left out.
        """
        rows = self._find_unanswered(self._find_commit_rows(commits)[1], failed)
        codes, _ = self._registry.partitions.codes_and_partitions(self._partition[rows])
        names = self._registry.names
        left: dict[str, set[str]] = {}
        for topic, group in np.unique(np.stack([codes, self._group[rows]]), axis=1).T.tolist():
            left.setdefault(names.topics.names[topic], set()).add(names.groups.names[group])
        return left

    def _overwrite_rows(
        self, commits: Commits, failed: Collection[str], seen_at_ms: int, kept_topics: Collection[str]
    ) -> None:
        """Sets the commits to these, but not those of `failed` groups, nor those from share state.

        Commits to `kept_topics` are not removed.
        `seen_at_ms` is when they were received. A commit that was there before was seen then.
        """
        commits = find_possible_commits(commits, self._registry.impossible_counts)[0]
        hashes, rows = self._find_commit_rows(commits)
        gone, differs = self._find_unanswered(rows, failed), self._find_different(rows, commits.offset)
        if kept_topics:
            topics = self._registry.partitions.codes_and_partitions(self._partition[gone])[0]
            kept = [self._registry.names.topics.assign_code(topic) for topic in kept_topics]
            gone = gone[~np.isin(topics, kept)]
        if differs.any():
            self._note_change()
        self._remove_rows(gone)
        self._make_commit_rows(commits, hashes, rows)
        # Without a time, and without a place in the window.
        rows = rows[differs]
        self._committed[rows], self._topic_id[rows] = commits.offset[differs], 0
        self._committed_at[rows], self._seen_at[rows] = UNKNOWN, seen_at_ms

    def list_seen(self) -> tuple[Ints, Ints]:
        """The keys of all commits, and when each was read."""
        rows = np.flatnonzero(self._live[: self._rows])
        return self._hash[rows], self._seen_at[rows]

    def note_seen(self, keys: Ints, seen_at_ms: Ints) -> None:
        """Sets when the commits of these row keys were read, if later. Ignores keys of other shards."""
        self._kept = None
        rows = self._index.find(keys)
        here = rows != NO_ROW
        self._seen_at[rows[here]] = np.maximum(self._seen_at[rows[here]], seen_at_ms[here])

    def list_seen_after(self, at_ms: int) -> tuple[NDArray[np.int32], Ints]:
        """The partition numbers and the (folded) topic ids of the commits that were read after `at_ms`."""
        rows = np.flatnonzero(self._live[: self._rows] & (self._seen_at[: self._rows] > at_ms))
        return self._partition[rows], self._topic_id[rows]

    def first_records(self) -> tuple[Ints, Ints, FirstRecords]:
        """The first records that are known and match a present commit: keys, committed offsets, records."""
        rows = np.flatnonzero(self._live[: self._rows])
        committed = self._committed[rows]
        records = self._first_records.get(rows, committed)
        if records is None:
            none = np.zeros(0, np.int64)
            return none, none, FirstRecords(none, none, none)
        known = np.flatnonzero(records.offset >= 0)
        return self._hash[rows][known], committed[known], records.select(known)

    def note_first_records(self, keys: Ints, committed: Ints, records: FirstRecords) -> None:
        """Sets the first record at or after `committed` of each row key. Ignores keys of other shards."""
        rows = self._index.find(keys)
        here = rows != NO_ROW
        self._first_records.put(rows[here], committed[here], records.select(np.flatnonzero(here)))

    def forget_first_records(self, partitions: Ints) -> None:
        """Drops the first records of the rows of these partition numbers."""
        self._first_records.clear(np.flatnonzero(np.isin(self._partition[: self._rows], partitions)))

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
        self._partition[rows] = self._registry.assign_numbers(codes, partition)
        self._count_rows(self._group[rows], 1)
        self._live[rows] = self._changed[rows] = True
        self._index.add(self._hash[rows], rows)
        return rows

    def _find_commit_rows(self, commits: Commits, *, shared: bool = False) -> tuple[Ints, Ints]:
        """The key hash and the row of each commit, NO_ROW where there is none.

        `shared`: the commits are from share state.
        """
        hashes = key_hashes(commits.groups, commits.topics, commits.group, commits.topic, commits.partition)
        hashes = convert_to_share_keys(hashes) if shared else hashes
        return hashes, self._index.find(hashes)

    def _make_commit_rows(self, commits: Commits, hashes: Ints, rows: Ints) -> None:
        """Makes live rows for the commits without a row, and sets these in `rows`."""
        new = np.flatnonzero(rows == NO_ROW)
        if not new.size:
            return
        names = self._registry.names
        groups = expand_codes(commits.groups, commits.group[new], names.groups)
        topics = expand_codes(commits.topics, commits.topic[new], names.topics)
        self._make_rows(hashes[new], groups, topics, commits.partition[new])
        rows[new] = self._index.find(hashes[new])
        self._live[rows[new]] = True

    def _find_unanswered(self, answered: Ints, failed: Collection[str]) -> Ints:
        """The rows that a response of coordinators does not have, apart from those of `failed` groups."""
        kept = np.zeros(self._rows, np.bool_)
        kept[answered[answered != NO_ROW]] = True
        if self._share_partition is not None:
            kept |= self._share_partition[: self._rows] != NOT_SHARED
        names = self._registry.names.groups
        codes = [names.assign_code(name) for name in failed if name in self._rows_of_group]
        return np.flatnonzero(self._live[: self._rows] & ~kept & ~np.isin(self._group[: self._rows], codes))

    def _find_different(self, rows: Ints, offset: Ints) -> NDArray[np.bool_]:
        """A mask of the `rows` that do not have that offset yet."""
        different = np.ones(len(rows), np.bool_)
        old = np.flatnonzero(rows != NO_ROW)
        different[old] = self._committed[rows[old]] != offset[old]
        return different

    def _remove_rows(self, rows: Ints) -> None:
        if rows.size:
            self._note_change()
            self._live[rows] = False
            self._release_rows(rows)

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

    def _select_features(self, rows: Ints) -> Features:
        """The features of the windows, empty where the newest commit is in no window for want of a time."""
        features = Features(
            self._first_s[rows] * np.int64(1000),
            self._last_s[rows] * np.int64(1000),
            self._commits[rows],
            self._marks[rows],
            self._consumed[rows],
        )
        times = self._committed_at[rows]
        return features.empty_rows(lacks_commit_time(committed=self._committed[rows], committed_at_ms=times))

    def _set_share_partition(self, rows: Ints, share: Ints | int) -> None:
        """Sets the partition of `__share_group_state` that the commits of `rows` are from, or DESCRIBED."""
        if self._share_partition is None:
            self._share_partition = np.full(len(self._hash), NOT_SHARED, np.int32)
        self._share_partition[rows] = share

    def _add_to_windows(self, rows: Ints, offset: Ints, at_ms: Ints, live_ms: int) -> None:
        """Adds commits to the windows of `rows`, with their lag at commit."""
        lag = self._registry.partitions.lags_at_commit(self._partition[rows], offset, live_ms)
        self._windows.add(rows, offset, at_ms, lag)
        self._changed[rows] = True

    def _note_change(self) -> None:
        """Notes that the columns change, before they do.

        Two methods only drop `_kept`. A new version would save the state again, which they do not need.
        """
        self.version, self._kept = next(self._registry.versions), None

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
        self._partition[rows] = self._registry.assign_numbers(topics[first], partitions[first])
        self._count_rows(groups[first], 1)
        # A freed row still has the values of its earlier commit.
        self._committed[rows] = UNKNOWN
        self._live[rows] = False
        self._windows.clear(rows)
        self._first_records.clear(rows)
        if self._share_partition is not None:
            self._share_partition[rows] = NOT_SHARED
        self._changed[rows] = True
        self._index.add(hashes, rows)
        self._layout = None

    def _release_rows(self, rows: Ints) -> None:
        """Frees the rows that ended up deleted, or never became live."""
        rows = np.unique(rows[~self._live[rows]])
        rows = rows[self._index.find(self._hash[rows]) == rows]  # leave out rows that are free already
        if rows.size:
            self._index.remove(self._hash[rows])
            self._count_rows(self._group[rows], -1)
            self._free.extend(rows.tolist())
            self._layout = None

    def _count_rows(self, groups: NDArray[np.int32], sign: int) -> None:
        """Adds (1) or subtracts (-1) rows of these groups (codes, one for each row)."""
        names, counts = self._registry.names.groups.names, self._rows_of_group
        if len(groups) == 1:
            changes = [(int(groups[0]), 1)]
        else:
            codes, sizes = np.unique(groups, return_counts=True)
            changes = list(zip(codes.tolist(), sizes.tolist(), strict=True))
        for code, size in changes:
            name = names[code]
            before = counts.get(name, 0)
            after = before + sign * size
            if after:
                counts[name] = after
            else:
                del counts[name]
            if not (before and after):
                self._row_changes.add(name)

    def _grow_columns(self) -> None:
        size = len(self._hash)
        if size >= self._rows:
            return
        # At least an eighth more, so that many small batches seldom copy the columns.
        size = max(self._rows, size + size // 8 + 16)
        for name in _COLUMNS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(size - len(old), old.dtype)]))
        if (share := self._share_partition) is not None:
            more = np.full(size - len(share), NOT_SHARED, np.int32)
            self._share_partition = np.concatenate([share, more])
        if (lag := self._share_lag) is not None:
            self._share_lag = np.concatenate([lag, np.full(size - len(lag), UNKNOWN, np.int64)])
        self._windows.resize(size)
