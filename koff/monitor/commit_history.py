"""History for partitions that started with the coordinators' response: commit times, windows, hidden groups.

One partition of the offsets topic after the other is read from its log start into a shard aside, up to the
position of the reader when that began. What the reader applies meanwhile is kept, and applied to that shard
too; then it takes the place of the tracker's.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field

from koff.monitor.followed_partition import FollowedPartition
from koff.monitor.requests import HistoryRead, Moment, ReadHistory, Request
from koff.tracker import Shard
from koff.tracker.log_batch import BytesColumn

RETRY_S = 5.0


@dataclass(slots=True)
class Replayed:
    """A partition that is being read from its log start. `shard` has what was read."""

    id: int
    partition: int
    resets: int
    until: int
    counted_from: int
    shard: Shard
    position: int = -1
    meanwhile: list[tuple[BytesColumn, BytesColumn]] = field(default_factory=list)


class CommitHistory:
    """At most one partition is read at a time."""

    def __init__(self) -> None:
        self.replayed: Replayed | None = None
        self._not_before_s = float("-inf")
        self._failed_s: dict[int, float] = {}

    def failed_s(self, partition: int) -> float:
        """When that partition could not be read last: those that failed come after the others."""
        return self._failed_s.get(partition, float("-inf"))

    @property
    def due_s(self) -> float:
        """When the next partition may be read; infinite while one is read."""
        return self._not_before_s if self.replayed is None else float("inf")

    def is_free(self, now: Moment) -> bool:
        """Whether the next partition may be read."""
        return now.at_s >= self.due_s

    def begin(
        self, request_id: int, topic: str, partition: int, part: FollowedPartition, shard: Shard
    ) -> ReadHistory:
        """The request for a partition whose state is known up to its position."""
        self.replayed = Replayed(request_id, partition, part.resets, part.position, part.seeded_at, shard)
        return ReadHistory(request_id, topic, partition, part.position)

    def is_of(self, request: Request) -> bool:
        """Whether this is the request for the partition that is being read."""
        return (
            isinstance(request, ReadHistory) and self.replayed is not None and request.id == self.replayed.id
        )

    def note_applied(self, partition: int, keys: BytesColumn, values: BytesColumn) -> None:
        """Keeps records that the tracker has applied to that partition."""
        if self.replayed is not None and self.replayed.partition == partition:
            self.replayed.meanwhile.append((keys, values))

    def receive(self, given: HistoryRead) -> Replayed | None:
        """Applies records to the shard aside. Returns it once it has all that the tracker has applied."""
        replayed = self.replayed
        if replayed is None or replayed.id != given.id:
            return None
        # What the tracker has applied since the partition began, it has counted.
        cut = bisect_left(given.offsets, replayed.counted_from)
        for part, counted in ((slice(None, cut), True), (slice(cut, None), False)):
            if len(given.keys[part]):
                _apply(replayed.shard, given.keys[part], given.values[part], counted=counted)
        replayed.position = given.position
        if not given.final:
            return None
        for keys, values in replayed.meanwhile:
            _apply(replayed.shard, keys, values, counted=False)
        self.replayed = None
        return replayed

    def fail(self, now: Moment) -> None:
        """The partition could not be read. Another one, or the same, is read after a pause."""
        if self.replayed is not None:
            self._failed_s[self.replayed.partition] = now.at_s
        self.replayed, self._not_before_s = None, now.at_s + RETRY_S

    def forget(self, partition: int) -> None:
        """The partition is not what it was: what was read of it is of no use."""
        if self.replayed is not None and self.replayed.partition == partition:
            self.replayed = None


def _apply(shard: Shard, keys: BytesColumn, values: BytesColumn, *, counted: bool) -> None:
    """Applies records; if one of them makes that fail, one by one, without it."""
    try:
        shard.apply(keys, values, counted=counted)
    except Exception:  # any client may write any bytes; the core counts them when they are read live
        for key, value in zip(keys, values, strict=True):
            with suppress(Exception):
                shard.apply([key], [value], counted=counted)
