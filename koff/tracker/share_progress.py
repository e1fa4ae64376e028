"""The progress of share groups: the replay of `__share_group_state` (docs/records-format.md 2).

A share partition is a group's view of one partition of a topic. All records below its start offset are done.
Of the records at or above it, a count of those that are done is kept; which these are is of no interest here.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from koff.lag import UNKNOWN
from koff.records import DecodedMessage, ShareSnapshot, ShareUpdate


class SharePartition(NamedTuple):
    """The progress of a share group in a partition. UNKNOWN: unknown, or not initialised yet.

    `delivery_complete_count` is the number of records at or above `start_offset` that are done.
    `write_timestamp_ms` is from the last snapshot record: update records have no timestamp.
    """

    group: str
    topic_id: str
    partition: int
    start_offset: int
    delivery_complete_count: int
    write_timestamp_ms: int = UNKNOWN


class ShareProgress:
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
            case ShareSnapshot(group_id=group, topic_id=topic_id, partition=partition, value=None):
                self._drop(group, topic_id, partition)
            case ShareSnapshot(group_id=group, topic_id=topic_id, partition=partition, value=value) if value:
                offsets = value.start_offset, value.delivery_complete_count
                self._put(SharePartition(group, topic_id, partition, *offsets, value.write_timestamp))
            # Updates have no tombstones. The snapshot of an update may have been removed from the log.
            case ShareUpdate(group_id=group, topic_id=topic_id, partition=partition, value=update) if update:
                before = self.get(group, topic_id, partition) or SharePartition(
                    group, topic_id, partition, UNKNOWN, UNKNOWN
                )
                # A start offset of -1 means "not changed". The count is always replaced, also by -1.
                start = before.start_offset if update.start_offset == UNKNOWN else update.start_offset
                count = update.delivery_complete_count
                self._put(before._replace(start_offset=start, delivery_complete_count=count))

    def get(self, group: str, topic_id: str, partition: int) -> SharePartition | None:
        """One share partition; None if there is none."""
        return self._groups.get(group, {}).get((topic_id, partition))

    def partitions_of(self, group: str) -> list[SharePartition]:
        """The group's share partitions, in no particular order."""
        return list(self._groups.get(group, {}).values())

    def rows(self) -> Iterator[SharePartition]:
        """Every share partition, in no particular order."""
        for partitions in self._groups.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def _put(self, row: SharePartition) -> None:
        # Equal names share their memory.
        row = row._replace(group=sys.intern(row.group), topic_id=sys.intern(row.topic_id))
        group = self._groups.setdefault(row.group, {})
        key = row.topic_id, row.partition
        self._topic_ids[row.topic_id] += key not in group
        group[key] = row

    def _drop(self, group: str, topic_id: str, partition: int) -> None:
        partitions = self._groups.get(group, {})
        if partitions.pop((topic_id, partition), None) is not None:
            self._topic_ids[topic_id] -= 1
            if not self._topic_ids[topic_id]:
                del self._topic_ids[topic_id]
        if not partitions:
            self._groups.pop(group, None)
