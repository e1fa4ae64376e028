"""What the server needs from an engine: from `koff monitor`, or from the Spark pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from koff.tracker import Snapshot


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the numbers may be trusted. `text` is the body of /readyz: "ready", or the reason why not."""

    ready: bool
    text: str


@dataclass(frozen=True, slots=True)
class MonitorStats:
    """The progress and the health of one cluster's monitor."""

    records: Mapping[str, int] = field(default_factory=dict)
    """How many records were read, by record type."""
    undecodable: int = 0
    """How many records could not be decoded."""
    behind: int | None = None
    """Offsets up to the last stable offsets that are not read yet. None: unknown."""
    held_back_records: int = 0
    """Offsets of the offsets topic behind open transactions: not shown yet."""
    held_back_s: float = 0.0
    """Age of the oldest of these records."""
    backfill_remaining: int = 0
    """Offsets of history that the backfill has not read yet."""
    end_offsets_age_s: float | None = None
    """None before the first sample."""
    lag_is_fresh: bool = True
    """If False, the server must not show lag, rates and status."""
    up: bool = True
    """Whether the cluster responds and lag is fresh."""


class View(Protocol):
    """The present state of one cluster. Any thread may call any method at any time."""

    @property
    def cluster(self) -> str:
        """The value of the label `cluster`; "" until it is known."""

    def snapshot(self) -> Snapshot:
        """All groups, with their offsets and lag."""

    def readiness(self) -> Readiness:
        """The response to `/readyz`."""

    def reader_stats(self) -> MonitorStats:
        """The numbers for koff's own metrics."""
