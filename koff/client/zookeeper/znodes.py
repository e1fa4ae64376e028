"""The nodes of Kafka's first consumers in ZooKeeper, their data, and the assignment that follows from them.

    /consumers/GROUP/ids/MEMBER               ephemeral; JSON: version, subscription, pattern, timestamp
    /consumers/GROUP/owners/TOPIC/PARTITION   ephemeral; the member, or one of its threads (MEMBER-0)
    /consumers/GROUP/offsets/TOPIC/PARTITION  the next offset to process, in decimals
    /brokers/ids/NUMBER                       ephemeral; JSON: endpoints, or host and port

Facts from Kafka 0.8 to 2.x (ZkUtils, TopicCount, ZookeeperConsumerConnector), and from the Go library
wvanbergen/kafka (`dividePartitionsBetweenConsumers`, and `ConsumergroupInstance` of kazoo-go).
"""

from __future__ import annotations

import json
import re
import socket
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CONSUMERS = "/consumers"
BROKERS = "/brokers/ids"
_GO_MEMBER = re.compile(r".+:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STATIC, _ALLOWED, _EXCLUDED = "static", "white_list", "black_list"


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The paths of one group."""

    group: str

    @property
    def ids(self) -> str:
        return f"{CONSUMERS}/{self.group}/ids"

    @property
    def owners(self) -> str:
        return f"{CONSUMERS}/{self.group}/owners"

    @property
    def offsets(self) -> str:
        return f"{CONSUMERS}/{self.group}/offsets"

    def member(self, id_: str) -> str:
        return f"{self.ids}/{id_}"

    def owner(self, topic: str, partition: int) -> str:
        return f"{self.owners}/{topic}/{partition}"

    def offset(self, topic: str, partition: int) -> str:
        return f"{self.offsets}/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class Registration:
    """A member's subscription: its number of threads by topic, or by a pattern of topics.

    `failed` are the partitions, by topic, that the member cannot read at present. Kafka's first consumers
    neither write nor read this field.
    """

    subscription: dict[str, int] = field(default_factory=dict)
    pattern: str = _STATIC
    failed: dict[str, list[int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The data of the member's node."""
        timestamp = str(time.time_ns() // 1_000_000)  # Kafka writes it as text
        content: dict[str, Any] = {"version": 1, "subscription": self.subscription, "pattern": self.pattern}
        if self.failed:
            content["failed"] = self.failed
        return json.dumps({**content, "timestamp": timestamp}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Registration:
        """The registration in a member's node; without a subscription if the data is invalid."""
        content = _parse_object(data)
        subscription = content.get("subscription")
        counts = subscription.items() if isinstance(subscription, dict) else ()
        failed = content.get("failed")
        lists = failed.items() if isinstance(failed, dict) else ()
        return cls(
            {str(t): c for t, c in counts if isinstance(c, int)},
            str(content.get("pattern", _STATIC)),
            {str(t): partitions for t, partitions in lists if isinstance(partitions, list)},
        )

    def thread_count(self, topic: str) -> int:
        """How many of the member's threads read the topic."""
        if self.pattern not in (_ALLOWED, _EXCLUDED):
            return self.subscription.get(topic, 0)
        wanted = self.pattern == _ALLOWED
        return sum(n for regex, n in self.subscription.items() if _matches_topic(regex, topic) == wanted)


def is_go_member(member: str) -> bool:
    """Whether that is an id of the Go library's members: HOST:UUID."""
    return _GO_MEMBER.fullmatch(member) is not None


def assign_partitions(
    members: Mapping[str, Registration], topic: str, partitions: Sequence[int], leaders: Sequence[int] = ()
) -> dict[str, list[int]]:
    """Each member's partitions of the topic; a member without a thread for the topic is left out.

    All members compute the same assignment from all registrations. It is the `range` strategy of Kafka's
    first consumers: threads are sorted by id, each gets a run of consecutive partitions, and the runs differ
    in length by at most one. A partition that its member cannot read (`Registration.failed`) goes to a member
    that can, if there is one.

    Kafka's first consumers count partitions by their number, the Go library's members by their leader first.
    With such a member, all must do as it does, or a partition would have no owner. `leaders` has the leader
    of each partition then.
    """
    # Sorted as text, so MEMBER-10 comes before MEMBER-2: Kafka's first consumers sort the same way.
    threads = sorted(
        (f"{member}-{number}", member)
        for member, registration in members.items()
        for number in range(registration.thread_count(topic))
    )
    if not threads:
        return {}
    assignment: dict[str, list[int]] = {}
    length, remainder = divmod(len(partitions), len(threads))
    ordered, start = sorted(partitions), 0
    if any(map(is_go_member, members)):
        ordered.sort(key=lambda partition: leaders[partition])
    for index, (_, member) in enumerate(threads):
        count = length + (index < remainder)  # the first `remainder` threads get one partition more
        for partition in ordered[start : start + count]:
            candidates = [member, *(other for _, other in threads[index + 1 :] + threads[:index])]
            owner = next((m for m in candidates if partition not in members[m].failed.get(topic, ())), member)
            assignment.setdefault(owner, []).append(partition)
        start += count
    return assignment


def new_member_id(group: str) -> str:
    """A member id in the format of Kafka's first consumers: group, host, time and a random part."""
    return f"{group}_{socket.gethostname()}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:8]}"


def find_member(owner: str, members: Iterable[str]) -> str | None:
    """The member that an owner node names, by the member's id or by the id of one of its threads."""
    ids = set(members)
    if owner in ids:
        return owner
    member = owner.rpartition("-")[0]  # a thread's id is the member's id, a dash and a number
    return member if member in ids else None


def parse_host(member: str, group: str) -> str:
    """The host in a member's id, "" if the id has no known format.

    Known formats: that of `new_member_id`, and HOST:RANDOM.
    """
    match = re.fullmatch(rf"{re.escape(group)}_(.+)-\d+-[0-9a-f]+", member)
    if match:
        return match[1]
    return member.partition(":")[0] if ":" in member else ""


def bootstrap_servers(brokers: Sequence[bytes], protocol: str = "PLAINTEXT") -> str:
    """The addresses (`host:port,...`) in the data of nodes of `/brokers/ids`.

    One address for each broker that has a listener with that security protocol, in Kafka's upper case.
    """
    addresses = [address for data in brokers if (address := _broker_address(_parse_object(data), protocol))]
    return ",".join(sorted(addresses))


def _broker_address(broker: dict[str, Any], protocol: str) -> str:
    # Kafka 0.10.2 and newer name listeners freely, and map each name to its protocol.
    protocols = broker.get("listener_security_protocol_map")
    for endpoint in broker.get("endpoints") or ():
        listener, _, address = str(endpoint).rpartition("://")
        if (protocols.get(listener, listener) if isinstance(protocols, dict) else listener) == protocol:
            return address
    # `host` and `port` are those of the plaintext listener; without one, they are null and -1.
    if protocol != "PLAINTEXT":
        return ""
    return f"{broker['host']}:{broker['port']}" if broker.get("host") and broker.get("port", -1) > 0 else ""


def _parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`; empty if it is not one."""
    try:
        content = json.loads(data)
    except ValueError:  # JSONDecodeError or UnicodeDecodeError
        return {}
    return content if isinstance(content, dict) else {}


def _matches_topic(regex: str, topic: str) -> bool:
    """Whether the pattern matches the topic, as in Kafka's TopicFilter.

    A comma separates alternatives; quotes and white space are ignored. An invalid pattern matches nothing.
    """
    try:
        return re.fullmatch(re.sub(r"[\s\"']", "", regex).replace(",", "|"), topic) is not None
    except re.error:
        return False
