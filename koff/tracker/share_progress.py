"""The progress of share groups: the replay of `__share_group_state` (docs/records-format.md 2).

A share partition is a group's view of one partition of a topic. All records below its start offset are done.
Above it, batches hold the delivery state of the records that were delivered.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple, Self

from koff.errors import KoffError
from koff.records import DecodedMessage, ShareSnapshot, ShareUpdate, StateBatch

UNKNOWN = -1
SCHEMA = 1
"""The schema of `ShareState.to_state`. A state of another schema cannot be restored."""


class DeliveryBatch(NamedTuple):
    """The delivery state of the records from `first_offset` to `last_offset`, both included.

    `delivery_state` is 0 for available, 2 for acknowledged, 4 for archived (rejected, or out of attempts).
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class SharePartition:
    """The progress of a share group in a partition. -1 stands for unknown, or not initialised yet.

    `delivery_complete_count` is the number of records at or above `start_offset` that are done.
    `write_timestamp_ms` is from the last snapshot record: update records have no timestamp.
    """

    group: str
    topic_id: str
    partition: int
    start_offset: int
    delivery_complete_count: int
    leader_epoch: int
    state_epoch: int
    write_timestamp_ms: int
    batches: tuple[DeliveryBatch, ...]


class ShareState:
    """The share partitions in one or more partitions of `__share_group_state`."""

    __slots__ = ("_groups", "_topic_ids")

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], SharePartition]] = {}
        self._topic_ids: Counter[str] = Counter()

    def group_names(self) -> Collection[str]:
        """The groups with share partitions."""
        return self._groups.keys()

    @property
    def topic_ids(self) -> Collection[str]:
        """The topic ids of all share partitions."""
        return self._topic_ids.keys()

    def apply(self, message: DecodedMessage) -> None:
        """Applies the next record in log order. Ignores records that are not of that topic."""
        match message.record:
            case ShareSnapshot(value=None) as record:
                self._drop(record.group_id, record.topic_id, record.partition)
            case ShareSnapshot() as record:
                self._put(_partition_from_snapshot(record))
            case ShareUpdate(value=value) as record if value is not None:  # updates have no tombstones
                before = self.get(record.group_id, record.topic_id, record.partition)
                self._put(
                    _partition_from_update(record) if before is None else _update_partition(before, record)
                )

    def get(self, group: str, topic_id: str, partition: int) -> SharePartition | None:
        """One share partition; None if there is none."""
        return self._groups.get(group, {}).get((topic_id, partition))

    def partitions_of(self, group: str) -> list[SharePartition]:
        """The group's share partitions, in no particular order."""
        return list(self._groups.get(group, {}).values())

    def rows(self) -> Iterator[SharePartition]:
        """Every share partition, in no particular order. The objects are immutable: records replace them."""
        for partitions in self._groups.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def to_state(self) -> dict[str, Any]:
        """The state as lists, dicts, strings and numbers, for `from_state`."""
        rows = [[getattr(row, name) for name in _SCALARS] for row in self.rows()]
        batches = [[list(batch) for batch in row.batches] for row in self.rows()]
        return {"schema": SCHEMA, "rows": rows, "batches": batches}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The state restored from `to_state`. Raises `KoffError` if it is of another schema."""
        if state.get("schema") != SCHEMA:
            raise KoffError(
                f"saved share state has schema {state.get('schema')}, but this koff reads schema {SCHEMA}: "
                "do not restore it, read `__share_group_state` again"
            )
        restored = cls()
        for row, batches in zip(state["rows"], state["batches"], strict=True):
            fields = [*row, tuple(DeliveryBatch(*batch) for batch in batches)]
            restored._put(SharePartition(*fields))
        return restored

    def _put(self, row: SharePartition) -> None:
        group = self._groups.setdefault(sys.intern(row.group), {})
        key = sys.intern(row.topic_id), row.partition
        if key not in group:
            self._topic_ids[key[0]] += 1
        group[key] = row

    def _drop(self, group: str, topic_id: str, partition: int) -> None:
        partitions = self._groups.get(group, {})
        if partitions.pop((topic_id, partition), None) is not None:
            self._topic_ids[topic_id] -= 1
            if not self._topic_ids[topic_id]:
                del self._topic_ids[topic_id]
        if not partitions:
            self._groups.pop(group, None)


_SCALARS = tuple(name for name in SharePartition.__slots__ if name != "batches")
"""The fields in a saved row, in this order: do not reorder the fields of `SharePartition`."""


def merge_batches(batches: Iterable[DeliveryBatch], start_offset: int) -> tuple[DeliveryBatch, ...]:
    """The batches combined, from `start_offset` on (-1: all), in order, without overlaps.

    Where batches overlap, the higher delivery count wins, then the higher state, as in Kafka's
    `PersisterStateBatchCombiner`. Neighbours with equal count and state become one batch.
    """
    # Cut at the start offset, then find all offsets at which any batch begins or ends.
    pieces = sorted(
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batch in batches
        if batch.last_offset >= start_offset
    )
    edges = {piece.first_offset for piece in pieces} | {piece.last_offset + 1 for piece in pieces}
    # Sweep over the sections between the edges. The heap has the batches that begin at or before a section,
    # the winner first; batches that have ended are removed once they reach the top.
    combined: list[DeliveryBatch] = []
    active: list[tuple[int, int, int]] = []
    entered = 0
    for start, end in pairwise(sorted(edges)):
        while entered < len(pieces) and pieces[entered].first_offset <= start:
            piece = pieces[entered]
            # A min-heap: the negated count and state put the winner first.
            heappush(active, (-piece.delivery_count, -piece.delivery_state, piece.last_offset))
            entered += 1
        while active and active[0][2] < start:
            heappop(active)
        if active:
            _append_batch(combined, DeliveryBatch(start, end - 1, -active[0][1], -active[0][0]))
    return tuple(combined)


def _append_batch(batches: list[DeliveryBatch], batch: DeliveryBatch) -> None:
    """Appends the batch, or extends the last batch if both are neighbours with equal state and count."""
    if batches and batches[-1].last_offset + 1 == batch.first_offset and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(last_offset=batch.last_offset)
    else:
        batches.append(batch)


def _partition_from_snapshot(record: ShareSnapshot) -> SharePartition:
    value = record.value
    assert value is not None
    return SharePartition(
        sys.intern(record.group_id),
        sys.intern(record.topic_id),
        record.partition,
        value.start_offset,
        value.delivery_complete_count,
        value.leader_epoch,
        value.state_epoch,
        value.write_timestamp,
        _convert_batches(value.state_batches),
    )


def _partition_from_update(record: ShareUpdate) -> SharePartition:
    """The state from an update whose snapshot was removed from the front of the log."""
    value = record.value
    assert value is not None
    return SharePartition(
        sys.intern(record.group_id),
        sys.intern(record.topic_id),
        record.partition,
        value.start_offset,
        value.delivery_complete_count,
        value.leader_epoch,
        UNKNOWN,
        UNKNOWN,
        _convert_batches(value.state_batches),
    )


def _update_partition(before: SharePartition, record: ShareUpdate) -> SharePartition:
    """The state after an update. A start offset or leader epoch of -1 means "not changed"."""
    value = record.value
    assert value is not None
    start = before.start_offset if value.start_offset == UNKNOWN else value.start_offset
    return replace(
        before,
        start_offset=start,
        delivery_complete_count=value.delivery_complete_count,  # always replaced, also by -1
        leader_epoch=before.leader_epoch if value.leader_epoch == UNKNOWN else value.leader_epoch,
        batches=merge_batches((*before.batches, *_convert_batches(value.state_batches)), start),
    )


def _convert_batches(records: Iterable[StateBatch]) -> tuple[DeliveryBatch, ...]:
    return tuple(
        DeliveryBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in records
    )
