"""A batch of records of one partition of `__consumer_offsets`, applied to the rows and groups of a shard."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.proto.buffers import Binary
from koff.records import DecodedMessage, OffsetCommit, Undecodable, Unknown, decode, type_name
from koff.records.columns import RecordColumns, decode_columns
from koff.records.commit_values import CommitValues, decode_commit_values
from koff.tracker.clock_skew import ClockSkew
from koff.tracker.commit_keys import commit_key
from koff.tracker.commit_rows import CommitRows
from koff.tracker.groups import GroupTable
from koff.tracker.impossible import NAME, PARTITION
from koff.tracker.registry import IMPOSSIBLE, Registry
from koff.tracker.row_index import NO_ROW, Ints
from koff.tracker.topic_ids import fold_topic_id, fold_topic_ids


class CommitCounts(dict[str, int]):
    """The counts by group. Groups that are gone are forgotten once there are many of them."""

    def add(self, groups: NDArray[np.int32], names: Sequence[str]) -> None:
        """Counts one commit for each of these codes of groups, which are indexes into `names`."""
        in_batch = np.bincount(groups)
        codes = np.flatnonzero(in_batch)
        for code, count in zip(codes.tolist(), in_batch[codes].tolist(), strict=True):
            self[names[code]] = self.get(names[code], 0) + count

    def list_by_name(self, names: Sequence[str]) -> Ints:
        """The counts of these groups, which are all that there are."""
        if len(self) > 2 * len(names) + 100:
            for gone in self.keys() - set(names):
                del self[gone]
        return np.array([self.get(name, 0) for name in names], np.int64)


BytesColumn = Sequence[bytes | None] | Binary
"""The keys or the values of some records. A value that is None, or a null row, is a tombstone."""
_COMMIT = "OffsetCommit"
_FEW = 32
"""Up to this number of records, applying them one by one is faster than with numpy."""


@dataclass(slots=True)
class LogBatch:
    """Applies records in log order to the parts of a shard, and counts them by name in `record_counts`.

    The records were read at `seen_at_ms`; that is `live_ms` too, which is UNKNOWN for history.
    """

    registry: Registry
    rows: CommitRows
    groups: GroupTable
    skew: ClockSkew
    commit_counts: CommitCounts
    record_counts: Counter[str]
    seen_at_ms: int
    live_ms: int

    def apply(self, keys: BytesColumn, values: BytesColumn) -> Ints:
        """Applies the records. Returns the rows of their commits; of a small batch, only the last one."""
        if len(keys) <= _FEW:
            return self._apply_few(keys, values)
        # Find the row of each key. Keys that are not in the index need to be decoded.
        if isinstance(keys, Binary):
            hashes = keys.hash_rows()
        else:
            hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        rows = self.rows.index.find(hashes)
        missing = np.flatnonzero(rows == NO_ROW)
        if missing.size:
            rows[missing] = self._apply_unindexed(missing, keys, values, hashes)
            # Keep the commits that have a row now.
            kept = np.flatnonzero(rows != NO_ROW)
            if kept.size != rows.size:
                rows, keys, values = rows[kept], _select_rows(keys, kept), _select_rows(values, kept)
        if rows.size:
            self._apply_commits(rows, keys, values)
        return rows

    # --- One by one --------------------------------------------------------------------------------------

    def _apply_few(self, keys: BytesColumn, values: BytesColumn) -> Ints:
        last = NO_ROW
        for key, value in zip(keys, values, strict=True):
            row = self._apply_record(key, value)
            last = last if row == NO_ROW else row
        if last == NO_ROW:
            return np.zeros(0, np.int64)
        if self.live_ms != UNKNOWN:  # one commit of a small batch is enough
            self.skew.add(self.rows.group.item(last), self.rows.committed_at.item(last), self.live_ms)
        return np.array([last])

    def _apply_record(self, key: bytes | None, value: bytes | None) -> int:
        """Applies one record, faster than numpy could. Returns the row of a commit, else NO_ROW."""
        message, rows = decode(key, value), self.rows
        record = message.record
        if not isinstance(record, OffsetCommit):
            self._apply_group_record(message)
            return NO_ROW
        self.record_counts[_COMMIT] += 1
        hashed = hash(key)
        row = rows.index.get(hashed)
        if row == NO_ROW:
            if not self.registry.is_possible_key(record.group, record.topic, partition=record.partition):
                return NO_ROW
            # Another encoding of the key (type 0, trailing bytes) has the row of the usual encoding.
            usual_key = commit_key(record.group, record.topic, record.partition)
            if usual_key != key:
                hashed = hash(usual_key)
                row = rows.index.get(hashed)
        if record.value is None:  # a tombstone frees the row
            if row != NO_ROW:
                rows.live[row] = False
                rows.release(np.array([row]))
            return NO_ROW
        if row == NO_ROW:
            row = self._make_row(record, hashed)
        if self.live_ms != UNKNOWN:
            self.commit_counts[record.group] = self.commit_counts.get(record.group, 0) + 1
        offset, at_ms = record.value.offset, record.value.commit_timestamp
        rows.committed[row], rows.committed_at[row] = offset, at_ms
        rows.topic_id[row], rows.seen_at[row] = fold_topic_id(record.value.topic_id), self.seen_at_ms
        if offset >= 0:
            lag = self.registry.partitions.lag_at_commit(rows.partition.item(row), offset, self.live_ms)
            rows.windows.add_one(row, offset, at_ms, lag)
            rows.features.changed[row] = True
        return row

    def _make_row(self, record: OffsetCommit, hashed: int) -> int:
        names = self.registry.names
        codes = names.groups.assign_code(record.group), names.topics.assign_code(record.topic)
        self.rows.make(np.array([hashed]), *np.array([[*codes, record.partition]], np.int32).T)
        row = self.rows.index.get(hashed)
        self.rows.live[row] = True
        return row

    def _apply_group_record(self, message: DecodedMessage) -> None:
        """Applies and counts a record that is not an offset commit."""
        record = message.record
        if isinstance(record, Undecodable | Unknown):
            self.record_counts[type(record).__name__] += 1
            return
        self.record_counts[type_name(record.type)] += 1
        if self.registry.is_possible_key(message.consumer):
            self.groups.apply(message)

    # --- With numpy --------------------------------------------------------------------------------------

    def _apply_commits(self, rows: Ints, keys: BytesColumn, values: BytesColumn) -> None:
        """Applies commits and deletions to `rows` (N,). A row may repeat: its last record wins.

        This relies on numpy assigning repeated indexes in order.
        """
        table, all_rows, (columns, kept) = self.rows, rows, _decode_values(values)
        offset, at_ms = columns.offset, columns.commit_timestamp
        topic_id = (
            np.zeros(len(rows), np.int64) if columns.topic_id is None else fold_topic_ids(columns.topic_id)
        )
        offset[~kept] = UNKNOWN
        bad = np.flatnonzero(~columns.ok & kept)
        if bad.size:
            good = self._decode_one_by_one(bad, keys, values, (offset, at_ms, topic_id))
            rows, offset, at_ms, topic_id = (column[good] for column in (rows, offset, at_ms, topic_id))
            kept = kept[good]
        self.record_counts[_COMMIT] += len(rows)
        if self.live_ms != UNKNOWN:
            self.commit_counts.add(table.group[rows[kept]], self.registry.names.groups.names)
        # Set the columns, then the windows, then free the rows that ended up deleted.
        table.committed[rows], table.committed_at[rows] = offset, at_ms
        table.topic_id[rows], table.seen_at[rows] = topic_id, self.seen_at_ms
        if not table.live[rows].all():  # a row becomes live; `release` handles deleted rows
            table.arrangement += 1
        table.live[rows] = kept
        in_window = offset >= 0
        if not kept.all():
            in_window &= self._clear_deleted(rows, ~kept)
        if in_window.any():
            table.add_to_windows(rows[in_window], offset[in_window], at_ms[in_window], self.live_ms)
            if self.live_ms != UNKNOWN:
                self.skew.add_batch(table.group[rows[in_window]], at_ms[in_window], self.live_ms)
        if bad.size or not kept.all():
            table.release(all_rows)

    def _decode_one_by_one(
        self, bad: Ints, keys: BytesColumn, values: BytesColumn, columns: tuple[Ints, Ints, Ints]
    ) -> NDArray[np.bool_]:
        """Decodes the values that `decode_commit_values` does not handle, into the `columns` offset, commit
        time and topic id. Returns a mask of the records that can be decoded. Counts the others.
        """
        offset, at_ms, topic_id = columns
        good = np.ones(len(offset), np.bool_)
        for i in bad.tolist():
            record = decode(keys[i], values[i]).record
            if isinstance(record, OffsetCommit) and record.value is not None:
                offset[i], at_ms[i] = record.value.offset, record.value.commit_timestamp
                topic_id[i] = fold_topic_id(record.value.topic_id)
            else:
                good[i] = False
                self.record_counts[type(record).__name__] += 1
        return good

    def _clear_deleted(self, rows: Ints, deleted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Clears the windows of deleted rows. Returns which records follow the last deletion of their row."""
        distinct, numbers = np.unique(rows, return_inverse=True)
        last = np.full(len(distinct), -1)
        deletions = np.flatnonzero(deleted)
        last[numbers[deletions]] = deletions  # numpy assigns in order: the last deletion stays
        self.rows.windows.clear(distinct[last >= 0])
        after: NDArray[np.bool_] = np.arange(len(rows)) > last[numbers]
        return after

    def _apply_unindexed(self, missing: Ints, keys: BytesColumn, values: BytesColumn, hashes: Ints) -> Ints:
        """Applies records whose keys are not in the index, except commits. Returns the rows of the commits.

        A row is NO_ROW where the record is not a commit, or deletes an offset that does not exist.
        """
        # Decode. Records about groups are applied here, in log order among themselves.
        batch_keys = _build_binary(_select_rows(keys, missing))
        batch_values = _build_binary(_select_rows(values, missing))
        columns = decode_columns(batch_keys, batch_values, names=self.registry.names)
        for message in columns.others.values():
            self._apply_group_record(message)
        rows = np.full(len(missing), NO_ROW, np.int64)
        # The hash of each commit's usual key. A key whose length is not the usual length is another encoding
        # (type 0, trailing bytes) of the usual key, and belongs to the same row.
        groups, topics = columns.groups, columns.topics
        usual_hashes = hashes[missing]
        group_size = self.registry.name_sizes("groups")[columns.group + 1]
        topic_size = self.registry.name_sizes("topics")[columns.topic + 1]
        possible = self._find_possible(columns, group_size, topic_size)
        commits = np.flatnonzero(possible)
        usual_size = 2 + 2 + group_size + 2 + topic_size + 4
        unusual = possible & ((columns.type != 1) | (batch_keys.lengths != usual_size))
        for i in np.flatnonzero(unusual).tolist():
            key = commit_key(groups[columns.group[i]], topics[columns.topic[i]], int(columns.partition[i]))
            usual_hashes[i] = hash(key)
        # Make rows for new commits. A tombstone without a row makes none.
        rows[commits] = self.rows.index.find(usual_hashes[commits])
        new = commits[(rows[commits] == NO_ROW) & ~columns.tombstone[commits]]
        if new.size:
            self.rows.make(usual_hashes[new], columns.group[new], columns.topic[new], columns.partition[new])
        rows[commits] = self.rows.index.find(usual_hashes[commits])
        # A commit without a row is impossible, or the tombstone of an offset that does not exist.
        if dropped := int((rows[columns.ok] == NO_ROW).sum()):
            self.record_counts[_COMMIT] += dropped
        return rows

    def _find_possible(self, columns: RecordColumns, group_size: Ints, topic_size: Ints) -> NDArray[np.bool_]:
        """A mask of the commits whose partition and names are possible. Counts the others."""
        named = (group_size != IMPOSSIBLE) & (topic_size != IMPOSSIBLE)
        possible: NDArray[np.bool_] = columns.ok & (columns.partition >= 0) & named
        if not np.array_equal(possible, columns.ok):
            counts, below = self.registry.impossible_counts, columns.ok & (columns.partition < 0)
            for what, where in ((PARTITION, below), (NAME, columns.ok & ~below & ~named)):
                if found := int(where.sum()):
                    counts[what] += found
        return possible


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
