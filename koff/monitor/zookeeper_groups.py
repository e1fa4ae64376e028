"""Groups that keep their offsets in ZooKeeper, as Kafka's first consumers do, brought into the tracker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from koff.client import Closing, TopicPartition
from koff.errors import ConfigError, ConnectError
from koff.tracker import Group, Member, Tracker

if TYPE_CHECKING:
    from koff.client.zookeeper.session import Session
    from koff.client.zookeeper.stored_groups import StoredGroup, StoredOffset

log = structlog.get_logger(component="monitor.zookeeper_groups")
HOME = -1
"""Where the tracker keeps these groups: no partition of the offsets topic has that number."""
TYPE = "zookeeper"
STALE_S = 15.0
"""Offsets that could not be read for so long are not to be believed."""
_BUSY = 4
"""So many times as long as it took to read all of them is the pause before the next time."""
_SOON_S = 0.05


@dataclass(frozen=True, slots=True)
class ZooKeeperGroupsConf:
    """Where to look (`host:port,...[/chroot]`, "" for nowhere) and how often."""

    hosts: str = ""
    interval_s: float = 2.0
    session_timeout_s: float = 6.0
    connect_timeout_s: float = 8.0


class ZooKeeperGroups(Closing):
    """Keeps the groups of ZooKeeper in the tracker, of type "zookeeper". A context manager.

    A group of the same name that commits to Kafka takes precedence: its members commit to both.
    """

    def __init__(self, conf: ZooKeeperGroupsConf, tracker: Tracker) -> None:
        self.conf = conf
        self.known = False
        """Whether all of them are in the tracker."""
        self.unreachable: ConnectError | None = None
        self._tracker = tracker
        self._session: Session | None = None
        self._offsets: dict[tuple[str, TopicPartition], StoredOffset] = {}
        self._hidden: set[str] = set()
        self._read_at = 0.0

    def connect(self) -> None:
        """Opens a session. Raises `ConnectError`; `ConfigError` without kazoo, or for no such chroot."""
        try:
            from koff.client.zookeeper.session import Session
        except ModuleNotFoundError as failure:
            raise ConfigError(
                "--zookeeper needs the library kazoo: pip install 'koff[zookeeper]'"
            ) from failure
        session = Session(
            self.conf.hosts,
            timeout_s=self.conf.session_timeout_s,
            connect_timeout_s=self.conf.connect_timeout_s,
        )
        self._session = session.connect()
        self._read_at = time.monotonic()

    def close(self) -> None:
        """Ends the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def run(
        self,
        stopping: threading.Event,
        wait: Callable[[ConnectError], bool],
        others_known: Callable[[], bool],
    ) -> None:
        """Reads them every interval until `stopping`; `wait` says whether a failure to connect is waited out.

        Begins once `others_known`: which groups commit to Kafka. When they could not be read for a quarter
        of a minute, the tracker forgets them until they can.
        """
        pause_s = 0.0
        while not stopping.wait(pause_s):
            began, pause_s = time.monotonic(), self.conf.interval_s
            try:
                if self._session is None:
                    self.connect()
                if not others_known():
                    pause_s = _SOON_S
                    continue
                self.read()
            except ConnectError as failure:
                if self._session is None and not self.known and not wait(failure):
                    raise
                self._note(failure)
                if self.known and time.monotonic() > self._read_at + STALE_S:
                    self._forget()
            else:
                self._note(None)
                self._read_at = began
                pause_s = min(max(pause_s, _BUSY * (time.monotonic() - began)), STALE_S / 2)

    def read(self) -> None:
        """One round. Raises `ConnectError`; then nothing was changed."""
        from koff.client.zookeeper.stored_groups import fetch_stored_groups

        assert self._session is not None
        groups = fetch_stored_groups(self._session)
        hidden = groups.keys() & self._tracker.group_names_outside(HOME)
        if hidden - self._hidden:
            log.info("groups that commit to Kafka too are shown as Kafka has them", groups=sorted(hidden))
        self._hidden = set(hidden)
        shown = {name: group for name, group in groups.items() if name not in hidden}
        offsets = {
            (name, at): stored for name, group in shown.items() for at, stored in group.offsets.items()
        }
        changed = {
            (name, *at): (stored.offset, stored.stored_at_ms)
            for (name, at), stored in offsets.items()
            if self._offsets.get((name, at)) != stored
        }
        gone = [(name, *at) for name, at in self._offsets.keys() - offsets.keys()]
        described = {name: _described(name, group) for name, group in shown.items()}
        seen_at_ms = time.time_ns() // 1_000_000 if self.known else None
        self._tracker.apply_external_commits(HOME, changed, gone, described, seen_at_ms=seen_at_ms)
        self._offsets, self.known = offsets, True

    def _forget(self) -> None:
        log.warning("groups of ZooKeeper are not shown until it answers")
        self._tracker.reset_partition(HOME)
        self._offsets, self.known = {}, False

    def _note(self, error: ConnectError | None) -> None:
        """Says once that ZooKeeper is lost, and once that it is back."""
        if error is not None and self.unreachable is None:
            log.warning("ZooKeeper lost", why=str(error))
        if error is None and self.unreachable is not None:
            log.info("ZooKeeper back")
        self.unreachable = error


def _described(name: str, group: StoredGroup) -> Group:
    from koff.client.zookeeper.znodes import parse_host

    owned: dict[str, dict[str, tuple[int, ...]]] = {}
    for (topic, partition), member in sorted(group.owners.items()):
        topics = owned.setdefault(member, {})
        topics[topic] = (*topics.get(topic, ()), partition)
    members = tuple(
        Member(id_, id_, parse_host(id_, name), assigned=owned.get(id_, {})) for id_ in sorted(group.members)
    )
    return Group(name, TYPE, "Stable" if members else "Empty", protocol_type="consumer", members=members)
