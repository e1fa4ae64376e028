"""One offset of each of many partitions, from their leaders. Several duties request such offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from koff.monitor.means import Means
from koff.monitor.requests import OffsetKind, Request, Result, TopicPartition

CHUNK = 2_000
"""So many partitions in one request to a leader: the results come piece by piece."""


@dataclass(frozen=True, slots=True)
class OffsetsFetched(Result):
    """Some of the offsets of a request, or why they are unknown. -1: no record is that late.

    Partitions that are in none of the results of a request are unknown.
    """

    offsets: Mapping[TopicPartition, int | str]

    @property
    def failure(self) -> str:
        """The first error, if there are only errors."""
        errors = [offset for offset in self.offsets.values() if isinstance(offset, str)]
        return errors[0] if errors and len(errors) == len(self.offsets) else ""


@dataclass(frozen=True, slots=True)
class FetchOffsets(Request):
    """One offset of each of these partitions. Each leader has `OffsetsFetched` of its own."""

    metric = "offsets"
    kind: OffsetKind
    partitions: frozenset[TopicPartition]

    def carry_out(self, means: Means) -> Result | None:
        by_leader = means.leaders.split_by_leader(self.partitions)
        chunks = [[led[first : first + CHUNK] for first in range(0, len(led), CHUNK)] for led in by_leader]
        if not chunks:
            return OffsetsFetched(self.id, {})
        means.fetch_parts(chunks, partial(self._fetch, means), self._fail)
        return None

    def _fetch(self, means: Means, partitions: Sequence[Any]) -> OffsetsFetched:
        from koff.client.cluster_conf import Isolation, OffsetSpec
        from koff.errors import ConnectError

        specs: dict[OffsetKind, Any] = {"start": OffsetSpec.EARLIEST, "end": OffsetSpec.LATEST}
        spec = self.kind if isinstance(self.kind, int) else specs.get(self.kind, OffsetSpec.LATEST)
        isolation = Isolation.READ_COMMITTED if self.kind == "stable" else Isolation.READ_UNCOMMITTED
        timeout_s = means.timeout_s
        try:
            listed = means.lister.list_offsets(partitions, spec, isolation, timeout_s=timeout_s)
        except ConnectError as error:
            first = min(partitions)
            why = f"the leader of {first.topic}-{first.partition} does not respond: {error}"
            return self._fail(partitions, why)
        return OffsetsFetched(
            self.id, {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}
        )

    def _fail(self, partitions: Sequence[Any], why: str) -> OffsetsFetched:
        return OffsetsFetched(self.id, dict.fromkeys(partitions, why))
