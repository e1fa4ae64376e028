"""Reads the timestamps of the records at given offsets: many at once, without a group."""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from koff.client.batches import Batches, RecordRun
from koff.client.cluster_conf import OffsetSpec, TopicPartition
from koff.client.fetch_messages import FETCH_VERSIONS, FetchedPartition, FetchResponse, encode_fetch
from koff.client.offsets.lister import OffsetLister
from koff.client.offsets.messages import choose_version
from koff.client.wire.connection import Connection
from koff.client.wire.pool import Address
from koff.errors import KoffError, copy_error
from koff.proto.requests import Api, EncodedRequest, error_name

MOST_LATER = 8
PARTITION_BYTES, RESPONSE_BYTES = 16 << 10, 4 << 20
"""The most bytes of a partition, and of a response. A broker returns one whole batch even if it is larger."""
AT_ONCE = 200
"""The most partitions in one request."""
_NO_EPOCH = -1
_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"


class ReadPlace(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


class ReadRecord(NamedTuple):
    """The first record at or after a place. It is later if compaction or retention removed the record there.

    `timestamp_ms` is CreateTime or LogAppendTime, as the topic is configured; None if the record has none.
    `later_ms` is the median of the timestamps of the records that came with it, `MOST_LATER` at most; None if
    there were none. A producer's clock that is wrong shows in the difference.
    """

    offset: int
    timestamp_ms: int | None
    later_ms: int | None = None


class EndReached(NamedTuple):
    """There is no record from the place to the end offset `offset`; there may be control records."""

    offset: int


class Unread(NamedTuple):
    """Why the place could not be read. `denied` is true when this user may not read the topic."""

    reason: str
    denied: bool = False


FirstRecordResult = ReadRecord | EndReached | Unread
_Result = FirstRecordResult | str | KoffError
"""A result, the name of Kafka's error, or an error of koff's."""
_Positions = Mapping[TopicPartition, int]


def read_record_times(
    lister: OffsetLister,
    places: Collection[ReadPlace],
    timeout_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[ReadPlace, FirstRecordResult]:
    """The first record at or after each place, within `timeout_s`, or until `should_stop` returns true.

    Records of aborted and of open transactions count (read_uncommitted): their offsets are part of the lag.
    A place for which no record came in time is `Unread`. Raises nothing.
    """
    deadline = time.monotonic() + timeout_s
    results: dict[ReadPlace, FirstRecordResult] = {}
    left = list(dict.fromkeys(places))  # without duplicates
    while left and time.monotonic() < deadline and not should_stop():
        # A round reads one place of each partition.
        chosen = {TopicPartition(place.topic, place.partition): place for place in reversed(left)}
        positions = {at: place.offset for at, place in chosen.items()}
        found = _read(lister, positions, deadline, should_stop)
        removed = [at for at, result in found.items() if result == Unread(_OUT_OF_RANGE)]
        if removed:
            found |= _read_from_start(lister, {at: positions[at] for at in removed}, deadline, should_stop)
        results |= {place: found[at] for at, place in chosen.items()}
        left = [place for place in left if place not in results]
    return results | dict.fromkeys(left, Unread("no response"))


def _read(
    lister: OffsetLister, positions: _Positions, deadline: float, should_stop: Callable[[], bool]
) -> dict[TopicPartition, FirstRecordResult]:
    def send_requests(address: Address, part: list[TopicPartition]) -> Mapping[TopicPartition, _Result]:
        own = {at: positions[at] for at in part}
        return _LeaderOfPlaces(lister, address, own, deadline).read(should_stop)

    found: Mapping[TopicPartition, _Result] = lister.request_from_leaders(positions, send_requests, deadline)
    return {at: _explain(at, result) for at, result in found.items()}


def _read_from_start(
    lister: OffsetLister, positions: _Positions, deadline: float, should_stop: Callable[[], bool]
) -> dict[TopicPartition, FirstRecordResult]:
    """Retention has removed what was at these positions, or there was never anything."""
    left_s = max(0.001, deadline - time.monotonic())
    try:
        listed = lister.list_offsets(positions, OffsetSpec.EARLIEST, timeout_s=left_s)
    except KoffError as error:
        return dict.fromkeys(positions, Unread(str(error)))
    starts = {at: found.offset for at, found in listed.items() if not isinstance(found, str)}
    removed = {at: start for at, start in starts.items() if start > positions[at]}
    results: dict[TopicPartition, FirstRecordResult] = {
        at: Unread("beyond the end of the log" if at in starts else str(listed[at])) for at in positions
    }
    return results | (_read(lister, removed, deadline, should_stop) if removed else {})


def _explain(at: TopicPartition, result: _Result) -> FirstRecordResult:
    match result:
        case "TOPIC_AUTHORIZATION_FAILED":
            return Unread(f"no permission to read {at.topic}", denied=True)
        case "UNKNOWN_TOPIC_OR_PARTITION":
            return Unread("the partition does not exist")
        case str() | KoffError():
            return Unread(str(result))
    return result


class _LeaderOfPlaces:
    """Reads from one broker, in requests of some partitions.

    A partition without a result comes first in the next request: only for the first, a broker returns a
    whole batch however large it is.
    """

    def __init__(
        self, lister: OffsetLister, address: Address, positions: _Positions, deadline: float
    ) -> None:
        self._brokers, self._address, self._deadline = lister.brokers, address, deadline
        self._left = dict(positions)
        self._results: dict[TopicPartition, _Result] = {}

    def read(self, should_stop: Callable[[], bool]) -> dict[TopicPartition, _Result]:
        """The result of each partition."""
        while self._left and not should_stop() and time.monotonic() < self._deadline:
            chosen = list(self._left)[:AT_ONCE]
            try:
                response = self._brokers.send_request(
                    self._address, partial(self._encode, chosen), deadline=self._deadline
                )
            except KoffError as error:
                return self._results | dict.fromkeys(self._left, copy_error(error))
            fetched = {
                TopicPartition(topic.name, each.partition): each
                for topic in response.topics
                for each in topic.partitions
            }
            for number, at in enumerate(chosen):
                self._note(at, fetched.get(at), is_first=number == 0)
        return self._results | dict.fromkeys(self._left, Unread("no response"))

    def _encode(self, chosen: list[TopicPartition], connection: Connection) -> EncodedRequest[FetchResponse]:
        choose_version(connection, Api.FETCH, FETCH_VERSIONS)
        topics: dict[str, dict[int, tuple[int, int]]] = {}
        for at in chosen:
            topics.setdefault(at.topic, {})[at.partition] = self._left[at], _NO_EPOCH
        return encode_fetch(
            topics, read_committed=False, partition_bytes=PARTITION_BYTES, response_bytes=RESPONSE_BYTES
        )

    def _note(self, at: TopicPartition, fetched: FetchedPartition | None, *, is_first: bool) -> None:
        position = self._left.pop(at)
        if fetched is None:
            self._results[at] = Unread("the broker returned nothing of it")
            return
        if fetched.error_code:
            name = error_name(fetched.error_code)
            self._results[at] = Unread(name) if name == _OUT_OF_RANGE else name
            return
        try:
            batches = Batches.find(at.partition, fetched.records or b"", position)
            records = None if batches is None else batches.decode()
        except KoffError as error:
            self._results[at] = Unread(str(error))
            return
        next_offset = position if batches is None else batches.next_offset
        if records is not None:
            self._results[at] = _find_first(records)
        elif next_offset >= fetched.high_watermark or (batches is None and is_first):
            self._results[at] = EndReached(fetched.high_watermark)
        else:  # control records alone, or there was no room for a batch
            self._left = {at: next_offset, **self._left}


def _find_first(records: RecordRun) -> ReadRecord:
    first, *later = records.timestamps_ms[: MOST_LATER + 1].tolist()
    known = [at_ms for at_ms in later if at_ms >= 0]
    return ReadRecord(
        records.offsets[0],
        first if first >= 0 else None,
        sorted(known)[(len(known) - 1) // 2] if known else None,
    )
