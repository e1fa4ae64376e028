"""What the serving room is given to show, whichever engine runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from koff.tracker import Snapshot


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the numbers can be believed, and if not, why not yet."""

    ready: bool
    text: str


@dataclass(frozen=True, slots=True)
class MonitorStats:
    """What the reader did, and how well it is.

    Records by record name; `behind`: offsets yet to read; what open transactions hold back; how many offsets
    of history are yet to be read; the age of the end offsets (None before the first sample). Unless
    `lag_is_fresh`, no lag is to be shown.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    undecodable: int = 0
    behind: int | None = None
    held_back_records: int = 0
    held_back_s: float = 0.0
    backfill_remaining: int = 0
    end_offsets_age_s: float | None = None
    lag_is_fresh: bool = True
    up: bool = True


class View(Protocol):
    """One cluster as it is now. Every method may be called from any thread at any time."""

    @property
    def cluster(self) -> str:
        """The value of the label `cluster`; "" until it is known."""

    def snapshot(self) -> Snapshot:
        """All groups."""

    def readiness(self) -> Readiness:
        """For `/readyz`."""

    def reader_stats(self) -> MonitorStats:
        """For koff's own metrics."""
