"""Where a stream is in the log: an offset of Spark's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The next offset of each partition, in the log of one topic id.

    `leader_epochs` has the epoch of each partition's leader when it said that the log reaches that offset:
    with it, a log that was truncated below the offset is found out, also when it is as long again.
    """

    offsets: Mapping[int, int]
    topic_id: str = ""
    leader_epochs: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The position as Spark stores it; JSON has only texts as keys."""
        return {str(partition): offset for partition, offset in self.offsets.items()} | {
            "topic_id": self.topic_id,
            "leader_epochs": {str(partition): epoch for partition, epoch in self.leader_epochs.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LogPosition:
        """The position that `to_json` wrote."""
        return cls(
            {int(name): offset for name, offset in stored.items() if name.isdigit()},
            stored["topic_id"],
            {int(partition): epoch for partition, epoch in stored["leader_epochs"].items()},
        )
