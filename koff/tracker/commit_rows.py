"""The committed offsets of a shard as rows, each with its window of commits.

A row from share state is never that of a commit in the offsets topic. A name may be that of a share group and
then of another group, and their records come in any order. `ShownRows` has the rows of the group that exists.

Rows are numpy columns, so that a batch is applied without a Python loop over its records. The row of a commit
is found by Python's 64-bit hash of the record key. The hash differs in each process; with a million keys, two
keys have the same hash in one process of thirty million.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, FirstRecords
from koff.tracker.column_table import ColumnTable, LateColumn, column
from koff.tracker.commit_features import FeatureTable
from koff.tracker.commit_keys import key_hashes
from koff.tracker.name_changes import NameChanges
from koff.tracker.recent_commits import WindowTable
from koff.tracker.registry import Registry
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_occurrences
from koff.tracker.saved_state import expand_codes

NOT_SHARED = -1
"""The partition of `__share_group_state` of a row whose commit does not come from there."""
DESCRIBED = -2
"""The same, of a row that a coordinator has returned the lag of a share group for. It has no commit."""


class CommitRows(ColumnTable):
    """A row for each (group, topic, partition), found by the hash of its key. Free rows are not `live`."""

    hash: Ints = column(np.int64)
    committed: Ints = column(np.int64)
    committed_at: Ints = column(np.int64)
    topic_id: Ints = column(np.int64)
    seen_at: Ints = column(np.int64)
    partition: NDArray[np.int32] = column(np.int32)
    group: NDArray[np.int32] = column(np.int32)
    live: NDArray[np.bool_] = column(np.bool_)

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self.registry = registry
        self.index = RowIndex()
        self.windows = WindowTable()
        self.features = FeatureTable()
        self.share_partition = LateColumn(np.int32, NOT_SHARED)
        """The partition of `__share_group_state` that the commit is from."""
        self.share_lag = LateColumn(np.int64, UNKNOWN)
        """The lag, where the row is `DESCRIBED`."""
        # The committed offset that the first record was read for, and the columns of `FirstRecords`.
        self._first_records = LateColumn(np.int64, UNKNOWN, height=1 + len(FirstRecords._fields))
        self.of_group: dict[str, int] = {}
        """The number of rows of each group."""
        self.changes = NameChanges()
        """The groups whose number of rows became or ceased to be 0."""
        self.arrangement = 0
        """Changes whenever rows come or go."""
        self.changed = 0
        """Changes whenever a column does."""
        self.version = next(registry.versions)
        """Changes whenever records are applied: what is saved is another state then."""
        self._end = 0
        self._free: list[int] = []

    def __len__(self) -> int:
        return self._end - len(self._free)

    def note_change(self) -> None:
        """Notes that the columns change, before they do."""
        self.version = next(self.registry.versions)
        self.changed += 1

    def list_live(self) -> Ints:
        """The rows with a commit, or with a described lag."""
        return np.flatnonzero(self.live[: self._end])

    def used_groups(self) -> list[int]:
        """The codes of the groups with a commit."""
        codes: list[int] = np.unique(self.group[self.list_live()]).tolist()
        return codes

    def find_group_codes(self, names: Collection[str]) -> list[int]:
        """The codes of the groups, among these, that have rows."""
        groups = self.registry.names.groups
        return [groups.assign_code(name) for name in names if name in self.of_group]

    def is_shared(self, rows: Ints) -> NDArray[np.bool_]:
        """A mask of the rows that are from share state, or described."""
        partition = self.share_partition.get(rows)
        return np.zeros(len(rows), np.bool_) if partition is None else partition != NOT_SHARED

    def newest_commit_ms(self, name: str) -> int:
        """The newest commit timestamp of the group; UNKNOWN without commits."""
        live = self.list_live()
        rows = live[np.isin(self.group[live], self.find_group_codes([name]))]
        return int(self.committed_at[rows].max(initial=UNKNOWN))

    # --- Rows come and go --------------------------------------------------------------------------------

    def fill(
        self,
        groups: Sequence[str],
        topics: Sequence[str],
        group: NDArray[np.int32],
        topic: NDArray[np.int32],
        partition: NDArray[np.int32],
    ) -> Ints:
        """Makes the rows of an empty table, live. The caller sets their committed offsets."""
        hashes = key_hashes(groups, topics, group, topic, partition)
        self._end = len(group)
        self._reserve_rows()
        rows = np.arange(self._end)
        codes = expand_codes(groups, group, self.registry.names.groups)
        # A topic needs a code before its partitions can have numbers.
        self._identify(
            rows, hashes, codes, expand_codes(topics, topic, self.registry.names.topics), partition
        )
        self.live[rows] = True
        return rows

    def make(
        self,
        hashes: Ints,
        groups: NDArray[np.int32],
        topics: NDArray[np.int32],
        partitions: NDArray[np.int32],
    ) -> None:
        """Makes a row for each distinct hash, not yet live. Freed rows are used first."""
        first = first_occurrences(hashes)
        freed = [self._free.pop() for _ in range(min(len(first), len(self._free)))]
        end = self._end + len(first) - len(freed)
        rows = np.array([*freed, *range(self._end, end)], np.int64)
        self._end = end
        self._reserve_rows()
        # A freed row still has the values of its earlier commit.
        self.committed[rows] = UNKNOWN
        self.live[rows] = False
        self.windows.clear(rows)
        for late in (self._first_records, self.share_partition, self.share_lag):
            late.clear(rows)
        self._identify(rows, hashes[first], groups[first], topics[first], partitions[first])

    def _reserve_rows(self) -> None:
        for table in (self, self.windows, self.features):
            table.reserve(self._end)

    def _identify(
        self,
        rows: Ints,
        hashes: Ints,
        groups: NDArray[np.int32],
        topics: NDArray[np.int32],
        partitions: NDArray[np.int32],
    ) -> None:
        """Sets what new rows are of: codes of groups and topics, and partitions."""
        self.hash[rows], self.group[rows] = hashes, groups
        self.partition[rows] = self.registry.partitions.numbers.assign(topics, partitions)
        self.features.changed[rows] = True
        self.index.add(hashes, rows)
        self._count_rows(groups, 1)
        self.arrangement += 1

    def remove(self, rows: Ints) -> None:
        if rows.size:
            self.note_change()
            self.live[rows] = False
            self.release(rows)

    def release(self, rows: Ints) -> None:
        """Frees those of these rows that ended up deleted, or never became live."""
        rows = np.unique(rows[~self.live[rows]])
        rows = rows[self.index.find(self.hash[rows]) == rows]  # leave out rows that are free already
        if rows.size:
            self.index.remove(self.hash[rows])
            self._count_rows(self.group[rows], -1)
            self._free.extend(rows.tolist())
            self.arrangement += 1

    def _count_rows(self, groups: NDArray[np.int32], sign: int) -> None:
        """Adds (1) or subtracts (-1) rows of these groups (codes, one for each row)."""
        names, counts = self.registry.names.groups.names, self.of_group
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
                self.changes.add(name)

    # --- Commits are read, and their first records --------------------------------------------------------

    def add_to_windows(self, rows: Ints, offset: Ints, at_ms: Ints, live_ms: int) -> None:
        """Adds commits to the windows of `rows`, with their lag at commit."""
        lag = self.registry.partitions.lags_at_commit(self.partition[rows], offset, live_ms)
        self.windows.add(rows, offset, at_ms, lag)
        self.features.changed[rows] = True

    def list_seen(self) -> tuple[Ints, Ints]:
        """The keys of all commits, and when each was read."""
        rows = self.list_live()
        return self.hash[rows], self.seen_at[rows]

    def note_seen(self, keys: Ints, seen_at_ms: Ints) -> None:
        """Sets when the commits of these row keys were read, if later. Ignores keys of other shards."""
        self.changed += 1
        rows = self.index.find(keys)
        here = rows != NO_ROW
        self.seen_at[rows[here]] = np.maximum(self.seen_at[rows[here]], seen_at_ms[here])

    def list_seen_after(self, at_ms: int) -> tuple[NDArray[np.int32], Ints]:
        """The partition numbers and the (folded) topic ids of the commits that were read after `at_ms`."""
        rows = self.list_live()
        rows = rows[self.seen_at[rows] > at_ms]
        return self.partition[rows], self.topic_id[rows]

    def find_first_records(self, rows: Ints) -> FirstRecords | None:
        """The first records of `rows`, UNKNOWN where not read, or for an offset above the committed one. None
        if no record was ever read.
        """
        found = self._first_records.get(rows)
        if found is None:
            return None
        read_for, offset, *timestamps = found
        return FirstRecords(np.where(read_for <= self.committed[rows], offset, UNKNOWN), *timestamps)

    def list_first_records(self) -> tuple[Ints, Ints, FirstRecords]:
        """The first records that are known and match a present commit: keys, committed offsets, records."""
        rows = self.list_live()
        records = self.find_first_records(rows)
        if records is None:
            none = np.zeros(0, np.int64)
            return none, none, FirstRecords(none, none, none)
        known = np.flatnonzero(records.offset >= 0)
        return self.hash[rows[known]], self.committed[rows[known]], records.select(known)

    def note_first_records(self, keys: Ints, committed: Ints, records: FirstRecords) -> None:
        """Sets the first record at or after `committed` of each row key. Ignores keys of other shards."""
        rows = self.index.find(keys)
        here = np.flatnonzero(rows != NO_ROW)
        self._first_records.put(rows[here], (committed[here], *records.select(here)))

    def forget_first_records(self, partitions: Ints) -> None:
        """Drops the first records of the rows of these partition numbers."""
        self._first_records.clear(np.flatnonzero(np.isin(self.partition[: self._end], partitions)))
