"""The state of one partition of `__consumer_offsets`: its groups, and a row for each committed offset.

All records of a group are in one partition, so a partition is rebuilt by replacing its `Shard`.

Offsets are kept apart from groups: only its own tombstone removes an offset (docs/records-format.md 4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, FirstRecords, TimeLags
from koff.proto.buffers import Binary
from koff.records import DecodedMessage, OffsetCommit, Undecodable, Unknown, decode, type_name
from koff.records.columns import RecordColumns, decode_columns
from koff.records.commit_values import CommitValues, decode_commit_values
from koff.tracker.assignments import AssignmentTable
from koff.tracker.clock_skew import ClockSkew
from koff.tracker.commit_columns import Commits, find_possible_commits
from koff.tracker.commit_keys import commit_key
from koff.tracker.commit_rows import NOT_SHARED, CommitRows
from koff.tracker.groups import Described, Group, GroupTable
from koff.tracker.impossible import NAME, PARTITION
from koff.tracker.layout import Layout
from koff.tracker.recent_commits import select_saved_windows
from koff.tracker.registry import IMPOSSIBLE, Registry
from koff.tracker.row_index import NO_ROW, Ints
from koff.tracker.saved_state import State, compact_codes
from koff.tracker.shown import ShownNames
from koff.tracker.snapshot_columns import ShardSnapshot
from koff.tracker.topic_partitions import fold_topic_id, fold_topic_ids

BytesColumn = Sequence[bytes | None] | Binary
"""The keys or the values of some records. A value that is None, or a null row, is a tombstone."""
_COMMIT = "OffsetCommit"
_FEW = 32
"""Up to this number of records, applying them one by one is faster than with numpy."""
_DOUBTED = 4
"""So many of the first commits may have a time that is long ago: any client may write any time."""
_SAVED = ("_committed", "_committed_at", "_topic_id", "_seen_at")
"""The columns that are saved as they are. All others follow from these, from names, or from windows."""
_PLAIN_COLUMNS = ("group", "topic", "partition", *(name[1:] for name in _SAVED))
"""The names of a `State`'s columns that have one value for each row."""


class Shard(CommitRows):
    """Applies batches of records of one partition of `__consumer_offsets`, in log order.

    Only the thread that uses the tracker may use its shards (see `Registry`).
    """

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.groups = GroupTable(registry.impossible_counts)
        self.assignments = AssignmentTable(registry)
        self.skew = ClockSkew()
        self.commit_counts: dict[str, int] = {}
        """By group, how many commits were applied as they were made: without history."""
        registry.shards.add(self)
        # The groups that coordinators described, if nothing else was learned since then but the log.
        self._described: Collection[str] | None = None
        self._unmoved_since_ms = UNKNOWN
        self._record_counts = registry.record_counts
        self._hidden: frozenset[str] = frozenset()
        self._assigned_names = registry.shown  # as of the last update of assignments
        self._groups_cache: tuple[Layout, int, list[Group]] | None = None
        self._readable_cache: tuple[Layout, int, Ints] | None = None
        self._has_share_groups = -1, False  # as of this version of kinds
        self._layout_kinds = -1
        self._layout_share_groups: frozenset[str] = frozenset()
        # The whole layout, what was to be shown, and what is shown of the layout.
        self._shown_layout: tuple[Layout, ShownNames, Layout] | None = None
        self._layout_names: tuple[Layout, frozenset[str]] | None = None

    @classmethod
    def from_state(cls, registry: Registry, state: State, *, seen_at_ms: int | None = None) -> Self:
        """A shard restored from `to_state`. The state must be of this `STATE_SCHEMA`.

        `seen_at_ms` is when all its commits had been read; None: as saved.
        """
        shard, facts, columns = cls(registry), state.facts, state.columns
        # Earlier versions of koff kept commits of impossible partitions.
        kept = columns["partition"] >= 0
        if not kept.all():
            plain = {name: columns[name][kept] for name in _PLAIN_COLUMNS}
            columns = {**select_saved_windows(columns, kept), **plain}
        group, topic, partition = columns["group"], columns["topic"], columns["partition"]
        shard.groups = GroupTable.from_state(facts["groups"], registry.impossible_counts)
        rows = shard._fill_rows(facts["group_names"], facts["topic_names"], group, topic, partition)
        for name in _SAVED:
            getattr(shard, name)[rows] = columns[name[1:]]
        if seen_at_ms is not None:
            shard._seen_at[rows] = seen_at_ms
        shard._windows.restore(rows, columns)
        return shard

    @classmethod
    def from_descriptions(
        cls,
        registry: Registry,
        commits: Commits,
        groups: Mapping[str, Described],
        *,
        seen_at_ms: int = UNKNOWN,
    ) -> Self:
        """A shard with the offsets and groups that coordinators returned; they were received at `seen_at_ms`.

        The responses have no commit timestamps, no earlier commits and no topic ids.
        """
        shard, commits = cls(registry), find_possible_commits(commits, registry.impossible_counts)[0]
        rows = shard._fill_rows(
            commits.groups, commits.topics, commits.group, commits.topic, commits.partition
        )
        shard._committed[rows] = commits.offset
        shard._committed_at[rows], shard._seen_at[rows] = UNKNOWN, seen_at_ms  # a topic id of 0 is unknown
        for name, group in groups.items():
            if registry.is_possible_key(name):
                shard.groups.put(name, group)
        shard._described = frozenset(groups)
        return shard

    def to_state(self) -> State:
        """A copy of the shard's state for `from_state`, but no commits from share state."""
        names, partitions = self._registry.names, self._registry.partitions
        rows = np.flatnonzero(self._live[: self._rows])
        rows = rows[~self._is_shared(rows)]
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

    def _is_shared(self, rows: Ints) -> NDArray[np.bool_]:
        """A mask of the rows of share groups whose commits are in no record of this partition."""
        shared = np.zeros(len(rows), np.bool_)
        if self._share_partition is not None:
            shared |= self._share_partition[rows] != NOT_SHARED
        # Coordinators have commits of share groups too. They come without a time.
        names = self._registry.names.groups
        groups = [names.assign_code(name) for name in self._rows_of_group if self.groups.is_share_group(name)]
        if groups:
            shared |= np.isin(self._group[rows], groups) & (self._committed_at[rows] == UNKNOWN)
        return shared

    def used_partitions(self) -> Ints:
        """The numbers of the topic partitions with a commit or a member. A number may repeat."""
        live = self._live[: self._rows]
        return np.concatenate([self._partition[: self._rows][live], self.assignments.numbers])

    def list_shown_partitions(self) -> tuple[Ints, Ints]:
        """The numbers of the topic partitions of the groups that are shown, and of those that are hidden."""
        live = self._live[: self._rows]
        group, partition = self._group[: self._rows][live], self._partition[: self._rows][live]
        names = self._registry.names.groups
        hidden = [names.assign_code(name) for name in self._hidden if name in self._rows_of_group]
        is_hidden, assigned = np.isin(group, hidden), self.assignments.numbers
        if self._registry.shown.are_all:
            return np.concatenate([partition[~is_hidden], assigned]), partition[is_hidden].astype(np.int64)
        # Groups and topics that are not to be shown
        codes, index = np.unique(group, return_inverse=True)
        groups = self._registry.shown.mask_groups([names.names[code] for code in codes.tolist()])
        is_hidden |= ~groups[index] | ~self._shows_partitions(partition)
        shows = self._shows_partitions(assigned)
        shown = np.concatenate([partition[~is_hidden], assigned[shows]])
        return shown, np.concatenate([partition[is_hidden].astype(np.int64), assigned[~shows]])

    def group_names(self) -> set[str]:
        """The names of all groups, with commits or without, shown or hidden."""
        if self._share_partition is None:
            return {*self._rows_of_group, *self.groups.names()}
        return set(self._names_in_layout())  # rows from share state alone make no group

    def list_groups(self) -> Iterator[Group]:
        """All groups that have more than commits, shown or hidden."""
        for name in self.groups.names():
            if (group := self.groups.get(name)) is not None:
                yield group

    def has_group(self, name: str) -> bool:
        """Whether the group has commits or a description here."""
        if self._share_partition is None:
            return name in self._rows_of_group or name in self.groups
        return name in self._names_in_layout()

    def _names_in_layout(self) -> frozenset[str]:
        layout = self._current_layout()
        if self._layout_names is None or self._layout_names[0] is not layout:
            self._layout_names = layout, frozenset(layout.names)
        return self._layout_names[1]

    @property
    def groups_changed(self) -> bool:
        """Whether `drain_group_changes` returns anything."""
        return bool(self._row_changes) or bool(self.groups.changes)

    def drain_group_changes(self) -> set[str] | None:
        """The groups that may have come or gone since the last call; None: any group may have."""
        rows, described = self._row_changes.drain(), self.groups.changes.drain()
        # Assignments follow from the same changes.
        if described is None:
            self.assignments.changes.note_all()
        else:
            self.assignments.changes.update(described)
        return None if rows is None or described is None else rows | described

    def hide_groups(self, names: frozenset[str]) -> None:
        """Leaves these groups out of snapshots from now on. Their state is kept."""
        if names != self._hidden:
            self.assignments.changes.update(names ^ self._hidden)
            self._hidden, self._shown_layout = names, None

    def update_assignments(self, topic_names: Mapping[str, str]) -> None:
        """Brings `assignments` up to date. The changes of groups must be drained before."""
        names = self._registry.shown
        if names is not self._assigned_names:
            self._assigned_names = names
            self.assignments.changes.note_all()
        self.assignments.update(
            self.groups, lambda name: name in self._hidden or not names.shows_group(name), topic_names
        )

    def apply(
        self,
        keys: BytesColumn,
        values: BytesColumn,
        *,
        seen_at_ms: int = UNKNOWN,
        is_live: bool = True,
        counted: bool = True,
    ) -> None:
        """Applies records in log order; see `Tracker.apply`.

        `counted` is False for records that are not from a log: `record_counts` leaves them out.
        """
        live_ms = seen_at_ms if is_live else UNKNOWN
        self._record_counts = self._registry.record_counts if counted else Counter()
        self._registry.forget_unused()  # before any name of this batch is looked up
        self._note_change()
        if len(keys) <= _FEW:
            last = NO_ROW
            for key, value in zip(keys, values, strict=True):
                row = self._apply_record(key, value, seen_at_ms, live_ms)
                last = last if row == NO_ROW else row
            if last != NO_ROW and live_ms != UNKNOWN:  # one commit of a small batch is enough
                self.skew.add(self._group.item(last), self._committed_at.item(last), live_ms)
            if last != NO_ROW:
                self._note_first_commits(np.array([last]))
            return
        # Find the row of each key. Keys that are not in the index need to be decoded.
        if isinstance(keys, Binary):
            hashes = keys.hash_rows()
        else:
            hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        rows = self._index.find(hashes)
        missing = np.flatnonzero(rows == NO_ROW)
        if missing.size:
            rows[missing] = self._apply_unindexed(missing, keys, values, hashes)
            # Keep the commits that have a row now.
            kept = np.flatnonzero(rows != NO_ROW)
            if kept.size != rows.size:
                rows, keys, values = rows[kept], _select_rows(keys, kept), _select_rows(values, kept)
        if rows.size:
            self._apply_commits(rows, keys, values, seen_at_ms, live_ms)
            self._note_first_commits(rows)

    def _note_first_commits(self, rows: Ints) -> None:
        """What coordinators described, and is not among the commits that follow, has not moved since then."""
        if self._described is not None and self._unmoved_since_ms == UNKNOWN:
            known = np.sort(self._committed_at[rows])
            known = known[known >= 0]
            if len(known):  # a few commits may have any time
                self._unmoved_since_ms = int(known[min(_DOUBTED, len(known) - 1)])

    def overwrite_commits(
        self,
        commits: Commits,
        groups: Mapping[str, Described] | None,
        failed: Collection[str],
        *,
        seen_at_ms: int,
        kept_topics: Collection[str],
    ) -> None:
        """Sets commits and groups to what coordinators answered now; see `Tracker.overwrite_commits`."""
        self._registry.forget_unused()  # before any name is looked up
        self._described, self._unmoved_since_ms, self._groups_cache = None, UNKNOWN, None
        self._overwrite_rows(commits, failed, seen_at_ms, kept_topics)
        if groups is not None:
            self._note_change()
            self.replace_groups(groups, keep=failed)

    def replace_groups(self, groups: Mapping[str, Described], *, keep: Collection[str] = ()) -> None:
        """Replaces the descriptions of all groups with these, but not those of the groups in `keep`."""
        possible = {name: group for name, group in groups.items() if self._registry.is_possible_key(name)}
        self.groups.replace_all(possible, keep=keep)

    def take_snapshot(self, time_lag: TimeLags | None = None, usual_skew_ms: int = 0) -> ShardSnapshot:
        """A copy of the state. `layout` is the same object for as long as rows and group names do not change.

        `time_lag` are the time lags of the rows of `list_commits`. `usual_skew_ms` is how far koff's clock is
        ahead of most brokers; it stands in for the skew of this partition's broker where that is not known.
        """
        layout, kept = self._find_shown_layout(), self._kept
        if kept is None or kept.layout is not layout:
            self._kept = kept = self._copy_columns(layout)
        return replace(
            kept,
            groups=self._list_shown_groups(layout),
            groups_whole=self._find_whole(layout),
            has_share_groups=self.has_share_groups,
            unmoved_since_ms=self._unmoved_since_ms,
            time_lag=time_lag,
            skew_ms=usual_skew_ms if (own := self.skew.measure_ms()) is None else own,
        )

    def _copy_columns(self, layout: Layout) -> ShardSnapshot:
        """A snapshot with all that stays the same until records are applied, and without groups."""
        live = layout.rows
        self._update_features(live)
        return ShardSnapshot(
            layout=layout,
            groups=[],
            commit_counts=self._list_commit_counts(layout.names),
            group=layout.group,
            partition=layout.partition,
            committed=self._committed[live],
            committed_at=self._committed_at[live],
            moved_at=np.where(self._committed_at[live] < 0, UNKNOWN, self._windows.moved_ms(live)),
            topic_id=self._topic_id[live],
            seen_at=self._seen_at[live],
            features=self._select_features(live),
            time_lag=None,
            share_partition=None if self._share_partition is None else self._share_partition[live],
            share_lag=self._select_share_lags(live),
        )

    def find_unread_rows(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The rows with a lag and no known first record: keys, partitions, offsets, and when these changed.

        Share groups are left out: the offset that stands for their commit is not a position in the log.
        """
        rows = self._find_readable_rows()
        partition, committed = self._partition[rows].astype(np.int64), self._committed[rows]
        records = self._first_records.get(rows, committed)
        unread = self._registry.partitions.is_unread(partition, committed, records)
        rows = rows[unread]
        return self._hash[rows], partition[unread], committed[unread], self._windows.moved_ms(rows)

    def list_commits(self) -> tuple[Ints, Ints, FirstRecords | None]:
        """The partitions and committed offsets of all rows that are shown, and their first records."""
        layout = self._find_shown_layout()
        committed = self._committed[layout.rows]
        return layout.partition.astype(np.int64), committed, self._first_records.get(layout.rows, committed)

    def _list_shown_groups(self, layout: Layout) -> list[Group]:
        """The groups of a layout: the same list until one of them changes, so nobody may modify it."""
        version = self.groups.changes.version
        if self._groups_cache is None or self._groups_cache[:2] != (layout, version):
            groups = [self.groups.get(name) or self._find_simple(name) for name in layout.names]
            self._groups_cache = layout, version, groups
        return self._groups_cache[2]

    def _find_simple(self, name: str) -> Group:
        """A group without a record of its own, as far as koff knows."""
        is_known = self._described is None or name in self._described
        return Group(name) if is_known else Group(name, state="Unknown")

    def _find_whole(self, layout: Layout) -> NDArray[np.bool_] | bool:
        """Which groups have all their rows. A group that was not described may have commits before that."""
        described = self._described
        return True if described is None else np.array([name in described for name in layout.names], np.bool_)

    def _find_readable_rows(self) -> Ints:
        """The rows of groups that are not share groups. Cached until rows or groups change."""
        # A group may become a share group, or cease to be one, under its name: then the layout is the same.
        layout, kinds = self._find_shown_layout(), self.groups.kinds_version
        if self._readable_cache is None or self._readable_cache[:2] != (layout, kinds):
            included = [not self.groups.is_share_group(name) for name in layout.names]
            self._readable_cache = layout, kinds, layout.rows[np.array(included, np.bool_)[layout.group]]
        return self._readable_cache[2]

    def _find_shown_layout(self) -> Layout:
        """The layout without the groups that are hidden, and with the names to be shown."""
        layout, names = self._current_layout(), self._registry.shown
        if not self._hidden and names.are_all:
            return layout
        kept = self._shown_layout
        if kept is None or kept[0] is not layout or kept[1] is not names:
            shown = layout.hide_groups(self._hidden)
            if not names.are_all:
                shown = shown.select(names.mask_groups(shown.names), self._shows_partitions(shown.partition))
            self._shown_layout = kept = layout, names, shown
        return kept[2]

    def _shows_partitions(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Which of the topic partitions with these numbers are of topics that are shown."""
        codes, index = np.unique(
            self._registry.partitions.codes_and_partitions(numbers)[0], return_inverse=True
        )
        topics = self._registry.names.topics.names
        return self._registry.shown.mask_topics([topics[code] for code in codes.tolist()])[index]

    def _current_layout(self) -> Layout:
        """The layout, built again if rows or described groups have changed."""
        # Rows that come or go clear the layout. Described groups change without it.
        layout, kinds = self._layout, self.groups.kinds_version
        if layout is not None and kinds != self._layout_kinds:
            # Which groups are share groups decides which rows from share state are shown.
            shares = self._find_share_groups()
            is_same = layout.described == self.groups.names() and self._layout_share_groups == shares
            layout = layout if is_same else None
        if layout is None:
            described, self._layout_share_groups = self.groups.names(), self._find_share_groups()
            live = self._select_existing(np.flatnonzero(self._live[: self._rows]))
            codes, group = np.unique(self._group[live], return_inverse=True)
            names = [self._registry.names.groups.names[code] for code in codes.tolist()]
            with_commits = set(names)
            names += [name for name in described if name not in with_commits]
            layout = Layout(described, live, names, group.astype(np.int32), self._partition[live])
        self._layout, self._layout_kinds = layout, kinds
        return layout

    @property
    def has_share_groups(self) -> bool:
        """Whether a group is known to be a share group."""
        kinds = self.groups.kinds_version
        if self._has_share_groups[0] != kinds:
            found = any(self.groups.is_share_group(name) for name in self.groups.names())
            self._has_share_groups = kinds, found
        return self._has_share_groups[1]

    def _find_share_groups(self) -> frozenset[str]:
        """The names of the share groups."""
        if not self.has_share_groups:
            return frozenset()
        return frozenset(name for name in self.groups.names() if self.groups.is_share_group(name))

    def _select_existing(self, rows: Ints) -> Ints:
        """The rows of groups as they exist: of share groups those from share state, of others all others.

        A share group exists as long as it has records in the offsets topic.
        """
        if self._share_partition is None and not self._layout_share_groups:
            return rows
        share_groups = list(map(self._registry.names.groups.assign_code, self._layout_share_groups))
        is_shared = False if self._share_partition is None else self._share_partition[rows] != NOT_SHARED
        kept: Ints = rows[np.isin(self._group[rows], share_groups) == is_shared]
        return kept

    def _apply_record(self, key: bytes | None, value: bytes | None, seen_at_ms: int, live_ms: int) -> int:
        """Applies one record, faster than numpy could. Returns the row of a commit, else NO_ROW."""
        message, hashed = decode(key, value), hash(key)
        record, row = message.record, self._index.get(hashed)
        if not isinstance(record, OffsetCommit):
            self._apply_group_record(message)
            return NO_ROW
        self._record_counts[_COMMIT] += 1
        key_names = record.group, record.topic
        if row == NO_ROW and not self._registry.is_possible_key(*key_names, partition=record.partition):
            return NO_ROW
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
            return NO_ROW
        # The first commit of a row makes the row.
        if row == NO_ROW:
            names = self._registry.names
            codes = names.groups.assign_code(record.group), names.topics.assign_code(record.topic)
            self._make_rows(np.array([hashed]), *np.array([[*codes, record.partition]], np.int32).T)
            row = self._index.get(hashed)
            self._live[row] = True
        if live_ms != UNKNOWN:
            self.commit_counts[record.group] = self.commit_counts.get(record.group, 0) + 1
        offset, at_ms = record.value.offset, record.value.commit_timestamp
        self._committed[row], self._committed_at[row] = offset, at_ms
        self._topic_id[row], self._seen_at[row] = fold_topic_id(record.value.topic_id), seen_at_ms
        if offset >= 0:
            partitions, number = self._registry.partitions, self._partition.item(row)
            lag = partitions.lag_at_commit(number, offset, live_ms)
            self._windows.add_one(row, offset, at_ms, lag)
            self._changed[row] = True
        return row

    def _apply_commits(
        self, rows: Ints, keys: BytesColumn, values: BytesColumn, seen_at_ms: int, live_ms: int
    ) -> None:
        """Applies commits and deletions to `rows` (N,). A row may repeat: its last record wins.

        This relies on numpy assigning repeated indexes in order.
        """
        # Decode the values. `kept` is False for tombstones.
        all_rows, (columns, kept) = rows, _decode_values(values)
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
        if live_ms != UNKNOWN:
            self._count_commits(rows[kept])
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
            self._add_to_windows(rows[in_window], offset[in_window], at_ms[in_window], live_ms)
            if live_ms != UNKNOWN:
                self.skew.add_batch(self._group[rows[in_window]], at_ms[in_window], live_ms)
        if bad.size or not kept.all():
            self._release_rows(all_rows)

    def _count_commits(self, rows: Ints) -> None:
        names, counts = self._registry.names.groups.names, self.commit_counts
        in_batch = np.bincount(self._group[rows])
        codes = np.flatnonzero(in_batch)
        for code, count in zip(codes.tolist(), in_batch[codes].tolist(), strict=True):
            name = names[code]
            counts[name] = counts.get(name, 0) + count

    def _list_commit_counts(self, names: list[str]) -> Ints:
        """How many commits of each of these groups were counted. Groups that are gone are forgotten."""
        if len(self.commit_counts) > 2 * len(names) + 100:
            kept = self.commit_counts.keys() & set(names)
            self.commit_counts = {name: self.commit_counts[name] for name in kept}
        return np.array([self.commit_counts.get(name, 0) for name in names], np.int64)

    def _clear_deleted(self, rows: Ints, deleted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Clears the windows of deleted rows. Returns which records follow the last deletion of their row."""
        distinct, numbers = np.unique(rows, return_inverse=True)
        last = np.full(len(distinct), -1)
        deletions = np.flatnonzero(deleted)
        last[numbers[deletions]] = deletions  # numpy assigns in order: the last deletion stays
        self._windows.clear(distinct[last >= 0])
        after: NDArray[np.bool_] = np.arange(len(rows)) > last[numbers]
        return after

    def _apply_unindexed(self, missing: Ints, keys: BytesColumn, values: BytesColumn, hashes: Ints) -> Ints:
        """Applies records whose keys are not in the index, except commits. Returns the rows of the commits.

        A row is NO_ROW where the record is not a commit, or deletes an offset that does not exist.
        """
        # Decode. Records about groups are applied here, in log order among themselves.
        batch_keys = _build_binary(_select_rows(keys, missing))
        batch_values = _build_binary(_select_rows(values, missing))
        columns = decode_columns(batch_keys, batch_values, names=self._registry.names)
        for message in columns.others.values():
            self._apply_group_record(message)
        rows = np.full(len(missing), NO_ROW, np.int64)
        # The hash of each commit's usual key. A key whose length is not the usual length is another encoding
        # (type 0, trailing bytes) of the usual key, and belongs to the same row.
        groups, topics = columns.groups, columns.topics
        usual_hashes = hashes[missing]
        group_size = self._registry.name_sizes("groups")[columns.group + 1]
        topic_size = self._registry.name_sizes("topics")[columns.topic + 1]
        possible = self._find_possible(columns, group_size, topic_size)
        commits = np.flatnonzero(possible)
        usual_size = 2 + 2 + group_size + 2 + topic_size + 4
        unusual = possible & ((columns.type != 1) | (batch_keys.lengths != usual_size))
        for i in np.flatnonzero(unusual).tolist():
            key = commit_key(groups[columns.group[i]], topics[columns.topic[i]], int(columns.partition[i]))
            usual_hashes[i] = hash(key)
        # Make rows for new commits. A tombstone without a row makes none.
        rows[commits] = self._index.find(usual_hashes[commits])
        new = commits[(rows[commits] == NO_ROW) & ~columns.tombstone[commits]]
        if new.size:
            self._make_rows(usual_hashes[new], columns.group[new], columns.topic[new], columns.partition[new])
        rows[commits] = self._index.find(usual_hashes[commits])
        # What has no row is impossible, or the tombstone of an offset that does not exist.
        if dropped := int((rows[columns.ok] == NO_ROW).sum()):
            self._record_counts[_COMMIT] += dropped
        return rows

    def _find_possible(self, columns: RecordColumns, group_size: Ints, topic_size: Ints) -> NDArray[np.bool_]:
        """A mask of the commits whose partition and names are possible. Counts the others."""
        named = (group_size != IMPOSSIBLE) & (topic_size != IMPOSSIBLE)
        possible: NDArray[np.bool_] = columns.ok & (columns.partition >= 0) & named
        if not np.array_equal(possible, columns.ok):
            counts, below = self._registry.impossible_counts, columns.ok & (columns.partition < 0)
            for what, where in ((PARTITION, below), (NAME, columns.ok & ~below & ~named)):
                if found := int(where.sum()):
                    counts[what] += found
        return possible

    def _apply_group_record(self, message: DecodedMessage) -> None:
        """Applies and counts a record that is not an offset commit."""
        record = message.record
        if isinstance(record, Undecodable | Unknown):
            self._record_counts[type(record).__name__] += 1
            return
        self._record_counts[type_name(record.type)] += 1
        if self._registry.is_possible_key(message.consumer):
            self.groups.apply(message)


def _select_rows(column: BytesColumn, rows: NDArray[np.intp]) -> BytesColumn:
    """The column of these rows."""
    if isinstance(column, Binary):
        return column.select_rows(rows)
    return [column[row] for row in rows.tolist()]


def _build_binary(column: BytesColumn) -> Binary:
    return column if isinstance(column, Binary) else Binary.from_values(column)


def _decode_values(values: BytesColumn) -> tuple[CommitValues, NDArray[np.bool_]]:
    """The decoded values, and which of them are not tombstones."""
    kept = np.ones(len(values), np.bool_)
    if isinstance(values, Binary):
        return decode_commit_values(values), kept if values.valid is None else values.valid
    if None in values:
        kept[:] = [value is not None for value in values]
        values = [value or b"" for value in values]
    return decode_commit_values(cast(Sequence[bytes], values)), kept
