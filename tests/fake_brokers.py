"""Brokers on loopback that answer a few requests as a test tells them. kio encodes all but Fetch."""

import io
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from kio.index import load_payload_module, load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from koff.client import ClusterConf
from koff.client.closing import Closing
from koff.proto.primitives import write_uvarint
from koff.proto.requests import Api

VERSIONS = {
    Api.LIST_OFFSETS: (1, 11),
    Api.METADATA: (0, 13),
    Api.FETCH: (4, 17),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
}
"""Those of Kafka 4.3."""


@dataclass
class FakeTopic:
    """A topic. Partition p ends at 1000 + p, unless `ends` says otherwise, and starts at p."""

    leaders: list[int]
    epochs: list[int]
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    ends: dict[int, int] = field(default_factory=dict)
    errors: dict[int, ErrorCode] = field(default_factory=dict)
    """Errors of ListOffsets by partition."""
    logs: dict[int, bytes] = field(default_factory=dict)
    """The record batches that Fetch returns. A partition without a log is empty."""
    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The aborted transactions that Fetch returns: producer id, first offset."""
    fetch_errors: dict[int, ErrorCode] = field(default_factory=dict)
    """Errors of Fetch by partition."""
    epoch_ends: dict[int, int] = field(default_factory=dict)
    """By partition, where the epoch that is asked for ended. Without an entry, at the end of the log."""
    error: ErrorCode = ErrorCode.none
    """The topic's error in metadata."""
    followers: dict[str, int] = field(default_factory=dict)
    """By rack, the broker that may be read from in place of the leader."""

    def move(self, partition: int, leader: int) -> None:
        """Elects another leader, with a new epoch."""
        self.leaders[partition] = leader
        self.epochs[partition] += 1


@dataclass
class FakeBroker:
    """One broker, and what it has been asked: (API, version, request of kio)."""

    id: int
    port: int
    requests: list[tuple[int, int, Any]] = field(default_factory=list)
    versions: dict[Api, tuple[int, int]] = field(default_factory=lambda: dict(VERSIONS))
    view: dict[str, FakeTopic] | None = None
    """What a broker that is cut off believes. None: it knows the truth."""
    hangs: set[Api] = field(default_factory=set)
    """Requests that are never answered."""
    throttle_ms: int = 0
    """What Fetch returns as the time to wait."""
    drops: int = 0
    """So many requests close the connection."""
    lists_brokers: bool = True
    cluster_id: str = "fake"
    tamper: Callable[[Api, bytes], bytes] = field(default=lambda api, body: body)
    """Changes the bodies of the responses."""
    bodies: dict[Api, Callable[[int], bytes]] = field(default_factory=dict)
    """The bodies of responses to other requests, by version."""

    def count(self, api: Api) -> int:
        """How many requests of that kind it was sent."""
        return sum(each[0] == api for each in self.requests)


class FakeBrokers(Closing):
    """Brokers 1 to n. `topics` has the truth. A context manager."""

    def __init__(self, count: int = 3) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.brokers: dict[int, FakeBroker] = {}
        self.connections = 0
        self.caches = False
        """Whether the same request gets the same bytes again, without any record of it."""
        self._cached: dict[tuple[int, int, int, bytes], bytes] = {}
        self._servers: dict[int, socket.socket] = {}
        self._clients: dict[int, list[socket.socket]] = {}
        self._threads: list[threading.Thread] = []
        for number in range(1, count + 1):
            self.brokers[number] = FakeBroker(number, port=0)
            self._listen(number)

    def __getitem__(self, number: int) -> FakeBroker:
        return self.brokers[number]

    @property
    def conf(self) -> ClusterConf:
        """All brokers are bootstrap servers."""
        return self.conf_of(*self.brokers)

    def conf_of(self, *numbers: int) -> ClusterConf:
        """These brokers are the bootstrap servers."""
        addresses = ",".join(f"127.0.0.1:{self.brokers[number].port}" for number in numbers)
        return ClusterConf(addresses, connect_timeout_s=30, request_timeout_s=30)

    def add_topic(self, name: str, leaders: list[int]) -> FakeTopic:
        topic = self.topics[name] = FakeTopic(leaders, [0] * len(leaders))
        return topic

    def cut_off(self, number: int) -> None:
        """The broker believes for ever what is true now."""
        self.brokers[number].view = deepcopy(self.topics)

    def disconnect(self, number: int) -> None:
        """Closes the connections to a broker."""
        for client in self._clients[number]:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def stop(self, number: int) -> None:
        """Connections to the broker are closed, and refused."""
        with suppress(OSError):
            self._servers[number].shutdown(socket.SHUT_RDWR)
        self._servers[number].close()
        self.disconnect(number)

    def restart_elsewhere(self, number: int) -> None:
        """The broker gets another address."""
        self.stop(number)
        self._listen(number)

    def close(self) -> None:
        for number in self.brokers:
            self.stop(number)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def _listen(self, number: int) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        self.brokers[number].port = server.getsockname()[1]
        self._servers[number], self._clients[number] = server, []
        self._start(self._accept, number, server)

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, name="fake-broker", daemon=True)
        thread.start()
        self._threads.append(thread)  # `close` joins only threads that are started

    def _accept(self, number: int, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                self.connections += 1
                self._clients[number].append(client)
                if server.fileno() < 0:  # stopped meanwhile
                    client.close()
                    return
                self._start(self._serve, self.brokers[number], client)

    def _serve(self, broker: FakeBroker, client: socket.socket) -> None:
        with client, suppress(OSError):
            for correlation, api, version, body in _read_requests(client):
                if api is not Api.API_VERSIONS and broker.drops:
                    broker.drops -= 1
                    return
                tags = b"" if api is Api.API_VERSIONS else b"\0"  # never in its responses' headers (KIP-511)
                key = (broker.id, api, version, body)
                if key in self._cached:
                    _send(client, struct.pack(">i", correlation) + tags + self._cached[key])
                    continue
                request = None
                if api is not Api.API_VERSIONS:
                    request, _ = entity_reader(load_request_schema(api, version))(body, 0)
                broker.requests.append((api, version, request))
                if api in broker.hangs:
                    continue
                response = broker.tamper(api, self._respond(broker, api, version, request))
                if self.caches:
                    self._cached[key] = response
                _send(client, struct.pack(">i", correlation) + tags + response)

    def _respond(self, broker: FakeBroker, api: Api, version: int, request: Any) -> bytes:
        if api is Api.API_VERSIONS:
            kinds = load_payload_module(api, version, EntityType.response)  # 0: from `Probe`
            return written(
                kinds.ApiVersionsResponse,
                error_code=ErrorCode.none,
                api_keys=tuple(
                    kinds.ApiVersion(api_key=key, min_version=first, max_version=last)
                    for key, (first, last) in broker.versions.items()
                ),
                **({"throttle_time": timedelta(0)} if version else {}),
            )
        if api in broker.bodies:
            return broker.bodies[api](version)
        topics = self.topics if broker.view is None else broker.view
        if api is Api.METADATA:
            return self._respond_metadata(broker, topics, version, request)
        if api is Api.FETCH:
            return _respond_fetch(broker, topics, version, request)
        if api is Api.OFFSET_FOR_LEADER_EPOCH:
            return _respond_epochs(broker, topics, version, request)
        return _respond_offsets(broker, topics, version, request)

    def _respond_metadata(
        self, broker: FakeBroker, topics: dict[str, FakeTopic], version: int, request: Any
    ) -> bytes:
        kinds = load_payload_module(Api.METADATA, version, EntityType.response)
        listed = []
        asked = topics if request.topics is None else [each.name for each in request.topics]
        for name in asked:
            topic = topics.get(name)
            error = ErrorCode.unknown_topic_or_partition if topic is None else topic.error
            partitions = [] if topic is None or error else list(enumerate(topic.leaders))
            listed.append(
                kinds.MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=topic.id if topic else None,
                    partitions=tuple(
                        kinds.MetadataResponsePartition(
                            error_code=ErrorCode.leader_not_available if leader < 0 else ErrorCode.none,
                            partition_index=number,
                            leader_id=leader,
                            leader_epoch=topic.epochs[number],
                            replica_nodes=(1, 2, 3),
                            isr_nodes=(1, 2),
                        )
                        for number, leader in partitions
                    ),
                )
            )
        brokers = tuple(
            kinds.MetadataResponseBroker(node_id=each.id, host="127.0.0.1", port=each.port)
            for each in self.brokers.values()
        )
        return written(
            kinds.MetadataResponse,
            throttle_time=timedelta(0),
            brokers=brokers if broker.lists_brokers else (),
            cluster_id=broker.cluster_id,
            topics=tuple(listed),
        )


def _respond_offsets(broker: FakeBroker, topics: dict[str, FakeTopic], version: int, request: Any) -> bytes:
    kinds = load_payload_module(Api.LIST_OFFSETS, version, EntityType.response)

    def respond(name: str, number: int, timestamp: int) -> Any:
        topic = topics.get(name)
        if topic is None or number >= len(topic.leaders):
            error = ErrorCode.unknown_topic_or_partition
        elif topic.leaders[number] != broker.id:
            error = ErrorCode.not_leader_or_follower
        else:
            error = topic.errors.get(number, ErrorCode.none)
        if error:
            return kinds.ListOffsetsPartitionResponse(partition_index=number, error_code=error)
        offset = topic.ends.get(number, 1000 + number) - request.isolation_level
        if timestamp == -2:
            offset = number
        elif timestamp >= 0:  # a record each millisecond
            offset = timestamp if timestamp < offset else -1
        return kinds.ListOffsetsPartitionResponse(
            partition_index=number, error_code=error, offset=offset, leader_epoch=topic.epochs[number]
        )

    responses = tuple(
        kinds.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=tuple(
                respond(topic.name, each.partition_index, each.timestamp)
                for each in reversed(topic.partitions)  # brokers promise no order
            ),
        )
        for topic in reversed(request.topics)
    )
    return written(kinds.ListOffsetsResponse, throttle_time=timedelta(0), topics=responses)


def _respond_fetch(broker: FakeBroker, topics: dict[str, FakeTopic], version: int, request: Any) -> bytes:
    assert version == 12
    room, responses = request.max_bytes, []
    for asked in request.topics:
        follower = topics[asked.topic].followers.get(request.rack_id, -1)
        parts, room = _fetch_topic(broker, topics[asked.topic], asked, room, request.max_bytes, follower)
        name = asked.topic.encode()
        responses.append(bytes([len(name) + 1]) + name + bytes([len(parts) + 1]) + b"".join(parts) + b"\0")
    if room == request.max_bytes and request.max_wait:
        time.sleep(min(request.max_wait.total_seconds(), 0.05))
    head = struct.pack(">ihi", broker.throttle_ms, 0, 0) + bytes([len(responses) + 1])
    return head + b"".join(responses) + b"\0"


def _respond_epochs(broker: FakeBroker, topics: dict[str, FakeTopic], version: int, request: Any) -> bytes:
    kinds = load_payload_module(Api.OFFSET_FOR_LEADER_EPOCH, version, EntityType.response)

    def respond(topic: FakeTopic, asked: Any) -> Any:
        number, error = asked.partition, ErrorCode.none
        if topic.leaders[number] != broker.id:
            error = ErrorCode.not_leader_or_follower
        elif asked.current_leader_epoch not in (-1, topic.epochs[number]):
            error = ErrorCode.fenced_leader_epoch
        batches = list_batches(topic.logs.get(number, b""))
        end = topic.epoch_ends.get(number, batches[-1][1] + 1 if batches else 0)
        return kinds.EpochEndOffset(
            error_code=error, partition=number, leader_epoch=asked.leader_epoch, end_offset=end
        )

    return written(
        kinds.OffsetForLeaderEpochResponse,
        throttle_time=timedelta(0),
        topics=tuple(
            kinds.OffsetForLeaderTopicResult(
                topic=each.topic,
                partitions=tuple(respond(topics[each.topic], asked) for asked in each.partitions),
            )
            for each in request.topics
        ),
    )


def _fetch_topic(
    broker: FakeBroker, topic: FakeTopic, asked: Any, room: int, most: int, follower: int
) -> tuple[list[bytes], int]:
    """The responses for the partitions of a topic, and how many bytes of `most` are left."""
    parts = []
    for each in asked.partitions:
        number, offset = each.partition, each.fetch_offset
        error = topic.fetch_errors.get(number, ErrorCode.none)
        if broker.id not in (topic.leaders[number], follower):
            error = ErrorCode.not_leader_or_follower
        elif each.current_leader_epoch not in (-1, topic.epochs[number]):
            error = ErrorCode.fenced_leader_epoch
        if not error and follower not in (-1, broker.id):
            parts.append(pack_fetched(number, error, 0, None, b"", follower))
            continue
        data, stable = b"", 0
        for _, last, batch in list_batches(topic.logs.get(number, b"")):
            stable = last + 1
            if last < offset or error:
                continue
            # The last batch is cut off, unless it is the first of the response (KIP-74).
            left = min(room, each.partition_max_bytes - len(data))
            data += batch if room == most and not data else batch[: max(left, 0)]
            room -= len(batch)
        parts.append(pack_fetched(number, error, stable, topic.aborted.get(number), data))
    return parts, room


def pack_fetched(
    number: int,
    error: ErrorCode,
    stable: int,
    aborted: list[tuple[int, int]] | None,
    data: bytes,
    follower: int = -1,
) -> bytes:
    """A partition of a response to Fetch, version 12."""
    transactions = b"\0" if aborted is None else bytes([len(aborted) + 1])
    transactions += b"".join(struct.pack(">qqx", *each) for each in aborted or ())
    size = bytearray()
    write_uvarint(size, len(data) + 1)
    head = struct.pack(">ihqqq", number, error.value, stable, stable, 0)
    return head + transactions + struct.pack(">i", follower) + size + data + b"\0"


def list_batches(log: bytes) -> list[tuple[int, int, bytes]]:
    """The first and the last offset of each batch, and its bytes."""
    found, at = [], 0
    while at < len(log):
        first, length = struct.unpack_from(">qi", log, at)
        (last_delta,) = struct.unpack_from(">i", log, at + 23)
        found.append((first, first + last_delta, log[at : at + 12 + length]))
        at += 12 + length
    return found


def _send(client: socket.socket, frame: bytes) -> None:
    client.sendall(struct.pack(">i", len(frame)) + frame)


def _read_requests(client: socket.socket) -> Iterator[tuple[int, Api, int, bytes]]:
    stream = client.makefile("rb")
    while len(head := stream.read(4)) == 4:
        frame = stream.read(int.from_bytes(head, "big"))
        api, version, correlation, size = struct.unpack_from(">hhih", frame)
        yield correlation, Api(api), version, frame[10 + size + 1 :]  # 1: no tags in the header


def written(kind: Any, **fields: Any) -> bytes:
    """The bytes of one of kio's structs."""
    body = io.BytesIO()
    entity_writer(kind)(body, kind(**fields))
    return body.getvalue()
