"""What a group did lately, from the records of its partition of the offsets topic."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from koff.records import (
    ConsumerGroupMetadata,
    DecodedMessage,
    GroupMetadata,
    OffsetCommit,
    ShareGroupMetadata,
    StreamsGroupMetadata,
)
from koff.view.wording import count, show

MOST_EVENTS = 20
"""So many events are kept, the newest."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Something that a record says. `timestamp_ms` is that of the record."""

    timestamp_ms: int
    text: str


@dataclass(slots=True)
class GroupHistory:
    """Follows the records of one group, in the order of the log."""

    commits: int = 0
    first_commit_ms: int | None = None
    last_commit_ms: int | None = None
    events: deque[HistoryEvent] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    _offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    _epoch: int | None = None

    def add(self, messages: Iterable[tuple[int, DecodedMessage]]) -> None:
        """Adds records of the group, each with its timestamp in ms."""
        for timestamp_ms, message in messages:
            match message.record:
                case OffsetCommit() as commit:
                    self._add_commit(timestamp_ms, commit)
                case GroupMetadata(value=value):
                    members = None if value is None else len(value.members)
                    self._add_epoch(timestamp_ms, "generation", value.generation if value else None, members)
                case (
                    ConsumerGroupMetadata(value=value)
                    | ShareGroupMetadata(value=value)
                    | StreamsGroupMetadata(value=value)
                ):
                    self._add_epoch(timestamp_ms, "epoch", value.epoch if value else None, None)

    def to_json(self) -> dict[str, Any]:
        return {
            "commits": self.commits,
            "first_commit_ms": self.first_commit_ms,
            "last_commit_ms": self.last_commit_ms,
            "events": [{"timestamp_ms": event.timestamp_ms, "text": event.text} for event in self.events],
        }

    def _add_commit(self, timestamp_ms: int, commit: OffsetCommit) -> None:
        place, name = (commit.topic, commit.partition), f"{show(commit.topic)}-{commit.partition}"
        before = self._offsets.pop(place, None)
        if commit.value is None:
            self.events.append(HistoryEvent(timestamp_ms, f"the committed offset of {name} was deleted"))
            return
        self.commits += 1
        if self.first_commit_ms is None:
            self.first_commit_ms = timestamp_ms
        self.last_commit_ms = timestamp_ms
        self._offsets[place] = offset = commit.value.offset
        if before is not None and offset < before:
            text = f"the committed offset of {name} went back from {before:,} to {offset:,}"
            self.events.append(HistoryEvent(timestamp_ms, text))

    def _add_epoch(self, timestamp_ms: int, word: str, epoch: int | None, members: int | None) -> None:
        before, self._epoch = self._epoch, epoch
        if epoch is None:
            self.events.append(HistoryEvent(timestamp_ms, "the group was deleted"))
        elif epoch != before:
            change = f"{word} {epoch}" if before is None else f"{word} {before} to {epoch}"
            present = "" if members is None else f", {count(members, 'member')}"
            self.events.append(HistoryEvent(timestamp_ms, f"rebalanced: {change}{present}"))
