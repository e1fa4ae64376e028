"""What share groups have read: the replay of `__share_group_state` (docs/records-format.md 2).

A share partition is a group's view of one partition of a topic. Below its start offset all is done; above
it, batches say what became of the records that were delivered.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple, Self

from koff.errors import KoffError
from koff.records import Message, ShareSnapshot, ShareUpdate, StateBatch

UNKNOWN = -1
SCHEMA = 1
"""Of what `to_state` gives. A state with another is of no use."""


class DeliveryBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both included.

    `delivery_state`: 0 available, 2 acknowledged, 4 archived (rejected, or out of attempts).
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class SharePartition:
    """What a share group has read of a partition. -1: not known, or not initialised yet.

    `delivery_complete_count` is how many records at or above `start_offset` are done. The write timestamp is
    that of the last snapshot: updates carry none.
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
    """The share partitions of one or more partitions of `__share_group_state`."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], SharePartition]] = {}

    def apply(self, message: Message) -> None:
        """Takes the next record in log order; leaves what is no record of that topic alone."""
        match message.record:
            case ShareSnapshot(value=None) as record:
                self._drop(record.group_id, record.topic_id, record.partition)
            case ShareSnapshot() as record:
                self._put(_snapshot(record))
            case ShareUpdate(value=value) as record if value is not None:
                before = self.get(record.group_id, record.topic_id, record.partition)
                self._put(_first(record) if before is None else _updated(before, record))

    def get(self, group: str, topic_id: str, partition: int) -> SharePartition | None:
        return self._groups.get(group, {}).get((topic_id, partition))

    def of(self, group: str) -> list[SharePartition]:
        """The group's share partitions, in no particular order."""
        return list(self._groups.get(group, {}).values())

    def rows(self) -> Iterator[SharePartition]:
        """Every share partition, in no particular order. Records make new rows, and change none."""
        for partitions in self._groups.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def to_state(self) -> dict[str, Any]:
        """All of it in lists, dicts, strings and numbers, for `from_state`."""
        rows = [[getattr(row, name) for name in _SCALARS] for row in self.rows()]
        batches = [[list(batch) for batch in row.batches] for row in self.rows()]
        return {"schema": SCHEMA, "rows": rows, "batches": batches}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The state that gave this one. Raises `KoffError` when another version of koff did."""
        if state.get("schema") != SCHEMA:
            raise KoffError(f"saved share state has schema {state.get('schema')}, this koff reads {SCHEMA}")
        made = cls()
        for row, batches in zip(state["rows"], state["batches"], strict=True):
            fields = [*row, tuple(DeliveryBatch(*batch) for batch in batches)]
            made._put(SharePartition(*fields))
        return made

    def _put(self, row: SharePartition) -> None:
        group = self._groups.setdefault(sys.intern(row.group), {})
        group[sys.intern(row.topic_id), row.partition] = row

    def _drop(self, group: str, topic_id: str, partition: int) -> None:
        partitions = self._groups.get(group, {})
        partitions.pop((topic_id, partition), None)
        if not partitions:
            self._groups.pop(group, None)


_SCALARS = tuple(name for name in SharePartition.__slots__ if name != "batches")


def merged(batches: Iterable[DeliveryBatch], start_offset: int) -> tuple[DeliveryBatch, ...]:
    """What the batches say together from `start_offset` on (-1: everywhere), in order, none overlapping.

    Of several about a record, the higher delivery count wins, then the higher state (Kafka's
    PersisterStateBatchCombiner). Neighbours that say the same are one.
    """
    pieces = sorted(
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batch in batches
        if batch.last_offset >= start_offset
    )
    edges = {each.first_offset for each in pieces} | {each.last_offset + 1 for each in pieces}
    found: list[DeliveryBatch] = []
    active: list[tuple[int, int, int]] = []
    entered = 0
    for at, following in pairwise(sorted(edges)):
        while entered < len(pieces) and pieces[entered].first_offset <= at:
            piece = pieces[entered]
            heappush(active, (-piece.delivery_count, -piece.delivery_state, piece.last_offset))
            entered += 1
        while active and active[0][2] < at:
            heappop(active)
        if active:
            _extend(found, DeliveryBatch(at, following - 1, -active[0][1], -active[0][0]))
    return tuple(found)


def _extend(found: list[DeliveryBatch], batch: DeliveryBatch) -> None:
    if found and found[-1].last_offset + 1 == batch.first_offset and found[-1][2:] == batch[2:]:
        found[-1] = found[-1]._replace(last_offset=batch.last_offset)
    else:
        found.append(batch)


def _snapshot(record: ShareSnapshot) -> SharePartition:
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
        _batches(value.state_batches),
    )


def _first(record: ShareUpdate) -> SharePartition:
    """The state when the log's front, with the snapshot that the update is of, is cut off."""
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
        _batches(value.state_batches),
    )


def _updated(before: SharePartition, record: ShareUpdate) -> SharePartition:
    value = record.value
    assert value is not None
    start = before.start_offset if value.start_offset == UNKNOWN else value.start_offset
    return replace(
        before,
        start_offset=start,
        delivery_complete_count=value.delivery_complete_count,
        leader_epoch=before.leader_epoch if value.leader_epoch == UNKNOWN else value.leader_epoch,
        batches=merged((*before.batches, *_batches(value.state_batches)), start),
    )


def _batches(records: Iterable[StateBatch]) -> tuple[DeliveryBatch, ...]:
    return tuple(
        DeliveryBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in records
    )
