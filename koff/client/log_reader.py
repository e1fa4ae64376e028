"""`LogReader` reads partitions of one topic without a group, as columns, over koff's own connections.

Each leader has one connection with one request under way. Whatever happens to a leader, its partitions are
sought again: koff finds their leaders, and fetches from each where the epoch of the last record ended that
was read. If that is before the position, the log was truncated, and the partition is lost to the caller.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import NamedTuple

from koff.client.batches import Batches, RecordRun
from koff.client.calls import call_in_thread, get_result
from koff.client.closing import Closing
from koff.client.cluster_conf import TopicPartition
from koff.client.fetch_messages import FetchedPartition
from koff.client.foreign_errors import make_denied_error
from koff.client.leader_epochs import EpochEnd, fetch_epoch_ends
from koff.client.log_leader import LONG_AGO, LogLeader, LogPartition
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.pool import Address
from koff.errors import ConnectError, KoffError, LogInRefused, copy_error
from koff.logs import get_logger
from koff.proto.primitives import Malformed
from koff.proto.requests import error_name

log = get_logger("client.log_reader")

SEEK_S = 10.0
"""How long leaders are sought."""
FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 5.0
"""The pause before they are sought again. It doubles each time, until none was due for `MOST_PAUSE_S`."""
GONE_S = 5.0
"""A partition that brokers say for so long not to exist does not exist: the first may have old metadata."""
_POLL_S = 0.02
_ABSENT = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION"})
_OUT_OF_RANGE, _DENIED = "OFFSET_OUT_OF_RANGE", "TOPIC_AUTHORIZATION_FAILED"


class LogStart(NamedTuple):
    """Where to begin: an offset, and the leader epoch of the record before it, -1 if that is unknown.

    With the epoch, a log that was truncated since then is noticed. Records from `until` on are not wanted,
    although some may come.
    """

    offset: int
    leader_epoch: int = -1
    until: int = 1 << 63


class PartitionLost(NamedTuple):
    """A partition that cannot be read from its position. `gone`: the partition does not exist."""

    partition: int
    reason: str
    gone: bool = False


class LogEnd(NamedTuple):
    """The high watermark and the last stable offset that a leader returned.

    koff sent the request at `requested_s` or later (in the time of `time.monotonic`).
    """

    high_watermark: int
    last_stable_offset: int
    requested_s: float


@dataclass(slots=True)
class LogRead:
    """The result of one `LogReader.fetch`.

    `positions` has the next offset of each partition that was moved, or confirmed at its last stable offset.
    `ends` has the newest of each partition that its leader has returned. `lost` are not read any more.
    """

    runs: list[RecordRun] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    lost: list[PartitionLost] = field(default_factory=list)
    ends: dict[int, LogEnd] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.runs or self.positions or self.lost)


class LogReader(Closing):
    """Reads the committed records of partitions, from now on. A context manager, for one thread.

    `unreachable` is the error while no broker can be reached, and None otherwise. When all records were read,
    further ones may gather for `gather_s`: a response costs as much as hundreds of records. While a follower
    is read, the leader says every `ends_s` where the log ends.
    """

    def __init__(
        self, lister: OffsetLister, topic: str, *, gather_s: float = 0.0, ends_s: float = 2.0
    ) -> None:
        self.topic, self.unreachable, self._gather_s, self._ends_s = topic, None, gather_s, ends_s
        self._lister, self._rack = lister, lister.conf.properties.get("client.rack", "")
        self._partitions: dict[int, LogPartition] = {}
        self._leaders: dict[Address, LogLeader] = {}
        self._without_leader: set[int] = set()
        self._seeking: futures.Future[dict[TopicPartition, _Found]] | None = None
        self._sought: dict[int, LogPartition] = {}
        self._seek_due_s, self._pause_s = LONG_AGO, FIRST_PAUSE_S
        self._failure: KoffError | None = None

    unreachable: ConnectError | None

    @property
    def partitions(self) -> set[int]:
        """The partitions that are being read."""
        return set(self._partitions)

    def add(self, starts: Mapping[int, LogStart]) -> None:
        """Begins to read these partitions."""
        self.remove(starts)
        for partition, start in starts.items():
            self._partitions[partition] = LogPartition(*start)
        self._without_leader.update(starts)
        self._seek_due_s = LONG_AGO

    def remove(self, partitions: Iterable[int]) -> None:
        """Reads these partitions no more."""
        for partition in partitions:
            self._partitions.pop(partition, None)
            self._without_leader.discard(partition)
            for leader in self._leaders.values():
                leader.left.pop(partition, None)

    def close(self) -> None:
        """Closes the connections. Safe to call twice."""
        leaders, self._leaders = self._leaders, {}
        for leader in leaders.values():
            leader.close()

    def fetch(self, timeout_s: float) -> LogRead:
        """What comes next. Waits up to about `timeout_s`.

        Raises `Denied` if this user may not read the topic, `LogInRefused` if a log-in is refused, and
        `ConfigError` for properties that koff does not support.
        """
        self.check_process()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise copy_error(failure)
        read, until_s = LogRead(), time.monotonic() + timeout_s
        while True:
            self._seek(read)
            for leader in list(self._leaders.values()):
                self._guard(leader, leader.advance)
            ready = self._wait(0.0 if read else until_s - time.monotonic())
            now_s = time.monotonic()
            for leader in list(self._leaders.values()):
                if leader in ready:
                    self._receive(leader, read)
                elif leader.is_late(now_s):
                    self._note_failure(leader, ConnectError(f"{leader.name} does not respond in time"))
                elif leader.is_idle(now_s):
                    self._close(leader)
            if read or self._failure is not None or now_s >= until_s:
                break
        if self._failure is not None and not read:
            return self.fetch(0.0)
        return read

    # --- Leaders --------------------------------------------------------------------------------------------

    def _seek(self, read: LogRead) -> None:
        """Finds the leaders of partitions without one, in a thread: nothing else waits for that."""
        if self._seeking is not None and self._seeking.done():
            seeking, self._seeking = self._seeking, None
            self._settle(get_result(seeking), read)
        now_s = time.monotonic()
        if self._seeking is None and self._without_leader and now_s >= self._seek_due_s:
            if now_s >= self._seek_due_s + MOST_PAUSE_S:
                self._pause_s = FIRST_PAUSE_S
            self._sought = {number: self._partitions[number] for number in self._without_leader}
            epochs = {TopicPartition(self.topic, n): part.read_epoch for n, part in self._sought.items()}
            self._seeking = call_in_thread(_find_leaders, self._lister, epochs, now_s + SEEK_S)
            self._seek_due_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)

    def _settle(self, found: dict[TopicPartition, _Found], read: LogRead) -> None:
        """Begins to read from the leaders that were found."""
        for at, result in found.items():
            part = self._partitions.get(at.partition)
            if part is None or part is not self._sought.get(at.partition):
                continue  # it was removed, and perhaps added again
            if isinstance(result, EpochEnd):
                self._settle_partition(at.partition, part, result, read)
            else:
                self._settle_failure(at.partition, part, result, read)

    def _settle_partition(self, number: int, part: LogPartition, found: EpochEnd, read: LogRead) -> None:
        if part.read_epoch >= 0 and found.end_offset < part.position:
            why = f"truncated to {found.end_offset}" if found.end_offset >= 0 else "created again"
            self._lose(number, f"the log was {why}, and offset {part.position} was read next", read)
            return
        part.leader_epoch, part.absent_since_s = found.leader_epoch, None
        self._settle_at(found.address, number, part)
        self._without_leader.discard(number)

    def _settle_at(self, address: Address, number: int, part: LogPartition) -> None:
        if address not in self._leaders:
            self._leaders[address] = LogLeader(self._lister, address, self.topic, self._rack)
        self._leaders[address].left[number] = part
        part.is_behind = True

    def _settle_failure(self, number: int, part: LogPartition, why: str | KoffError, read: LogRead) -> None:
        if why in _ABSENT:
            now_s = time.monotonic()
            part.absent_since_s = now_s if part.absent_since_s is None else part.absent_since_s
            if now_s >= part.absent_since_s + GONE_S:
                self._lose(number, f"the partition does not exist: {why}", read, gone=True)
        elif why == _DENIED:
            self._failure = make_denied_error(self.topic, self._lister.conf.brokers, "READ")
        elif isinstance(why, KoffError):
            self._note_error(why)

    def _guard(self, leader: LogLeader, work: Callable[[], None]) -> None:
        try:
            work()
        except KoffError as error:
            self._note_failure(leader, error)

    def _note_failure(self, leader: LogLeader, error: KoffError) -> None:
        """Seeks the leaders of all partitions of this one again."""
        self._drop(leader)
        log.debug("a leader is sought again", topic=self.topic, leader=leader.name, why=str(error))
        self._note_error(error)

    def _note_error(self, error: KoffError) -> None:
        """One broker of several stops nothing, whatever it says."""
        if not isinstance(error, ConnectError | Malformed):
            self._failure = copy_error(error)
        elif not self._leaders:
            is_refused = isinstance(error, LogInRefused)
            self._failure = copy_error(error) if is_refused else self._failure
            self.unreachable = None if is_refused else ConnectError(str(error))

    def _drop(self, leader: LogLeader) -> None:
        self._leave(leader, list(leader.left))
        self._close(leader)

    def _leave(self, leader: LogLeader, partitions: Sequence[int]) -> None:
        """Seeks the leaders of these partitions again: this one does not lead them, or does not respond."""
        self._lister.doubt(TopicPartition(self.topic, number) for number in partitions)
        for number in partitions:
            part = leader.left.pop(number, None)
            if part is not None:
                part.leader = None
                self._without_leader.add(number)

    def _close(self, leader: LogLeader) -> None:
        self._leaders.pop(leader.address, None)
        leader.close()

    def _lose(self, partition: int, reason: str, read: LogRead, *, gone: bool = False) -> None:
        self.remove([partition])
        read.lost.append(PartitionLost(partition, reason, gone))

    # --- Records --------------------------------------------------------------------------------------------

    def _wait(self, timeout_s: float) -> list[LogLeader]:
        """The leaders from which a response, or an error, begins to come."""
        waiting = [leader for leader in self._leaders.values() if leader.is_waiting]
        others = [leader for leader in self._leaders.values() if not leader.is_waiting]
        if self._seeking is not None or others:
            due_s = min((leader.due_s for leader in others), default=LONG_AGO)
            due_s = LONG_AGO if self._seeking is not None else due_s
            timeout_s = min(timeout_s, max(_POLL_S, due_s - time.monotonic()))
        elif self._without_leader:
            timeout_s = min(timeout_s, self._seek_due_s - time.monotonic())
        timeout_s = max(0.0, timeout_s)
        if not waiting:
            time.sleep(timeout_s)
            return []
        poll = select.poll()  # not `select.select`, which knows the first 1,024 file descriptors only
        for leader in waiting:
            poll.register(leader.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
        return [leader for leader in waiting if leader.fileno() in ready]

    def _receive(self, leader: LogLeader, read: LogRead) -> None:
        """Reads a response, sends the next request, and decodes the response while the broker works."""
        moved: list[_Moved] = []

        def receive() -> None:
            for fetched in leader.receive():
                self._note(leader, fetched, moved, read)
            if moved and not any(part.is_behind for part in leader.left.values()):
                leader.pause(self._gather_s)
            leader.advance()

        self._guard(leader, receive)
        for each in moved:  # also after a failure: the positions have moved past these batches
            self._decode(each, read)

    def _note(self, leader: LogLeader, fetched: FetchedPartition, moved: list[_Moved], read: LogRead) -> None:
        """Moves the position past the batches of the response."""
        number, part = fetched.partition, leader.left[fetched.partition]
        match error_name(fetched.error_code):
            case "":
                pass
            case error if error == _OUT_OF_RANGE and part.leader is None:
                self._lose(number, f"offset {part.position} is not in the log: {error}", read)
                return
            case error if error == _DENIED:
                self._failure = make_denied_error(self.topic, self._lister.conf.brokers, "READ")
                self._leave(leader, [number])
                return
            case _:
                self._leave(leader, [number])
                return
        try:
            batches = _find_batches(fetched, part, leader.address)
        except Malformed as error:
            self._lose(number, f"records from offset {part.position} on: {error}", read)
            return
        self.unreachable = None
        if part.leader is None:  # a follower learns the high watermark later
            read.ends[number] = LogEnd(fetched.high_watermark, fetched.last_stable_offset, leader.requested_s)
        nearer = self._lister.find_address(fetched.preferred_read_replica)
        if nearer is not None and nearer != leader.address:
            part.leader, part.leader_due_s = leader.address, leader.requested_s + self._ends_s
            self._settle_at(nearer, number, leader.left.pop(number))
            return
        if batches is not None:
            moved.append(_Moved(batches, part))
            part.position, part.read_epoch = batches.next_offset, batches.leader_epoch
        elif part.position >= fetched.last_stable_offset:
            read.positions[number], part.is_confirmed = part.position, True
        # What a broker does not return although there is more is waited for, too: it is no reason to hurry.
        has_more = part.position < fetched.last_stable_offset
        part.is_behind = batches is not None and (has_more or not part.is_confirmed)
        part.is_first = batches is None and has_more
        if part.leader is not None and leader.requested_s >= part.leader_due_s:
            address, part.leader = part.leader, None
            self._settle_at(address, number, leader.left.pop(number))

    def _decode(self, moved: _Moved, read: LogRead) -> None:
        batches = moved.batches
        if self._partitions.get(batches.partition) is not moved.part:
            return  # it was removed meanwhile
        try:
            run = batches.decode()
        except KoffError as error:
            self._lose(batches.partition, f"records from offset {batches.position} on: {error}", read)
            return
        read.positions[batches.partition] = batches.next_offset
        if run is not None:
            read.runs.append(run)


class _Moved(NamedTuple):
    """Batches that were passed, and their partition as it was then."""

    batches: Batches
    part: LogPartition


_Found = EpochEnd | str | KoffError


def _find_batches(fetched: FetchedPartition, part: LogPartition, broker: Address) -> Batches | None:
    """The whole batches of the response; None if there are none, or they must come again.

    Raises `Malformed`.
    """
    if not fetched.records:
        return None
    batches = Batches.find(fetched.partition, fetched.records, part.position, fetched.aborted or ())
    if batches is None or batches.next_offset <= fetched.last_stable_offset:
        part.unstable = None
        return batches
    # A broker looks at the last stable offset before it reads. So batches beyond it may be newer: then it has
    # them when it looks again. Or they have a wrong offset, which no checksum covers.
    before, part.unstable = part.unstable, (broker, batches.next_offset)
    if before is not None and before[0] == broker and fetched.last_stable_offset < before[1]:
        raise Malformed("the batches end beyond the last stable offset")
    return None


def _find_leaders(
    lister: OffsetLister, epochs: Mapping[TopicPartition, int], deadline: float
) -> dict[TopicPartition, _Found]:
    """For each partition its leader, and where the epoch ended there; or why that is unknown."""

    def send(address: Address, part: list[TopicPartition]) -> Mapping[TopicPartition, _Found]:
        own = {at: epochs[at] for at in part}
        return fetch_epoch_ends(lister, address, own, deadline)

    return dict(lister.request_from_leaders(epochs, send, deadline))
