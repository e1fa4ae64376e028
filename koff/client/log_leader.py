"""The leader of some partitions that a `LogReader` reads, and its connection."""

import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field

from koff.client.calls import call_in_thread, get_result
from koff.client.fetch_messages import FETCH_VERSIONS, FetchedPartition, FetchResponse, encode_fetch
from koff.client.offsets.lister import OffsetLister
from koff.client.offsets.messages import choose_version
from koff.client.wire.connection import Connection
from koff.client.wire.pool import Address
from koff.errors import ConnectError
from koff.proto.requests import Api, error_name

PARTITION_BYTES = 1 << 20
"""The most bytes of one partition in a response, unless its first batch is larger."""
RESPONSE_BYTES = 1 << 20
"""The same for the whole response. Larger responses are slower to decode: they do not fit the CPU caches."""
LEAST_BYTES, RECORD_BYTES = 16 << 10, 160
"""The least that is requested of a partition, and the assumed size of a record, for those with an `until`."""
BEHIND_AT_ONCE = 4
"""So many partitions with more to read are requested at once, in turn. A long one fills the response."""
WAIT_MS = 500
"""How long a broker waits for a record, if there is none."""
FIRST_WAIT_MS, FIRST_S = 50, 2.0
"""The same in the first seconds of a partition: then `koff monitor` needs watermarks soon."""
RESPONSE_S = 5.0
"""A broker that does not respond, or cannot be connected to, within this time is given up."""
IDLE_S = 10.0
"""How long a connection is kept for which there is nothing to read."""
MOST_THROTTLE_S = 10.0
"""The longest that koff waits because a broker says that it sends too much. Quotas have windows of 11 s."""
LONG_AGO = float("-inf")


@dataclass(slots=True)
class LogPartition:
    """A partition that is read, and how far."""

    position: int
    read_epoch: int
    """The leader epoch of the last batch that was read."""
    until: int = 1 << 63
    leader_epoch: int = -1
    """The leader's epoch as metadata gave it."""
    is_behind: bool = True
    """Whether there is more to read, as far as is known."""
    is_first: bool = False
    """Whether it must be the first of a request: a broker returns a batch without room for it only there."""
    is_confirmed: bool = False
    """Whether a response has shown that there is nothing more to read."""
    unstable: tuple[Address, int] | None = None
    """A broker that has returned batches beyond the last stable offset, and where they ended."""
    added_s: float = field(default_factory=time.monotonic)
    absent_since_s: float | None = None
    leader: Address | None = None
    """The leader, while a follower in the same rack is read (KIP-392)."""
    leader_due_s: float = LONG_AGO
    """When the leader is due again."""


class LogLeader:
    """The partitions of one broker. It has at most one request under way."""

    def __init__(self, lister: OffsetLister, address: Address, topic: str, rack: str) -> None:
        self.address, self.name = address, f"Kafka at {address[0]}:{address[1]}"
        self.left: dict[int, LogPartition] = {}
        self._topic, self._rack = topic, rack
        self._connecting = call_in_thread(lambda: lister.brokers.connect(address, timeout_s=RESPONSE_S))
        self._connection: Connection | None = None
        self._response: Callable[[], FetchResponse] | None = None
        self._requested: dict[int, int] = {}
        """The offset that was requested of each partition."""
        self.requested_s = time.monotonic()
        """When the connection, or the newest response, was requested."""
        self.due_s = LONG_AGO
        """When the next request may be sent."""

    @property
    def is_waiting(self) -> bool:
        """Whether a response is under way."""
        return self._response is not None

    def is_late(self, now_s: float) -> bool:
        """Whether the broker has not responded in time."""
        is_due = self._connection is None or self.is_waiting
        return is_due and now_s >= self.requested_s + RESPONSE_S + WAIT_MS / 1000

    def is_idle(self, now_s: float) -> bool:
        """Whether there was nothing to read for `IDLE_S`."""
        return not self.left and not self.is_waiting and now_s >= self.requested_s + IDLE_S

    def fileno(self) -> int:
        """For `poll`."""
        assert self._connection is not None
        return self._connection.fileno()

    def close(self) -> None:
        """Closes the connection, also one that is not open yet."""
        self._response = None
        if self._connection is not None:
            self._connection.close()
        else:
            self._connecting.add_done_callback(_close_late)

    def advance(self) -> None:
        """Does what needs no waiting: uses the connection once it is open, and sends the next request."""
        if self._connection is None and self._connecting.done():
            self._connection = get_result(self._connecting)
            choose_version(self._connection, Api.FETCH, FETCH_VERSIONS)
        if self._connection is not None and self._response is None and time.monotonic() >= self.due_s:
            self._send(self._connection)

    def _send(self, connection: Connection) -> None:
        """Sends the next request. One for partitions that have no more to read lets the broker wait."""
        wanted = {number: part for number, part in self.left.items() if part.position < part.until}
        behind = [number for number, part in wanted.items() if part.is_behind][:BEHIND_AT_ONCE]
        # Those that have caught up come first: a long log must not take all of the room.
        chosen = [number for number, part in wanted.items() if not part.is_behind] + behind
        chosen.sort(key=lambda number: not wanted[number].is_first)
        if not chosen:
            return
        for number in behind:  # to the end: no partition may stand still for long
            self.left[number] = self.left.pop(number)
        positions = {n: (self.left[n].position, self.left[n].leader_epoch) for n in chosen}
        newest_s = max(wanted[number].added_s for number in chosen)
        wait_ms = WAIT_MS if time.monotonic() > newest_s + FIRST_S else FIRST_WAIT_MS
        longest = max(wanted[number].until - wanted[number].position for number in chosen)
        request = encode_fetch(
            {self._topic: positions},
            read_committed=True,
            partition_bytes=min(PARTITION_BYTES, max(LEAST_BYTES, RECORD_BYTES * longest)),
            response_bytes=RESPONSE_BYTES,
            wait_ms=0 if behind else wait_ms,
            rack=self._rack,
        )
        self._requested = {number: offset for number, (offset, _) in positions.items()}
        self.requested_s = time.monotonic()
        connection.deadline = self.requested_s + RESPONSE_S
        self._response = connection.post_request(request)

    def pause(self, seconds: float) -> None:
        """Sends the next request after that time."""
        self.due_s = max(self.due_s, time.monotonic() + seconds)

    def receive(self) -> list[FetchedPartition]:
        """The response: what it has of the partitions that are still read, at the positions it was for."""
        response, self._response = self._response, None
        assert response is not None
        assert self._connection is not None
        self._connection.deadline = time.monotonic() + RESPONSE_S
        fetched = response()
        self.pause(min(fetched.throttle_time_ms / 1000, MOST_THROTTLE_S))
        if fetched.error_code:
            raise ConnectError(error_name(fetched.error_code))
        requested, self._requested = self._requested, {}
        return [part for topic in fetched.topics for part in topic.partitions if self._is_of(part, requested)]

    def _is_of(self, part: FetchedPartition, requested: dict[int, int]) -> bool:
        """Whether this is the first response for the position of a partition that is still read."""
        offset, known = requested.pop(part.partition, None), self.left.get(part.partition)
        return offset is not None and known is not None and known.position == offset


def _close_late(connecting: futures.Future[Connection]) -> None:
    if connecting.exception() is None:
        connecting.result().close()
