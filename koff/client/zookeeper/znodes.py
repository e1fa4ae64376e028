"""The classic layout: where Kafka's old consumers keep a group in ZooKeeper, and what stands there.

    /consumers/GROUP/ids/MEMBER               ephemeral; JSON: version, subscription, pattern, timestamp
    /consumers/GROUP/owners/TOPIC/PARTITION   ephemeral; the member, or one of its threads (MEMBER-0)
    /consumers/GROUP/offsets/TOPIC/PARTITION  the next offset to process, in decimals
    /brokers/ids/NUMBER                       ephemeral; JSON: endpoints, or host and port

Facts from Kafka 0.8 to 2.x (ZkUtils, TopicCount, ZookeeperConsumerConnector).
"""

from __future__ import annotations

import json
import re
import socket
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

CONSUMERS = "/consumers"
BROKERS = "/brokers/ids"
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
    """What a member says it wants: threads by topic, or by a pattern of topics."""

    subscription: dict[str, int] = field(default_factory=dict)
    pattern: str = _STATIC

    def encode(self) -> bytes:
        """As it stands in the member's node."""
        timestamp = str(time.time_ns() // 1_000_000)
        told = {"version": 1, "subscription": self.subscription, "pattern": self.pattern}
        return json.dumps({**told, "timestamp": timestamp}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Registration:
        """The registration; one that wants nothing where the node is none of a member that we understand."""
        told = _object(data)
        given = told.get("subscription")
        counts = given.items() if isinstance(given, dict) else ()
        return cls({str(t): c for t, c in counts if isinstance(c, int)}, str(told.get("pattern", _STATIC)))

    def threads(self, topic: str) -> int:
        """How many of its threads read that topic."""
        if self.pattern == _ALLOWED:
            return sum(count for regex, count in self.subscription.items() if _matches(regex, topic))
        if self.pattern == _EXCLUDED:
            return sum(count for regex, count in self.subscription.items() if not _matches(regex, topic))
        return self.subscription.get(topic, 0)


def new_member_id(group: str) -> str:
    """An id in the manner of the original tools: group, host, time and a random part."""
    return f"{group}_{socket.gethostname()}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:8]}"


def member_of(owner: str, members: Iterable[str]) -> str | None:
    """The member that an owner's node names: by its id, or by that of one of its threads."""
    known = set(members)
    if owner in known:
        return owner
    member = owner.rpartition("-")[0]
    return member if member in known else None


def host_of(member: str, group: str) -> str:
    """The host in a member's id, as far as it is made in the usual manner."""
    found = re.fullmatch(rf"{re.escape(group)}_(.+)-\d+-[0-9a-f]+", member)
    if found:
        return found[1]
    return member.partition(":")[0] if ":" in member else ""


def bootstrap(brokers: Sequence[bytes]) -> str:
    """The `host:port,...` that nodes of `/brokers/ids` tell of; plaintext where there is a choice."""
    found = [address for data in brokers if (address := _address(_object(data)))]
    return ",".join(sorted(found))


def _address(told: dict[str, Any]) -> str:
    endpoints = [each for each in told.get("endpoints") or () if isinstance(each, str)]
    endpoints.sort(key=lambda each: not each.startswith("PLAINTEXT://"))
    if endpoints:
        return endpoints[0].rpartition("://")[2]
    return f"{told['host']}:{told['port']}" if told.get("host") and told.get("port", -1) > 0 else ""


def _object(data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _matches(regex: str, topic: str) -> bool:
    """As the original tools take it: commas are alternatives, quotes and blanks are nothing."""
    try:
        return re.fullmatch(re.sub(r"[\s\"']", "", regex).replace(",", "|"), topic) is not None
    except re.error:
        return False
