"""Fetches the groups that keep their offsets in ZooKeeper, as Kafka's first consumers do."""

import importlib.util
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from koff.client.closing import Closing
from koff.errors import ConfigError, ConnectError
from koff.tracker import Group, Member

if TYPE_CHECKING:
    from koff.client.zookeeper.session import Session
    from koff.client.zookeeper.stored_groups import StoredGroup

log = structlog.get_logger(component="monitor.zookeeper")
TYPE = "zookeeper"
"""The type of these groups."""
NEW_SESSION_S = 30.0
"""After so long without a response, a new session is opened: kazoo may have given up the old one."""
Offsets = dict[tuple[str, str, int], tuple[int, int]]
"""(Offset, commit time in ms) by (group, topic, partition)."""
_MOST_OFFSET, _MOST_PARTITION = (1 << 63) - 1, (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ZooKeeperConf:
    """Where ZooKeeper is (`host:port,...[/chroot]`, "": there is none), and how often to fetch its groups.

    Raises `ConfigError` without kazoo: at the first session it would be late, because a monitor may wait for
    Kafka for hours.
    """

    hosts: str = ""
    interval_s: float = 2.0
    session_timeout_s: float = 6.0
    connect_timeout_s: float = 8.0

    def __post_init__(self) -> None:
        if self.hosts and importlib.util.find_spec("kazoo") is None:
            raise ConfigError("--zookeeper needs the library kazoo: pip install 'koff[zookeeper]'")


class ZooKeeper(Closing):
    """A session with ZooKeeper, opened when it is first needed. A context manager; not thread-safe."""

    def __init__(self, conf: ZooKeeperConf) -> None:
        self._conf = conf
        self._session: Session | None = None
        self._responded_s = 0.0

    def connect(self) -> "Session":
        """The session. Raises `ConnectError`, and `ConfigError` without such a chroot."""
        if self._session is None:
            from koff.client.zookeeper.session import Session

            self._session = Session(
                self._conf.hosts,
                timeout_s=self._conf.session_timeout_s,
                connect_timeout_s=self._conf.connect_timeout_s,
            ).connect()
            self._responded_s = time.monotonic()
        return self._session

    def fetch_groups(self) -> tuple[Offsets, dict[str, Group], Mapping[str, str]]:
        """Offsets and groups, and the groups that may not be read, with a node. Raises `ConnectError`."""
        session = self.connect()
        from koff.client.zookeeper.stored_groups import fetch_stored_groups

        try:
            groups, refused = fetch_stored_groups(session)
        except ConnectError:
            if time.monotonic() > self._responded_s + NEW_SESSION_S:
                self.close()
            raise
        self._responded_s = time.monotonic()
        # Any client of ZooKeeper may write any number: one that is impossible must not hide the others.
        offsets = {
            (name, *at): (stored.offset, stored.stored_at_ms)
            for name, group in groups.items()
            for at, stored in group.offsets.items()
            if stored.offset <= _MOST_OFFSET and at.partition <= _MOST_PARTITION
        }
        described = {name: build_group(name, group) for name, group in groups.items()}
        return offsets, described, refused

    def close(self) -> None:
        """Ends the session. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def build_group(name: str, group: "StoredGroup") -> Group:
    """The group in the tracker's terms."""
    from koff.client.zookeeper.znodes import parse_host

    owned: dict[str, dict[str, tuple[int, ...]]] = {}
    for (topic, partition), member in sorted(group.owners.items()):
        if partition > _MOST_PARTITION:
            continue
        topics = owned.setdefault(member, {})
        topics[topic] = (*topics.get(topic, ()), partition)
    members = tuple(
        Member(id_, id_, parse_host(id_, name), assigned=owned.get(id_, {})) for id_ in sorted(group.members)
    )
    return Group(name, TYPE, "Stable" if members else "Empty", protocol_type="consumer", members=members)
