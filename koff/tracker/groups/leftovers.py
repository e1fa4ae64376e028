"""What `tracker.grouptable` still builds on; it goes when that does."""

from __future__ import annotations

from koff.records import GroupMetadata, Message, Record
from koff.tracker.groups.classic import classic_group
from koff.tracker.groups.consumer import ConsumerGroup
from koff.tracker.groups.group import Group

GROUP_RECORDS = ConsumerGroup.records
"""The records that a `ConsumerState` is built from."""


class ConsumerState:
    """A consumer group, built up record by record."""

    def __init__(self) -> None:
        self._group = ConsumerGroup()

    def apply(self, record: Record) -> None:
        self._group.apply(record)

    def view(self, name: str) -> Group:
        return self._group.view(name)


def classic(message: Message) -> Group:
    """The group that a GroupMetadata value describes."""
    record = message.record
    assert isinstance(record, GroupMetadata)
    assert record.value is not None
    return classic_group(message.consumer, record.value)
