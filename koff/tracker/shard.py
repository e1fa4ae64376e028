"""The state of one partition of `__consumer_offsets`: its groups, and a row for each committed offset.

All records of a group are in one partition, so a partition is rebuilt by replacing its `Shard`.

Offsets are kept apart from groups: only its own tombstone removes an offset (docs/records-format.md 4.3).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, FirstRecords, TimeLags, lacks_commit_time
from koff.tracker.assignments import AssignmentTable
from koff.tracker.clock_skew import ClockSkew
from koff.tracker.commit_columns import Commits, find_possible_commits
from koff.tracker.commit_rows import DESCRIBED, CommitRows
from koff.tracker.given_commits import overwrite_commits
from koff.tracker.groups import Described, Group, GroupTable
from koff.tracker.log_batch import BytesColumn, CommitCounts, LogBatch
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.row_layout import RowLayout, ShownRows
from koff.tracker.snapshot_columns import ShardSnapshot

_DOUBTED = 4
"""So many of the first commits may have a time that is long ago: any client may write any time."""


class SeededGroups:
    """The groups that coordinators described; None if the shard is not from their descriptions."""

    def __init__(self, described: Collection[str] | None = None) -> None:
        self._described = described
        self.unmoved_since_ms = UNKNOWN
        """Rows whose commit has no time have not moved since, if that is known."""

    def note_first_commits(self, applied: Ints, rows: CommitRows) -> None:
        """Described rows that are not among the `applied` rows have not moved since these commits."""
        if self._described is not None and self.unmoved_since_ms == UNKNOWN:
            committed_at = rows.committed_at[applied]
            known = np.sort(committed_at[committed_at >= 0])
            if len(known):  # a few commits may have any time
                self.unmoved_since_ms = int(known[min(_DOUBTED, len(known) - 1)])

    def build_simple(self, name: str) -> Group:
        """A group without a record of its own, as far as koff knows."""
        is_known = self._described is None or name in self._described
        return Group(name) if is_known else Group(name, state="Unknown")

    def find_whole(self, names: Sequence[str]) -> NDArray[np.bool_] | bool:
        """Which groups have all their rows. A group that was not described may have commits before that."""
        described = self._described
        return True if described is None else np.array([name in described for name in names], np.bool_)


class Shard:
    """The groups and rows of one partition of `__consumer_offsets`.

    Only the thread that uses the tracker may use its shards (see `Registry`).
    """

    def __init__(
        self, registry: Registry, groups: GroupTable | None = None, seed: SeededGroups | None = None
    ) -> None:
        self.rows = CommitRows(registry)
        self.groups = GroupTable(registry.impossible_counts) if groups is None else groups
        self.shown = ShownRows(registry, self.rows, self.groups)
        self.assignments = AssignmentTable(registry)
        self.skew = ClockSkew()
        self.commit_counts = CommitCounts()
        self._registry, self._seed = registry, seed or SeededGroups()
        registry.shards.add(self)
        self._assigned_names = registry.shown  # as of the last update of assignments
        self._list: tuple[RowLayout, int, list[Group]] | None = None
        # The last snapshot, and as of which change of the columns.
        self._kept: tuple[int, ShardSnapshot] | None = None

    def used_partitions(self) -> Ints:
        """The numbers of the topic partitions with a commit or a member. A number may repeat."""
        return np.concatenate([self.rows.partition[self.rows.list_live()], self.assignments.numbers])

    def used_groups(self) -> list[int]:
        """The codes of the groups with a commit in this shard."""
        return self.rows.used_groups()

    def list_groups(self) -> Iterator[Group]:
        """All groups that have more than commits, shown or hidden."""
        return filter(None, map(self.groups.get, self.groups.names()))

    # --- What changes ------------------------------------------------------------------------------------

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
        self._registry.forget_unused()  # before any name of this batch is looked up
        self.rows.note_change()
        batch = LogBatch(
            self._registry,
            self.rows,
            self.groups,
            self.skew,
            self.commit_counts,
            self._registry.record_counts if counted else Counter(),
            seen_at_ms,
            seen_at_ms if is_live else UNKNOWN,
        )
        self._seed.note_first_commits(batch.apply(keys, values), self.rows)

    def overwrite(
        self,
        commits: Commits,
        groups: Mapping[str, Described] | None,
        failed: Collection[str],
        *,
        seen_at_ms: int = UNKNOWN,
        kept_topics: Collection[str] = (),
    ) -> None:
        """Makes the state equal to the present response of the coordinators.

        Sets the committed offset of each row that differs, without a commit time, and not in the window of
        commits. Such a row has no rates, and no status while it is behind, until a commit with a time comes.
        Removes rows that the response does not have, and adds new ones. Groups in `failed` keep
        their rows and descriptions: the coordinators said nothing of them. `groups` replaces all other
        descriptions; None keeps them. Rows from share state stay as they are. So do rows of `kept_topics`
        that the response does not have: it leaves out topics that koff may not describe.
        """
        self._registry.forget_unused()  # before any name is looked up
        self._seed, self._list = SeededGroups(), None
        overwrite_commits(self.rows, commits, failed, seen_at_ms=seen_at_ms, kept_topics=kept_topics)
        if groups is not None:
            self.rows.note_change()
            self.replace_groups(groups, keep=failed)

    def replace_groups(self, groups: Mapping[str, Described], *, keep: Collection[str] = ()) -> None:
        """Replaces the descriptions of all groups with these, but not those of the groups in `keep`."""
        possible = {name: group for name, group in groups.items() if self._registry.is_possible_key(name)}
        self.groups.replace_all(possible, keep=keep)

    def inherit(self, before: "Shard") -> None:
        """Takes over what stays valid of an earlier shard of the same partition.

        First records that were read stay valid as long as the committed offset is the same.
        """
        self.skew, self.commit_counts = before.skew, before.commit_counts
        self.rows.note_first_records(*before.rows.list_first_records())
        self.rows.note_seen(*before.rows.list_seen())

    def hide_groups(self, names: frozenset[str]) -> None:
        """Leaves these groups out of snapshots from now on. Their state is kept."""
        if names != self.shown.hidden:
            self.assignments.changes.update(names ^ self.shown.hidden)
            self.shown.hidden = names

    # --- What follows from changes -----------------------------------------------------------------------

    @property
    def groups_changed(self) -> bool:
        """Whether `drain_group_changes` returns anything."""
        return bool(self.rows.changes) or bool(self.groups.changes)

    def drain_group_changes(self) -> set[str] | None:
        """The groups that may have come or gone since the last call; None: any group may have."""
        rows, described = self.rows.changes.drain(), self.groups.changes.drain()
        # Assignments follow from the same changes.
        if described is None:
            self.assignments.changes.note_all()
        else:
            self.assignments.changes.update(described)
        return None if rows is None or described is None else rows | described

    def update_assignments(self, topic_names: Mapping[str, str]) -> None:
        """Brings `assignments` up to date. The changes of groups must be drained before."""
        names, hidden = self._registry.shown, self.shown.hidden
        if names is not self._assigned_names:
            self._assigned_names = names
            self.assignments.changes.note_all()
        self.assignments.update(
            self.groups, lambda name: name in hidden or not names.shows_group(name), topic_names
        )

    # --- What is read ------------------------------------------------------------------------------------

    def list_commits(self) -> tuple[Ints, Ints, FirstRecords | None]:
        """The partitions and committed offsets of all rows that are shown, and their first records."""
        layout = self.shown.arrange_shown()
        committed = self.rows.committed[layout.rows]
        return layout.partition.astype(np.int64), committed, self.rows.find_first_records(layout.rows)

    def find_unread_rows(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The rows with a lag and no known first record: keys, partitions, offsets, and when these changed.

        Share groups are left out: the offset that stands for their commit is not a position in the log.
        """
        rows = self.shown.list_readable()
        partition, committed = self.rows.partition[rows].astype(np.int64), self.rows.committed[rows]
        records = self.rows.find_first_records(rows)
        unread = self._registry.partitions.is_unread(partition, committed, records)
        rows = rows[unread]
        return self.rows.hash[rows], partition[unread], committed[unread], self.rows.windows.moved_ms(rows)

    def take_snapshot(self, time_lag: TimeLags | None = None, usual_skew_ms: int = 0) -> ShardSnapshot:
        """A copy of the state. `layout` is the same object for as long as rows and group names do not change.

        `time_lag` are the time lags of the rows of `list_commits`. `usual_skew_ms` is how far koff's clock is
        ahead of most brokers; it stands in for the skew of this partition's broker where that is not known.
        """
        layout = self.shown.arrange_shown()
        if self._kept is None or self._kept[0] != self.rows.changed or self._kept[1].layout is not layout:
            self._kept = self.rows.changed, self._copy_columns(layout)
        return replace(
            self._kept[1],
            groups=self._list_shown_groups(layout),
            groups_whole=self._seed.find_whole(layout.names),
            has_share_groups=bool(self.shown.find_share_groups()),
            unmoved_since_ms=self._seed.unmoved_since_ms,
            time_lag=time_lag,
            skew_ms=usual_skew_ms if (own := self.skew.measure_ms()) is None else own,
        )

    def _copy_columns(self, layout: RowLayout) -> ShardSnapshot:
        """A snapshot with all that stays the same until records are applied, and without groups."""
        rows, live = self.rows, layout.rows
        committed, committed_at = rows.committed[live], rows.committed_at[live]
        share_partition, share_lag = rows.share_partition.get(live), rows.share_lag.get(live)
        if share_lag is not None:
            share_lag = np.where(share_partition == DESCRIBED, share_lag, UNKNOWN)
        # The window of a row lacks its newest commit, if that has no time.
        lacks_time = lacks_commit_time(committed=committed, committed_at_ms=committed_at)
        return ShardSnapshot(
            layout=layout,
            groups=[],
            commit_counts=self.commit_counts.list_by_name(layout.names),
            group=layout.group,
            partition=layout.partition,
            committed=committed,
            committed_at=committed_at,
            moved_at=np.where(committed_at < 0, UNKNOWN, rows.windows.moved_ms(live)),
            topic_id=rows.topic_id[live],
            seen_at=rows.seen_at[live],
            features=rows.features.update(rows.windows, live).empty_rows(lacks_time),
            time_lag=None,
            share_partition=share_partition,
            share_lag=share_lag,
        )

    def _list_shown_groups(self, layout: RowLayout) -> list[Group]:
        """The groups of a layout: the same list until one of them changes, so nobody may modify it."""
        version = self.groups.changes.version
        if self._list is None or self._list[:2] != (layout, version):
            groups = [self.groups.get(name) or self._seed.build_simple(name) for name in layout.names]
            self._list = layout, version, groups
        return self._list[2]


def build_shard(
    registry: Registry, commits: Commits, groups: Mapping[str, Described], *, seen_at_ms: int = UNKNOWN
) -> Shard:
    """A shard with the offsets and groups that coordinators returned; they were received at `seen_at_ms`.

    The responses have no commit timestamps, no earlier commits and no topic ids.
    """
    shard = Shard(registry, seed=SeededGroups(frozenset(groups)))
    commits = find_possible_commits(commits, registry.impossible_counts)[0]
    rows = shard.rows.fill(commits.groups, commits.topics, commits.group, commits.topic, commits.partition)
    shard.rows.committed[rows] = commits.offset
    shard.rows.committed_at[rows], shard.rows.seen_at[rows] = UNKNOWN, seen_at_ms
    for name, group in groups.items():
        if registry.is_possible_key(name):
            shard.groups.put(name, group)
    return shard


class Shards(dict[int, Shard]):
    """The shards by partition. `shards[number]` makes an empty shard where there is none."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def __missing__(self, number: int) -> Shard:
        shard = self[number] = Shard(self._registry)
        return shard
