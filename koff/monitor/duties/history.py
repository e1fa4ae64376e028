"""History for partitions that started with the coordinators' response: commit times, windows, hidden groups.

One partition of the offsets topic after the other is read from its log start into a shard aside, up to the
position of the reader when that began. What the reader applies meanwhile is kept, and applied to that shard
too; then it takes the place of the tracker's.
"""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from koff.monitor.followed_log import FollowedLog
from koff.monitor.moment import Moment
from koff.monitor.outbox import NAMED, Outbox, Pending
from koff.monitor.requests import Request, Result
from koff.proto.buffers import Binary
from koff.tracker import Shard, Tracker
from koff.tracker.log_batch import BytesColumn

TIMEOUT_S, RETRY_S = 60.0, 5.0


@dataclass(frozen=True, slots=True)
class HistoryRead(Result):
    """Some records of `ReadHistory`, in log order. `final`: the reader has reached `until`."""

    keys: Sequence[bytes | None] | Binary
    values: Sequence[bytes | None] | Binary
    offsets: Sequence[int]
    position: int


@dataclass(frozen=True, slots=True)
class ReadHistory(Request):
    """Read a partition of an internal topic from its log start up to offset `until` (read_committed).

    It has one or several `HistoryRead`.
    """

    metric = "history"
    topic: str
    partition: int
    until: int


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
    """Reads the history of one partition after the other, as long as the log may be read."""

    def __init__(self, log: FollowedLog, tracker: Tracker, outbox: Outbox) -> None:
        self.replayed: Replayed | None = None
        self._log, self._tracker, self._outbox = log, tracker, outbox
        self._not_before_s = float("-inf")
        self._failed_s: dict[int, float] = {}  # when a partition could not be read last
        self._hidden_groups: set[str] = set()  # those that only the log showed

    @property
    def due_s(self) -> float:
        """When the next partition may be read; infinite while one is read, or if none has to be."""
        is_idle = self.replayed is not None or self._find_next() is None
        return float("inf") if is_idle else self._not_before_s

    def request(self, now: Moment) -> None:
        """Requests the history of the next partition, up to its position."""
        if self.replayed is not None or now.at_s < self._not_before_s:
            return
        number = self._find_next()
        if number is None:
            return
        part, shard, request_id = (
            self._log.partitions[number],
            self._tracker.create_shard(),
            self._outbox.next_id(),
        )
        self.replayed = Replayed(request_id, number, part.resets, part.position, part.seeded_at, shard)
        request = ReadHistory(request_id, self._log.topic, number, part.position)
        self._outbox.send(request, self, now, TIMEOUT_S)

    def _find_next(self) -> int | None:
        """A partition whose history can be read, and is needed. Those that failed come after the others."""
        if self._log.denied is not None:
            return None
        found = [
            number
            for number, part in self._log.partitions.items()
            if part.needs_history and part.is_reading and not part.is_waiting
            if number not in self._log.leaderless
        ]
        return min(found, key=lambda number: self._failed_s.get(number, float("-inf")), default=None)

    def note_applied(self, partition: int, keys: BytesColumn, values: BytesColumn) -> None:
        """Keeps records that the tracker has applied to that partition."""
        if self.replayed is not None and self.replayed.partition == partition:
            self.replayed.meanwhile.append((keys, values))

    def receive(self, given: HistoryRead, pending: Pending[ReadHistory], now: Moment) -> None:
        """Applies records to the shard aside. It replaces the tracker's once it has all that this has."""
        pending.deadline_s = now.at_s + TIMEOUT_S
        replayed = self.replayed
        if replayed is None or replayed.id != given.id:
            return
        # What the tracker has applied since the partition began, it has counted.
        cut = bisect_left(given.offsets, replayed.counted_from)
        for records, counted in ((slice(None, cut), True), (slice(cut, None), False)):
            if len(given.keys[records]):
                _apply(replayed.shard, given.keys[records], given.values[records], counted=counted)
        replayed.position = given.position
        if not given.final:
            return
        for keys, values in replayed.meanwhile:
            _apply(replayed.shard, keys, values, counted=False)
        self.replayed = None
        part, number = self._log.partitions.get(replayed.partition), replayed.partition
        if part is not None and part.resets == replayed.resets and not part.is_waiting:
            before = self._tracker.group_names(number)
            self._tracker.replace_shard(number, replayed.shard)
            self._hidden_groups |= self._tracker.group_names(number) - before
            part.needs_history = False
            self._report(now)

    def _report(self, now: Moment) -> None:
        """Adds an event once no partition lacks its history."""
        if any(part.needs_history for part in self._log.partitions.values()):
            return
        self._outbox.note(now, "backfilled")
        if self._hidden_groups:
            hidden, self._hidden_groups = sorted(self._hidden_groups), set()
            why = "the log has groups that the coordinators did not describe: may koff DESCRIBE all groups?"
            self._outbox.note(now, why, warn=True, count=len(hidden), groups=hidden[:NAMED])

    def give_up(self, pending: Pending[ReadHistory], why: str, now: Moment) -> None:
        """The partition could not be read. Another one, or the same, is read after a pause."""
        if self.replayed is not None and self.replayed.id == pending.request.id:
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
