"""The state of one partition of `__consumer_offsets`: its groups, and a row for each of their commits.

A group lives in one partition, so rebuilding a partition is replacing its `Shard`. Rows are numpy columns;
a commit is found by the 64-bit hash that Python gives its key's bytes (keyed anew in each process: with a
million keys, two share one in one process of thirty million), so that a batch is applied without a step
per record in Python. Offsets are kept apart from groups: only its own tombstone removes one (docs/records-format.md 4.3).
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
from koff.records import Message, OffsetCommit, Undecodable, Unknown, decode, record_name
from koff.records.columns import decode_columns
from koff.records.commit_values import commit_values
from koff.tracker.commit_keys import commit_key, key_hashes
from koff.tracker.first_records import FirstRecordTable
from koff.tracker.groups import Described, Group, GroupTable
from koff.tracker.recent_commits import WindowTable
from koff.tracker.registry import Registry
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_of_each
from koff.tracker.saved_state import State, numbered, recoded
from koff.tracker.seeds import Commits
from koff.tracker.snapshot import ShardSnapshot
from koff.tracker.topic_partitions import fold, fold_text

Blobs = Sequence[bytes | None]
_COMMIT = "OffsetCommit"
_AT_ONCE = 8192
_FEW = 32
"""Up to so many records, one after the other is faster than all at once."""
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
"""Those of the columns that are not made of the others, of names, or of windows."""


class Shard:
    """Takes batches of records of one partition in log order; see the module's text."""

    def __init__(self, shared: Registry) -> None:
        self.groups = GroupTable()
        self._shared = shared
        shared.shards.add(self)
        self._seen = shared.seen
        self._index = RowIndex()
        self._rows = 0
        self._free: list[int] = []
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
        self._firsts = FirstRecordTable()
        self._chosen: tuple[_Layout, Callable[[str], bool], Ints] | None = None
        self._layout: _Layout | None = None
        self.version = next(shared.versions)
        """Another one whenever something was applied."""

    @classmethod
    def from_state(cls, shared: Registry, state: State) -> Self:
        """A shard that knows what the one knew which gave the state, of this `STATE_SCHEMA`."""
        shard, facts, columns = cls(shared), state.facts, state.columns
        group, topic, partition = columns["group"], columns["topic"], columns["partition"]
        shard.groups = GroupTable.from_state(facts["groups"])
        rows = shard._fill(facts["group_names"], facts["topic_names"], group, topic, partition)
        for name in _SAVED:
            getattr(shard, name)[rows] = columns[name[1:]]
        shard._windows.restore(rows, columns)
        return shard

    @classmethod
    def from_answers(cls, shared: Registry, commits: Commits, groups: Mapping[str, Described]) -> Self:
        """A shard that knows what coordinators said: no times of commits, no history, no topic ids."""
        shard = cls(shared)
        rows = shard._fill(commits.groups, commits.topics, commits.group, commits.topic, commits.partition)
        shard._committed[rows] = commits.offset
        shard._committed_at[rows] = shard._seen_at[rows] = UNKNOWN
        for name, group in groups.items():
            shard.groups.put(name, group)
        return shard

    def _fill(
        self,
        groups: Sequence[str],
        topics: Sequence[str],
        group: NDArray[np.int32],
        topic: NDArray[np.int32],
        partition: NDArray[np.int32],
    ) -> Ints:
        """Makes the rows of an empty shard; what is committed there is for the caller to say."""
        self._rows = len(group)
        self._grow()
        rows = np.arange(self._rows)
        self._hash[rows] = key_hashes(groups, topics, group, topic, partition)
        self._group[rows] = recoded(groups, group, self._shared.names.groups)
        codes = recoded(topics, topic, self._shared.names.topics)
        self._partition[rows] = self._shared.partitions.ids(codes, partition)
        self._live[rows] = self._changed[rows] = True
        self._index.add(self._hash[rows], rows)
        return rows

    def to_state(self, *, without: Collection[str] = ()) -> State:
        """All that the shard knows, but no commits of the groups `without`; later batches leave it alone."""
        names, partitions = self._shared.names, self._shared.partitions
        rows = np.flatnonzero(self._live[: self._rows])
        if without:
            left_out = [names.groups.code(name) for name in without]
            rows = rows[~np.isin(self._group[rows], left_out)]
        topic, partition = partitions.places(self._partition[rows])
        group_names, group = numbered(self._group[rows], names.groups)
        topic_names, topic = numbered(topic, names.topics)
        return State(
            {"groups": self.groups.to_state(), "group_names": group_names, "topic_names": topic_names},
            {"group": group, "topic": topic, "partition": partition}
            | {name[1:]: getattr(self, name)[rows] for name in _SAVED}
            | self._windows.save(rows),
        )

    def used_groups(self) -> list[int]:
        """The codes of the groups that have commits."""
        codes: list[int] = np.unique(self._group[: self._rows][self._live[: self._rows]]).tolist()
        return codes

    def used(self) -> Ints:
        """The numbers of the topic partitions that are committed to; one may come more than once."""
        live = self._live[: self._rows]
        return self._partition[: self._rows][live].astype(np.int64)

    def group_names(self) -> set[str]:
        """All groups that there are."""
        return set(self._laid_out().names)

    def apply(self, keys: Blobs, values: Blobs, *, seen_at_ms: int = UNKNOWN, counted: bool = True) -> None:
        """Applies records in log order; see `Tracker.apply`. Unless `counted`, they stand in no log."""
        self._seen = self._shared.seen if counted else Counter()
        self._shared.tidy()
        self.version = next(self._shared.versions)
        if len(keys) <= _FEW:
            for key, value in zip(keys, values, strict=True):
                self._apply_one(key, value, seen_at_ms)
            return
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        rows = self._index.find(hashes)
        missing = np.flatnonzero(rows == NO_ROW)
        if missing.size:
            rows[missing] = self._first_sight(missing, keys, values, hashes)
            at = np.flatnonzero(rows != NO_ROW)
            if at.size != rows.size:
                rows, places = rows[at], at.tolist()
                keys, values = [keys[i] for i in places], [values[i] for i in places]
        if rows.size:
            self._commit(rows, keys, values, seen_at_ms)

    def snapshot(self, now_ms: int | None = None) -> ShardSnapshot:
        """A copy that later batches leave alone. `layout` is the same object while rows and names are."""
        layout = self._laid_out()
        live = layout.rows
        self._look_at_windows(live)
        time_lag = None
        if now_ms is not None:
            partitions = self._shared.partitions
            committed = self._committed[live]
            records = self._firsts.get(live, committed)
            time_lag = partitions.time_lag(layout.partition.astype(np.int64), committed, now_ms, records)
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

    def unread(self, chosen: Callable[[str], bool]) -> tuple[Ints, Ints, Ints]:
        """The rows with a lag, of chosen groups, whose first record is not known: key, partition, committed.

        None of share groups: what stands for their commits is no place in the log.
        """
        rows = self._rows_of(chosen)
        partition, committed = self._partition[rows].astype(np.int64), self._committed[rows]
        records = self._firsts.get(rows, committed)
        left = self._shared.partitions.unread(partition, committed, records)
        return self._hash[rows][left], partition[left], committed[left]

    def _rows_of(self, chosen: Callable[[str], bool]) -> Ints:
        """The rows of chosen groups that are no share groups; worked out anew when rows come or go."""
        layout, groups = self._laid_out(), self.groups
        if self._chosen is None or self._chosen[:2] != (layout, chosen):
            wanted = [chosen(name) and not _shares(groups.get(name)) for name in layout.names]
            self._chosen = (layout, chosen, layout.rows[np.array(wanted, np.bool_)[layout.group]])
        return self._chosen[2]

    def firsts(self) -> tuple[Ints, Ints, FirstRecords]:
        """All that `note_firsts` was told and still counts."""
        rows = np.flatnonzero(self._live[: self._rows])
        committed = self._committed[rows]
        records = self._firsts.get(rows, committed)
        if records is None:
            none = np.zeros(0, np.int64)
            return none, none, FirstRecords(none, none)
        known = records.offset >= 0
        return self._hash[rows][known], committed[known], FirstRecords(*(each[known] for each in records))

    def note_firsts(self, keys: Ints, committed: Ints, records: FirstRecords) -> None:
        """Notes which record comes first after those commits of those rows, as far as these are here."""
        rows = self._index.find(keys)
        here = rows != NO_ROW
        found = FirstRecords(*(column[here] for column in records))
        self._firsts.put(rows[here], committed[here], found)

    def _look_at_windows(self, live: Ints) -> None:
        """Brings the features up to date of those windows that changed since the last snapshot."""
        changed = live[self._changed[live]]
        for start in range(0, len(changed), _AT_ONCE):
            rows = changed[start : start + _AT_ONCE]
            window = self._windows.get(rows)
            found = window_features(window.offset, window.time_ms, window.lag, window.count)
            self._first_s[rows], self._last_s[rows] = found.first_ms // 1000, found.last_ms // 1000
            self._commits[rows], self._marks[rows] = found.commits, found.marks
            self._consumed[rows] = found.consumed
        self._changed[changed] = False

    def _laid_out(self) -> _Layout:
        described = self.groups.names()
        if self._layout is None or self._layout.described != described:
            live = np.flatnonzero(self._live[: self._rows])
            codes, group = np.unique(self._group[live], return_inverse=True)
            names = [self._shared.names.groups.names[code] for code in codes.tolist()]
            known = set(names)
            names += [name for name in described if name not in known]
            self._layout = _Layout(described, live, names, group.astype(np.int32), self._partition[live])
        return self._layout

    def _apply_one(self, key: bytes | None, value: bytes | None, seen_at_ms: int) -> None:
        """Applies one record, in less time than numpy takes to begin."""
        message, hashed = decode(key, value), hash(key)
        record, row = message.record, self._index.get(hashed)
        if not isinstance(record, OffsetCommit):
            self._describe(message)
            return
        self._seen[_COMMIT] += 1
        if row == NO_ROW:
            own = commit_key(record.group, record.topic, record.partition)
            if own != key:
                hashed = hash(own)
                row = self._index.get(hashed)
        if record.value is None:
            if row != NO_ROW:
                self._live[row] = False
                self._release(np.array([row]))
            return
        if row == NO_ROW:
            names = self._shared.names
            codes = names.groups.code(record.group), names.topics.code(record.topic)
            self._make_rows(np.array([hashed]), *np.array([[*codes, record.partition]], np.int32).T)
            row = self._index.get(hashed)
            self._live[row] = True
        offset, at_ms = record.value.offset, record.value.commit_timestamp
        self._committed[row], self._committed_at[row] = offset, at_ms
        self._topic_id[row], self._seen_at[row] = fold_text(record.value.topic_id), seen_at_ms
        if offset >= 0:
            end = UNKNOWN if seen_at_ms == UNKNOWN else int(self._shared.partitions.end[self._partition[row]])
            self._windows.add_one(row, offset, at_ms, UNKNOWN if end < 0 else max(end - offset, 0))
            self._changed[row] = True

    def _commit(self, rows: Ints, keys: Blobs, values: Blobs, seen_at_ms: int) -> None:
        """Sets the rows to what the values say; the last of a row wins, as numpy assigns in order."""
        all_, kept = rows, np.ones(len(rows), np.bool_)
        if None in values:
            kept[:] = [value is not None for value in values]
            values = [value or b"" for value in values]
        columns = commit_values(cast(Sequence[bytes], values))
        offset, at_ms = columns.offset, columns.commit_timestamp
        topic_id = np.zeros(len(rows), np.int64) if columns.topic_id is None else fold(columns.topic_id)
        offset[~kept] = UNKNOWN
        bad = np.flatnonzero(~columns.ok & kept)
        if bad.size:
            good = np.ones(len(rows), np.bool_)
            for i in bad.tolist():
                record = decode(keys[i], values[i]).record
                if isinstance(record, OffsetCommit) and record.value is not None:
                    offset[i], at_ms[i] = record.value.offset, record.value.commit_timestamp
                    topic_id[i] = fold_text(record.value.topic_id)
                else:
                    good[i] = False
                    self._seen[type(record).__name__] += 1
            rows, kept, offset, at_ms = rows[good], kept[good], offset[good], at_ms[good]
            topic_id = topic_id[good]
        self._seen[_COMMIT] += len(rows)
        self._committed[rows], self._committed_at[rows] = offset, at_ms
        self._topic_id[rows], self._seen_at[rows] = topic_id, seen_at_ms
        if not self._live[rows].all():
            self._layout = None
        self._live[rows] = kept
        noted = offset >= 0
        if not kept.all():
            noted &= self._after_deletion(rows, ~kept)
        if noted.any():
            self._note(rows[noted], offset[noted], at_ms[noted], live=seen_at_ms != UNKNOWN)
        if bad.size or not kept.all():
            self._release(all_)

    def _after_deletion(self, rows: Ints, deleted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which records come after the last deletion of their row, if any; it ends what the row was."""
        distinct, numbers = np.unique(rows, return_inverse=True)
        last = np.full(len(distinct), -1)
        at = np.flatnonzero(deleted)
        last[numbers[at]] = at  # in order: the last stays
        self._windows.clear(distinct[last >= 0])
        after: NDArray[np.bool_] = np.arange(len(rows)) > last[numbers]
        return after

    def _note(self, rows: Ints, offset: Ints, at_ms: Ints, *, live: bool) -> None:
        """Adds commits to the rows' windows, with the lag that they left."""
        lag = np.full(len(rows), UNKNOWN, np.int64)
        if live:
            end = self._shared.partitions.end[self._partition[rows]]
            lag = np.where(end >= 0, np.maximum(end - offset, 0), UNKNOWN)
        self._windows.add(rows, offset, at_ms, lag)
        self._changed[rows] = True

    def _first_sight(self, missing: Ints, keys: Blobs, values: Blobs, hashes: Ints) -> Ints:
        """Rows for the commits among records whose keys are not in the index; applies all other records."""
        places = missing.tolist()
        batch_keys = Binary.of([keys[i] for i in places])
        columns = decode_columns(batch_keys, Binary.of([values[i] for i in places]), names=self._shared.names)
        for message in columns.others.values():
            self._describe(message)
        found = np.full(len(places), NO_ROW, np.int64)
        ours = np.flatnonzero(columns.ok)
        groups, topics = columns.groups, columns.topics
        own = hashes[missing]
        group_size, topic_size = self._shared.sizes("groups"), self._shared.sizes("topics")
        usual = 2 + 2 + group_size[columns.group + 1] + 2 + topic_size[columns.topic + 1] + 4
        odd = columns.ok & ((columns.type != 1) | (batch_keys.lengths != usual))
        for i in np.flatnonzero(odd).tolist():  # type 0, trailing bytes: another spelling of the same row
            key = commit_key(groups[columns.group[i]], topics[columns.topic[i]], int(columns.partition[i]))
            own[i] = hash(key)
        found[ours] = self._index.find(own[ours])
        new = ours[(found[ours] == NO_ROW) & ~columns.tombstone[ours]]
        if new.size:
            self._make_rows(own[new], columns.group[new], columns.topic[new], columns.partition[new])
        found[ours] = self._index.find(own[ours])
        if dropped := int((found[ours] == NO_ROW).sum()):  # deletions of what never was
            self._seen[_COMMIT] += dropped
        return found

    def _make_rows(
        self,
        hashes: Ints,
        groups: NDArray[np.int32],
        topics: NDArray[np.int32],
        partitions: NDArray[np.int32],
    ) -> None:
        first = first_of_each(hashes)
        hashes, count = hashes[first], len(first)
        used = [self._free.pop() for _ in range(min(count, len(self._free)))]
        rows = np.array([*used, *range(self._rows, self._rows + count - len(used))], np.int64)
        self._rows += count - len(used)
        self._grow()
        self._hash[rows] = hashes
        self._group[rows] = groups[first]
        self._partition[rows] = self._shared.partitions.ids(topics[first], partitions[first])
        self._committed[rows] = UNKNOWN
        self._live[rows] = False
        self._windows.clear(rows)
        self._firsts.clear(rows)
        self._changed[rows] = True
        self._index.add(hashes, rows)
        self._layout = None

    def _release(self, rows: Ints) -> None:
        """Frees those of the rows that ended up deleted, or never came to be."""
        rows = np.unique(rows[~self._live[rows]])
        rows = rows[self._index.find(self._hash[rows]) == rows]
        if rows.size:
            self._index.remove(self._hash[rows])
            self._free.extend(rows.tolist())
            self._layout = None

    def _describe(self, message: Message) -> None:
        """Applies and counts a record that is not a commit."""
        record = message.record
        if isinstance(record, Undecodable | Unknown):
            self._seen[type(record).__name__] += 1
            return
        self._seen[record_name(record.type)] += 1
        self.groups.apply(message)

    def _grow(self) -> None:
        size = len(self._hash)
        if size >= self._rows:
            return
        size = max(self._rows, size + size // 8 + 16)
        for name in _COLUMNS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(size - len(old), old.dtype)]))
        self._windows.resize(size)


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Which rows are live, and whose: the same until one comes or goes."""

    described: list[str]
    rows: Ints
    names: list[str]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]


def _shares(group: Group | None) -> bool:
    return group is not None and group.type == "share"
