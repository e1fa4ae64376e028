"""`HistoryFetch` reads partitions of a topic up to given offsets, over koff's own connections.

It is for the usual case only. Whatever is not usual ends it for the partitions that are concerned, each at
its position: a leader that has changed or does not respond, an error, an aborted transaction, damaged
bytes, a codec that is not installed. The caller reads on there with a `Feed`, which knows what to do.
"""

from __future__ import annotations

import select
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import NamedTuple

from koff.client import fetch_messages
from koff.client.calls import call_in_thread, get_result
from koff.client.closing import Closing
from koff.client.fetch_messages import FETCH_VERSIONS, FetchedPartition, FetchResponse, encode_fetch
from koff.client.history.batches import Batches, RecordRun
from koff.client.offsets.lister import OffsetLister
from koff.client.offsets.messages import choose_version
from koff.client.wire.connection import Connection
from koff.client.wire.pool import Address
from koff.errors import ConnectError, KoffError
from koff.logs import get_logger
from koff.proto.primitives import Malformed
from koff.proto.requests import Api, error_name

log = get_logger("client.history")

RESPONSE_S = 5.0
"""A broker that does not respond, or cannot be connected to, within this time is given up."""
PARTITIONS = 4
"""So many partitions are requested at once, in turn. Short logs share a response; a long one fills it."""
_CONNECTING_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """Where the history of a partition begins, and the offset up to which it is wanted."""

    offset: int
    until: int


@dataclass(slots=True)
class HistoryFetched:
    """The result of one `HistoryFetch.fetch`.

    `positions` has the next offset of each partition that moved. `ended` has the partitions that are not read
    any more, with the next offset and the leader epoch of the last batch before it, -1 if there is none.
    """

    runs: list[RecordRun] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    ended: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    position: int
    until: int
    leader_epoch: int
    """The leader's epoch as metadata gave it."""
    read_epoch: int = -1
    """The leader epoch of the last batch that was read."""


class HistoryFetch(Closing):
    """Reads the committed records of partitions. A context manager, for one thread.

    `lister` knows the leaders: it must have listed offsets of the partitions before.
    """

    def __init__(self, lister: OffsetLister, topic: str) -> None:
        self.topic = topic
        self._lister = lister
        self._leaders: dict[Address, _Leader] = {}

    @property
    def partitions(self) -> set[int]:
        """The partitions that are being read."""
        return {partition for leader in self._leaders.values() for partition in leader.left}

    def add(self, starts: Mapping[int, HistoryStart]) -> set[int]:
        """Begins to read these partitions. Returns those that it reads: the leaders of others are unknown."""
        addresses = self._lister.find_leader_addresses(self.topic)
        added: dict[Address, dict[int, _Partition]] = defaultdict(dict)
        for partition, start in starts.items():
            if partition in addresses:
                address, epoch = addresses[partition]
                added[address][partition] = _Partition(start.offset, start.until, epoch)
        for address, partitions in added.items():
            if address not in self._leaders:
                self._leaders[address] = _Leader(self._lister, address, self.topic)
            self._leaders[address].left |= partitions
        return {partition for partitions in added.values() for partition in partitions}

    def remove(self, partitions: Iterable[int]) -> None:
        """Reads these partitions no more."""
        for partition in partitions:
            for leader in self._leaders.values():
                leader.left.pop(partition, None)

    def close(self) -> None:
        """Closes the connections. Safe to call twice."""
        leaders, self._leaders = self._leaders, {}
        for leader in leaders.values():
            leader.close()

    def fetch(self, timeout_s: float) -> HistoryFetched:
        """The next records. Waits up to about `timeout_s` for a response, or `RESPONSE_S` for its rest."""
        fetched = HistoryFetched()
        leaders = list(self._leaders.values())
        for leader in leaders:
            leader.advance(fetched)
        waiting = [leader for leader in leaders if leader.is_waiting]
        ready: list[_Leader] = []
        if waiting:
            ready = _poll(waiting, 0.0 if fetched.ended else timeout_s)
        elif leaders and not fetched.ended:
            time.sleep(min(timeout_s, _CONNECTING_POLL_S))
        # Before the responses are read, which takes time: others may come meanwhile.
        for leader in leaders:
            if leader not in ready:
                leader.check_late(fetched)
        for leader in ready:
            leader.receive(fetched)
        for address in [address for address, leader in self._leaders.items() if not leader.left]:
            self._leaders.pop(address).close()
        return fetched


class _Moved(NamedTuple):
    """Batches, and the leader epoch of the batch before them."""

    batches: Batches
    read_epoch: int


class _Leader:
    """The partitions of one broker. It has at most one request under way."""

    def __init__(self, lister: OffsetLister, address: Address, topic: str) -> None:
        self.left: dict[int, _Partition] = {}
        self._topic, self._address = topic, address
        self._connecting = call_in_thread(lambda: lister.brokers.connect(address, timeout_s=RESPONSE_S))
        self._connection: Connection | None = None
        self._receive: Callable[[], FetchResponse] | None = None
        self._requested: dict[int, int] = {}
        """The offset that was requested of each partition."""
        self._since_s = time.monotonic()
        """When the connection or the response was requested."""

    @property
    def is_waiting(self) -> bool:
        """Whether a response is under way."""
        return self._receive is not None

    def fileno(self) -> int:
        """For `poll`."""
        assert self._connection is not None
        return self._connection.fileno()

    def close(self) -> None:
        """Closes the connection, also one that is not open yet."""
        self._receive = None
        if self._connection is not None:
            self._connection.close()
        else:
            self._connecting.add_done_callback(_close_late)

    def advance(self, fetched: HistoryFetched) -> None:
        """Does what needs no waiting: uses the connection once it is open, and sends the next request."""
        try:
            if self._connection is None and self._connecting.done():
                self._connection = get_result(self._connecting)
                choose_version(self._connection, Api.FETCH, FETCH_VERSIONS)
            if self._connection is not None and self._receive is None and self.left:
                self._send(self._connection)
        except KoffError as error:
            self._give_up(list(self.left), str(error), fetched)

    def check_late(self, fetched: HistoryFetched) -> None:
        """Gives the broker up if it has not responded in time."""
        is_asked = self._connection is None or self.is_waiting
        if is_asked and time.monotonic() >= self._since_s + RESPONSE_S:
            self._give_up(list(self.left), "no response in time", fetched)

    def receive(self, fetched: HistoryFetched) -> None:
        """Reads the response, sends the next request, and decodes the response while the broker works."""
        receive, self._receive = self._receive, None
        assert receive is not None
        assert self._connection is not None
        moved: list[_Moved] = []
        failure = ""
        try:
            self._connection.deadline = time.monotonic() + RESPONSE_S
            response = receive()
            if response.error_code:
                raise ConnectError(error_name(response.error_code))
            moved = self._move(response, fetched)
            if self.left:
                self._send(self._connection)
        except KoffError as error:
            failure = str(error)
        # Also after a failure: the positions have moved past these batches.
        for each in moved:
            self._decode(each, fetched)
        if failure:
            self._give_up(list(self.left), failure, fetched)

    def _move(self, response: FetchResponse, fetched: HistoryFetched) -> list[_Moved]:
        """Moves the positions past the batches of the response, and returns these."""
        moved = []
        asked, self._requested = self._requested, {}
        # Without a partition that was removed meanwhile, and perhaps added again at another position.
        asked = {p: at for p, at in asked.items() if p in self.left and self.left[p].position == at}
        wanted = list(asked)
        for part in [part for topic in response.topics for part in topic.partitions]:
            if asked.pop(part.partition, None) is None:
                continue
            known = self.left[part.partition]
            try:
                batches = _find_batches(part, known.position)
            except KoffError as error:
                self._give_up([part.partition], str(error), fetched)
                continue
            if batches is not None:
                moved.append(_Moved(batches, known.read_epoch))
                known.position, known.read_epoch = batches.next_offset, batches.leader_epoch
            if known.position >= min(known.until, part.last_stable_offset):
                self._end(part.partition, fetched)
        if not moved and not fetched.ended.keys() & wanted:
            self._give_up(wanted, "the broker returned no records", fetched)
        return moved

    def _decode(self, moved: _Moved, fetched: HistoryFetched) -> None:
        batches = moved.batches
        try:
            run = batches.decode()
        except KoffError as error:
            self._give_up([batches.partition], str(error), fetched)
            fetched.ended[batches.partition] = batches.position, moved.read_epoch
            return
        fetched.positions[batches.partition] = batches.next_offset
        if run is not None:
            fetched.runs.append(run)

    def _end(self, partition: int, fetched: HistoryFetched) -> None:
        known = self.left.pop(partition, None)
        if known is not None:
            fetched.ended[partition] = known.position, known.read_epoch

    def _give_up(self, partitions: list[int], why: str, fetched: HistoryFetched) -> None:
        if partitions:
            log.info("librdkafka reads on", topic=self._topic, partitions=len(partitions), why=why)
        for partition in partitions:
            self._end(partition, fetched)

    def _send(self, connection: Connection) -> None:
        chosen = list(self.left)[:PARTITIONS]
        request = encode_fetch(
            {self._topic: {p: (self.left[p].position, self.left[p].leader_epoch) for p in chosen}},
            read_committed=True,
            partition_bytes=fetch_messages.PARTITION_BYTES,
            response_bytes=fetch_messages.RESPONSE_BYTES,
        )
        self._requested = {p: self.left[p].position for p in chosen}
        for partition in chosen:  # to the end: no partition may stand still for long
            self.left[partition] = self.left.pop(partition)
        connection.deadline = time.monotonic() + RESPONSE_S
        self._receive, self._since_s = connection.post_request(request), time.monotonic()


def _poll(leaders: Sequence[_Leader], timeout_s: float) -> list[_Leader]:
    """The leaders from which a response, or an error, begins to come."""
    poll = select.poll()  # not `select.select`, which knows the first 1,024 file descriptors only
    for leader in leaders:
        poll.register(leader.fileno(), select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
    return [leader for leader in leaders if leader.fileno() in ready]


def _find_batches(part: FetchedPartition, position: int) -> Batches | None:
    """The whole batches of the response; None if it has none. Raises `KoffError` for what is not usual."""
    if part.error_code:
        raise ConnectError(error_name(part.error_code))
    if part.aborted:
        raise ConnectError("there are aborted transactions")
    batches = Batches.find(part.partition, part.records, position) if part.records else None
    # No checksum covers the offset of a batch. All up to a wrong one would be taken for read.
    if batches is not None and batches.next_offset > part.last_stable_offset:
        raise Malformed("the batches end beyond the last stable offset")
    return batches


def _close_late(connecting: futures.Future[Connection]) -> None:
    if connecting.exception() is None:
        connecting.result().close()
