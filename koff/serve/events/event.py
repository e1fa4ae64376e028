"""An event: something that changed in a cluster, and that people want to know."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Literal, Self, get_args

from koff.view.incidents import build_key
from koff.view.owners import Owner

Kind = Literal[
    "incident_opened",
    "incident_raised",
    "incident_closed",
    "group_appeared",
    "group_deleted",
    "rebalanced",
    "members_changed",
    "offsets_reset",
    "records_skipped",
    "records_lost",
    "ahead_of_log",
    "topic_left",
    "topic_deleted",
    "topic_recreated",
    "expected_group_absent",
    "expected_group_back",
    "blind",
    "recovered",
    "more_events",
    "incident_lasts",
    "summary",
]
NOTICE_KINDS = ("incident_lasts", "summary")
"""Kinds that only a webhook gets: a reminder, and one notice in place of several."""
KINDS: tuple[str, ...] = tuple(kind for kind in get_args(Kind) if kind not in NOTICE_KINDS)
INCIDENT_BEGINS = frozenset({"incident_opened", "incident_raised"})


class Severity(IntEnum):
    """How bad an event is."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @classmethod
    def parse(cls, text: str) -> Self:
        """The severity of that name. Raises `ValueError`."""
        try:
            return cls[text.upper()]
        except KeyError:
            raise ValueError("must be info, warning or error") from None

    def __str__(self) -> str:
        return self.name.lower()


def format_time(at_ms: int) -> str:
    """The time (ms since 1970) as RFC 3339."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event. docs/events.md has the kinds, and the `details` of each.

    `text` is a sentence for people. `group`, `topic` and `partition` are None where they do not apply. The
    event log sets `id` and `time` (RFC 3339, UTC).

    `owner` and `runbook_url` are those of the group, None without.

    Events of the same thing have the same `key`. One that ends it has in `ends` how bad the thing was.
    """

    cluster: str
    kind: Kind
    severity: Severity
    text: str
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    ends: Severity | None = None
    owner: Owner | None = None
    runbook_url: str | None = None
    id: str = ""
    time: str = ""

    @property
    def thing(self) -> str:
        """The key. That of an event of its own is made of what it says: two koffs give it the same."""
        digest = hashlib.sha256(self.text.encode(errors="replace")).hexdigest()[:12]
        return self.key or build_key(self.cluster, self.kind, self.group or "", digest)

    def reaches(self, least: Severity) -> bool:
        """Whether the event, or what it ends, is at least so severe."""
        return max(self.severity, self.ends or Severity.INFO) >= least

    def to_json(self) -> dict[str, Any]:
        owner = {"team": self.owner.team, "contact": self.owner.contact} if self.owner else None
        places = {"group": self.group, "topic": self.topic, "partition": self.partition}
        about = {**places, "owner": owner, "runbook_url": self.runbook_url}
        return {
            "id": self.id,
            "time": self.time,
            "cluster": self.cluster,
            "kind": self.kind,
            "severity": str(self.severity),
            "key": self.thing,
            "resolves": self.ends is not None,
            "text": self.text,
            **{name: value for name, value in about.items() if value is not None},
            "details": dict(self.details),
        }
