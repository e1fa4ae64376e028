"""`OffsetLister` lists the offsets of many partitions over koff's own connections."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from koff.client.calls import call_in_thread, get_result
from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf, Isolation, ListedOffset, OffsetSpec, TopicPartition
from koff.client.offsets.known_leaders import BELIEVE_OLDER_S, KnownLeaders
from koff.client.offsets.messages import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS_VERSIONS,
    METADATA_VERSIONS,
    ListOffsetsResponse,
    MetadataResponse,
    choose_version,
    encode_list_offsets,
    encode_metadata,
)
from koff.client.wire.brokers import PATIENCE_S, Brokers
from koff.client.wire.connection import Connection
from koff.client.wire.credentials import TokenSource
from koff.client.wire.pool import Address
from koff.errors import ConnectError, KoffError, copy_error
from koff.proto.requests import Api, EncodedRequest, error_name

CHUNK = 2_000
"""The most partitions, or topics of metadata, in one request. It keeps the responses small."""
PAUSE_S = 5.0
"""When no broker returned metadata, doubted leaders get requests all the same for this time."""
LATE_S = 0.2
"""How long after its deadline a call may end."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
"""Topic.validate. A broker closes the connection if a name is longer than it can read."""
_LEADER_CHANGED = frozenset(
    {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"}
)
"""Errors of a broker that is not the leader, or not any more."""

T = TypeVar("T")
Listed = dict[TopicPartition, ListedOffset | str]
"""The offset of each partition, or why there is none."""
_Result = ListedOffset | str | KoffError


class OffsetLister(Closing):
    """Lists offsets over connections that stay open. A context manager; several threads may use it.

    Needs Kafka 2.8 or later. `token` returns the bearer token if the properties choose SASL/OAUTHBEARER.
    `cluster_id`, if it is known, must be that of the brokers. Raises `ConfigError` for invalid addresses.
    """

    def __init__(
        self,
        conf: ClusterConf,
        *,
        token: TokenSource | None = None,
        cluster_id: str = "",
    ) -> None:
        self.conf, self._cluster_id = conf, cluster_id
        self._confirmed_s = float("-inf")
        if cluster_id:
            self.expect_cluster(cluster_id)
        self._other_cluster: tuple[str, set[Address]] = ("", set())
        """Another cluster's id, and the brokers that have returned it since then."""
        self._no_metadata_s = float("-inf")
        self.brokers = Brokers(conf, token=token)
        self._known = KnownLeaders()
        self._fetching = threading.Lock()

    def close(self) -> None:
        """Closes the connections. Safe to call twice."""
        self.brokers.close()

    def expect_cluster(self, cluster_id: str) -> None:
        """From now on, brokers must be of this cluster."""
        self._cluster_id, self._confirmed_s = cluster_id, time.monotonic()

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        timeout_s: float | None = None,
    ) -> Listed:
        """The offset of each partition in one call; for a partition without an offset, the reason.

        `spec` may be a time in ms: then the first offset at or after that time, -1 if there is none. The
        reason is the name of Kafka's error, or the text of a `KoffError`. If all partitions failed with a
        `KoffError`, raises the first: `ConnectError`, or `ConfigError` for properties that koff cannot use.
        """
        deadline = time.monotonic() + (timeout_s or self.conf.request_timeout_s)
        query = _Query(spec, isolation, deadline)
        return _finish(
            self.request_from_leaders(partitions, partial(self._request_from_broker, query), deadline)
        )

    def request_from_leaders(
        self,
        partitions: Iterable[TopicPartition],
        send: Callable[[Address, list[TopicPartition]], Mapping[TopicPartition, T | str | KoffError]],
        deadline: float,
    ) -> dict[TopicPartition, T | str | KoffError]:
        """What `send` returns for each partition; else the name of Kafka's error, or an error of koff's.

        `send` is called in threads, with the address of a leader and its partitions. Partitions for which it
        returns that the broker does not lead them are requested once more, from the new leaders.
        """
        self.brokers.check_process()
        found: dict[TopicPartition, T | str | KoffError] = {}
        left: dict[str, list[TopicPartition]] = {}
        for topic, of_topic in _group_by_topic(dict.fromkeys(partitions)).items():
            if _TOPIC_NAME.fullmatch(topic):
                left[topic] = of_topic
            else:  # no topic can have this name
                found |= dict.fromkeys(of_topic, "INVALID_TOPIC_EXCEPTION")
        self._known.note_requested(left, time.monotonic())
        for _ in range(2):
            results = self._request_from_leaders_once(left, send, deadline)
            found |= results
            moved = [
                at for at, result in results.items() if isinstance(result, str) and result in _LEADER_CHANGED
            ]
            self._known.doubt(moved)
            left = _group_by_topic(moved)
            if not left or time.monotonic() >= deadline:
                break
        return found

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """The leaders of these partitions did not respond, or do not lead them any more."""
        self._known.doubt(partitions)

    def find_leaders(self, topic: str) -> tuple[int, ...]:
        """The id of the last known leader of each partition of the topic. Empty if it is unknown."""
        return self._known.find_leaders(topic)

    def find_address(self, broker: int) -> Address | None:
        """The address of the broker with that id, if it is known."""
        return self._known.brokers.get(broker)

    def find_leader_addresses(self, topic: str) -> dict[int, tuple[Address, int]]:
        """By partition of the topic, the address of its leader and the leader epoch. Sends no request.

        Partitions whose leader is unknown, or did not respond lately, are left out.
        """
        return self._known.find_addresses(topic)

    def refresh_leaders(self, *, timeout_s: float) -> None:
        """Fetches the leaders of all topics whose offsets are requested. Raises `ConnectError`.

        Call it now and then: a broker that is cut off from the others may believe that it is still the
        leader, and would get the requests for ever. Such a broker returns old leaders, too, so two brokers
        get the request, and two others in the next call. Topics for which there was no time come first then.
        """
        deadline = time.monotonic() + timeout_s
        self._known.forget_unused(time.monotonic())
        topics = self._known.list_topics()
        # All topics from the same two brokers: each call then goes to others, however many topics there are.
        first, *others = self.brokers.list_candidates()
        has_second = len(self._known.brokers) > 1
        failure: KoffError | None = None
        for start in range(0, len(topics), CHUNK):
            chunk = topics[start : start + CHUNK]
            try:
                with self._lock_leaders(deadline):  # for each request: others may wait for new leaders
                    source = self._add_metadata(chunk, deadline, [first, *others])
            except KoffError as error:
                failure = failure or copy_error(error)
                continue
            others = [address for address in (first, *others) if address != source]
            first = source
            if has_second:
                late_s = min(deadline, time.monotonic() + 2 * PATIENCE_S)
                try:
                    with self._lock_leaders(late_s):
                        second = self._add_metadata(chunk, late_s, others)
                    others = [second, *(address for address in others if address != second)]
                except KoffError:  # the first has responded
                    has_second = False
        if failure is not None:
            raise copy_error(failure)

    # --- Requests to the leaders ---------------------------------------------------------------------------

    def _request_from_leaders_once(
        self,
        partitions: Mapping[str, list[TopicPartition]],
        send: Callable[[Address, list[TopicPartition]], Mapping[TopicPartition, T | str | KoffError]],
        deadline: float,
    ) -> dict[TopicPartition, T | str | KoffError]:
        """The responses of the leaders. `partitions` has them by topic."""
        parts, unknown, doubted = self._known.split_by_address(partitions)
        failure: KoffError | None = None
        try:
            # In half of the time: the leaders that are known need the rest.
            half_s = (time.monotonic() + deadline) / 2
            if self._fetch_leaders({at.topic for at in unknown}, doubted, half_s):
                parts, unknown, _ = self._known.split_by_address(partitions)
        except KoffError as error:
            failure = copy_error(error)
        found: dict[TopicPartition, T | str | KoffError] = {
            at: failure or self._known.explain_unknown(*at) for at in unknown
        }
        # Threads, also for a single broker: the search for a broker's address has no deadline.
        pending = {call_in_thread(send, address, part): part for address, part in parts.items()}
        done = futures.wait(pending, max(0.0, deadline - time.monotonic()) + LATE_S).done
        for future, part in pending.items():
            if future in done:
                of_leader = get_result(future)
                found |= of_leader
            else:
                found |= dict.fromkeys(part, ConnectError("no response in time"))
        return found

    def _request_from_broker(
        self, query: _Query, address: Address, part: list[TopicPartition]
    ) -> dict[TopicPartition, _Result]:
        """The offsets from one broker, in requests of up to `CHUNK` partitions."""
        listed: dict[TopicPartition, _Result] = {}
        for first in range(0, len(part), CHUNK):
            chunk = part[first : first + CHUNK]
            try:
                listed |= self._send_to_broker(address, chunk, query)
            except KoffError as error:
                self._known.doubt(part[first:])
                return listed | dict.fromkeys(part[first:], copy_error(error))
        return listed

    def _send_to_broker(
        self, address: Address, chunk: list[TopicPartition], query: _Query
    ) -> dict[TopicPartition, _Result]:
        response = self.brokers.send_request(
            address, lambda connection: query.encode(connection, chunk), deadline=query.deadline
        )
        lowest = -1 if isinstance(query.spec, int) else 0
        found: dict[tuple[str, int], _Result] = {
            (topic.name, each.partition): (
                ListedOffset(each.offset, each.leader_epoch)
                if not each.error_code and each.offset >= lowest
                else error_name(each.error_code) or f"the broker returned the offset {each.offset}"
            )
            for topic in response.topics
            for each in topic.partitions
        }
        return {at: found.get(at, "the broker returned no offset") for at in chunk}

    # --- The leaders are fetched ---------------------------------------------------------------------------

    def _fetch_leaders(self, unknown: set[str], doubted: set[str], deadline: float) -> bool:
        """Fetches the leaders of topics in which leaders are unknown or doubted. Returns whether it did.

        Raises `ConnectError`, unless all leaders are known: then the requests go to them, even if doubted.
        """
        topics, now = unknown | doubted, time.monotonic()
        if not self._known.find_due(topics, now):
            return False
        if not unknown:
            if now < self._no_metadata_s + PAUSE_S:
                return False
            deadline = min(deadline, now + 2 * PATIENCE_S)
        try:
            with self._lock_leaders(deadline):
                # Another thread may have fetched them meanwhile.
                due = self._known.find_due(topics, time.monotonic())
                for first in range(0, len(due), CHUNK):
                    self._add_metadata(due[first : first + CHUNK], deadline)
        except ConnectError:
            self._no_metadata_s = time.monotonic()
            if unknown:
                raise
        return True

    @contextmanager
    def _lock_leaders(self, deadline: float) -> Iterator[None]:
        if not self._fetching.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self.brokers.make_late_error()
        try:
            yield
        finally:
            self._fetching.release()

    def _add_metadata(
        self, topics: list[str], deadline: float, candidates: Iterable[Address] | None = None
    ) -> Address:
        """Notes the metadata of these topics, and returns the address of the broker that it is from."""
        source, metadata = self.fetch_metadata(topics, deadline, candidates)
        self._known.add(metadata, source, time.monotonic())
        self.brokers.set_members(self._known.brokers.values())
        return source

    def fetch_metadata(
        self, topics: Collection[str] | None, deadline: float, candidates: Iterable[Address] | None = None
    ) -> tuple[Address, MetadataResponse]:
        """The metadata of these topics, or of all, from the first of the candidates that responds.

        Raises what `Brokers.send_to_any` raises.
        """

        def check(metadata: MetadataResponse, address: Address) -> None:
            if not metadata.brokers:  # a broker that starts
                raise ConnectError(f"Kafka at {address[0]}:{address[1]} knows no brokers yet")
            self._check_cluster(metadata.cluster_id or "", address)

        return self.brokers.send_to_any(
            lambda connection: _encode_metadata(connection, topics),
            deadline=deadline,
            candidates=candidates,
            check=check,
        )

    def _check_cluster(self, cluster_id: str, address: Address) -> None:
        """Raises `ConnectError` for another cluster: an address may have been given to another broker.

        Another id is believed if two brokers have it (unless there is only one), and no broker has returned
        the earlier one for `BELIEVE_OLDER_S`.
        """
        now = time.monotonic()
        if cluster_id != self._cluster_id and self._confirmed_s > float("-inf"):
            other_id, sources = self._other_cluster
            sources = {address} | (sources if other_id == cluster_id else set())
            self._other_cluster = cluster_id, sources
            needed = min(2, len(self.brokers.list_candidates()))
            if len(sources) < needed or now < self._confirmed_s + BELIEVE_OLDER_S:
                host, port = address
                raise ConnectError(
                    f"Kafka at {host}:{port} belongs to another cluster, {cluster_id}, "
                    f"not {self._cluster_id}: check the addresses of the brokers"
                )
        self._cluster_id, self._confirmed_s, self._other_cluster = cluster_id, now, ("", set())


@dataclass(frozen=True, slots=True)
class _Query:
    """The offset to request of each partition, and the deadline."""

    spec: OffsetSpec | int
    isolation: Isolation
    deadline: float

    def encode(
        self, connection: Connection, chunk: Iterable[TopicPartition]
    ) -> EncodedRequest[ListOffsetsResponse]:
        """The request for this broker. Raises `UnsupportedVersion`."""
        if isinstance(self.spec, int):
            timestamp = self.spec
        else:
            timestamp = LATEST if self.spec is OffsetSpec.LATEST else EARLIEST
        return encode_list_offsets(
            choose_version(connection, Api.LIST_OFFSETS, LIST_OFFSETS_VERSIONS),
            _group_by_topic(chunk),
            timestamp=timestamp,
            read_committed=self.isolation is Isolation.READ_COMMITTED,
        )


def _encode_metadata(
    connection: Connection, topics: Collection[str] | None
) -> EncodedRequest[MetadataResponse]:
    return encode_metadata(choose_version(connection, Api.METADATA, METADATA_VERSIONS), topics)


def _group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for at in partitions:
        by_topic[at.topic].append(at)
    return by_topic


def _finish(listed: Mapping[TopicPartition, _Result]) -> Listed:
    """The results, with the texts of errors. Raises the first `KoffError` if there is nothing else."""
    failures = [result for result in listed.values() if isinstance(result, KoffError)]
    if failures and len(failures) == len(listed):
        raise copy_error(failures[0])
    if not failures:
        return listed  # type: ignore[return-value]  # there is no KoffError in it
    return {at: str(result) if isinstance(result, KoffError) else result for at, result in listed.items()}
