"""Three coordinators in virtual time: which of them hang, load or lie, a test says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from kio.index import load_request_schema
from kio.serial import entity_reader

from koff.client import ClusterConf
from koff.client.groups.offset_fetch import FetchedOffsets
from koff.client.groups.responses import DescribedGroup, PackedOffsets, ShareOffset
from koff.client.offsets.messages import BrokerMetadata, LeaderMetadata, MetadataResponse, TopicMetadata
from koff.client.wire.connection import UnsupportedVersion
from koff.client.wire.pool import Address
from koff.errors import ConnectError
from koff.proto.primitives import ZERO_UUID
from koff.proto.requests import Api, EncodedRequest, build_request, build_struct
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC

T = TypeVar("T")
PARTITIONS = 6


def name_in(partition: int) -> str:
    """The name of a group that belongs to that partition."""
    return next(f"g{i}" for i in range(1000) if group_partition(f"g{i}", PARTITIONS) == partition)


class Clock:
    """Time that passes only where something waits. It takes the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeCluster:
    """Brokers 1 to 3. `leaders` has the leader of each partition, `groups` the groups that brokers list."""

    clock: Clock
    leaders: list[int] | None = field(default_factory=lambda: [1, 2, 3, 1, 2, 3])
    groups: dict[int, list[str]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    loading: dict[int, str] = field(default_factory=dict)
    """Errors by partition."""
    next_leaders: list[list[int]] = field(default_factory=list)
    """The leaders in the metadata after the first response."""
    shares: dict[str, str] = field(default_factory=dict)
    """The share groups, with the error of their offsets, "" if there is none."""
    knows_shares: bool = True
    denied: set[str] = field(default_factory=set)
    """The groups that this user may not DESCRIBE."""

    # An `OffsetLister`, and its `brokers`. Some broker always returns the metadata.
    conf = ClusterConf("fake:1,fake:2,fake:3")

    @property
    def brokers(self) -> FakeCluster:
        return self

    def fetch_metadata(self, topics: list[str], deadline: float) -> tuple[None, MetadataResponse]:
        assert topics == [OFFSETS_TOPIC]
        leaders = self.leaders
        if self.next_leaders:
            self.leaders = self.next_leaders.pop(0)
        partitions = tuple(
            LeaderMetadata(
                error_code=0, partition=p, leader=n, leader_epoch=n, replicas=(), in_sync=(), offline=()
            )
            for p, n in enumerate(leaders or ())
        )
        topic = TopicMetadata(
            error_code=29 if leaders is None else 0,
            name=OFFSETS_TOPIC,
            topic_id=ZERO_UUID,
            is_internal=1,
            partitions=partitions,
            authorized_operations=0,
        )
        brokers = tuple(BrokerMetadata(id=n, host="fake", port=n, rack=None) for n in (1, 2, 3))
        return None, MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id="c", controller=1, topics=(topic,)
        )

    def lend(self, address: Address, use: Callable[[Any], T], *, deadline: float) -> T:
        connection = FakeConnection(self, *address)
        connection.deadline = deadline
        connection._wait_if_silent()
        return use(connection)


class FakeConnection:
    """Stands in for `Connection`: broker n is at port n."""

    def __init__(self, cluster: FakeCluster, host: str, port: int) -> None:
        self.cluster, self.broker, self.address = cluster, port, f"{host}:{port}"
        self.deadline = self.timeout_s = float("inf")

    def highest_version(self, api: Api) -> int | None:
        if api is Api.DESCRIBE_SHARE_GROUP_OFFSETS and not self.cluster.knows_shares:
            return None
        return _VERSIONS.get(api)

    def build_request(self, api: Api, /, **fields: Any) -> Any:
        if self.highest_version(api) is None:
            raise UnsupportedVersion(f"the broker does not know {api.name}")
        return build_request(api, self.highest_version(api) or 0, **fields)

    def build_struct(self, api: Api, name: str, /, **fields: Any) -> Any:
        return build_struct(api, self.highest_version(api) or 0, name, **fields)

    def send_requests(self, requests: Iterable[EncodedRequest[Any]]) -> Iterator[Any]:
        for request in requests:
            self._wait_if_silent()
            match request.api:
                case Api.LIST_GROUPS:
                    yield self._list(_read(request).types_filter)
                case Api.DESCRIBE_GROUPS:
                    names = _read(request).groups
                    yield [DescribedGroup(name, "", "", "", error=self._explain(name)) for name in names]
                case Api.DESCRIBE_SHARE_GROUP_OFFSETS:
                    yield [self._describe(group.group_id) for group in _read(request).groups]
                case _:
                    yield self._fetch_offsets(request)

    def _explain(self, name: str) -> str:
        if name in self.cluster.denied:
            return "GROUP_AUTHORIZATION_FAILED"
        coordinator = group_partition(name, PARTITIONS) % 3 + 1
        return "GROUP_ID_NOT_FOUND" if self.broker == coordinator else "NOT_COORDINATOR"

    def _describe(self, name: str) -> tuple[str, str, list[ShareOffset]]:
        """Of a group with an error, one partition is known."""
        return name, self.cluster.shares[name], [ShareOffset(name, "t", "id", 0, 3, 1, 7)]

    def _list(self, types: Collection[str]) -> Any:
        listed = [
            SimpleNamespace(group_id=name, group_type=type_, group_state="Empty", protocol_type="")
            for name in self.cluster.groups.get(self.broker, [])
            if name not in self.cluster.denied
            if (type_ := "share" if name in self.cluster.shares else "classic") in types or not types
        ]
        return SimpleNamespace(error_code=0, groups=listed)

    def _fetch_offsets(self, request: EncodedRequest[Any]) -> FetchedOffsets:
        entity = _read(request)
        names = [group.group_id for group in entity.groups]
        errors = {name: error for name in names if (error := self._error_of(name))}
        good = [name for name in names if name not in errors]
        ones = np.ones(len(good), np.int32)
        counts = [1] * len(good)
        offsets = PackedOffsets(good, ["t"] * len(good), counts, ones, ones.astype(np.int64), ones, {})
        return FetchedOffsets(offsets, tuple(good), errors)

    def _error_of(self, name: str) -> str | None:
        partition = group_partition(name, PARTITIONS)
        if self.cluster.leaders is not None and self.cluster.leaders[partition] != self.broker:
            return "NOT_COORDINATOR"
        return self.cluster.loading.get(partition)

    def _wait_if_silent(self) -> None:
        if self.broker in self.cluster.silent:
            clock = self.cluster.clock
            clock.now = max(clock.now, min(clock.now + self.timeout_s, self.deadline))
            raise ConnectError(f"{self.address}: no response in time")


_VERSIONS = {
    Api.METADATA: 12,
    Api.LIST_GROUPS: 5,
    Api.OFFSET_FETCH: 9,
    Api.DESCRIBE_GROUPS: 6,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
}


def _read(request: EncodedRequest[Any]) -> Any:
    """kio's request that was encoded."""
    return entity_reader(load_request_schema(request.api, request.version))(request.body, 0)[0]
