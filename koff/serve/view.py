"""What the serving room is given to show, whichever engine runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from koff.tracker import Snapshot


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the numbers can be believed, and if not, why not yet."""

    ready: bool
    text: str


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """What the reader did: records by record name (undecodable ones apart), and offsets yet to read."""

    records: Mapping[str, int]
    undecodable: int
    behind: int | None


class View(Protocol):
    """One cluster as it is now. Every method may be called from any thread at any time."""

    @property
    def cluster(self) -> str:
        """The value of the label `cluster`; "" until it is known."""

    def snapshot(self) -> Snapshot:
        """All groups."""

    def readiness(self) -> Readiness:
        """For `/readyz`."""

    def reader_stats(self) -> ReaderStats:
        """For koff's own metrics."""
