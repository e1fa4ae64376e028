"""A session with ZooKeeper that says how long it can be believed in. The only module that imports kazoo."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from koff.client.closing import Closing
from koff.client.zookeeper.errors import ZooKeeperLost
from koff.errors import ConfigError, ConnectError, Denied

NoNode, NodeExists, BadVersion = NoNodeError, NodeExistsError, BadVersionError
"""What a call may find, for its caller to deal with; everything else is mapped."""
_FOUND = (NoNode, NodeExists, BadVersion)
_LEASE = 0.9
"""The part of the session's time that is believed in: clocks do not run quite alike."""
_quiet = logging.getLogger("koff.zookeeper.kazoo")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class Session(Closing):
    """One session after the other with the servers at `hosts` (`host:port,...[/chroot]`).

    `number` counts the sessions that ended: what is ephemeral is gone when it has changed. `lease_until`
    (monotonic) is how long the servers will surely keep the present one. `changed` is called whenever the
    connection's state changes or a watch fires, from kazoo's threads.
    """

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        timeout_s: float = 6.0,
        connect_timeout_s: float = 15.0,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.hosts = hosts if isinstance(hosts, str) else ",".join(hosts)
        self.timeout_s = timeout_s
        self.number = 0
        self.lease_until = 0.0
        self._connect_timeout_s = connect_timeout_s
        self._changed = changed
        self._lock = threading.Lock()
        servers, _, root = self.hosts.partition("/")
        self._root = "/" + root.strip("/") if root.strip("/") else ""
        try:
            self._kazoo: Any = KazooClient(
                servers,
                timeout=timeout_s,
                connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
                logger=_quiet,
            )
        except ValueError as failure:
            raise ConfigError(f"{self.hosts!r} is no host:port,...[/chroot] of ZooKeeper") from failure
        self._kazoo.add_listener(self._heard)

    def connect(self, *, make_chroot: bool = False) -> Self:
        """Returns in a session. Raises `ConnectError` when none comes in time, `ConfigError` without root."""
        connected = self._kazoo.start_async()
        if not connected.wait(self._connect_timeout_s):
            self.close()
            raise ConnectError(
                f"cannot reach ZooKeeper at {self.hosts}: no session within {self._connect_timeout_s:g} s; "
                "check the address, that it runs and that its port is open from here"
            )
        if make_chroot and self._root:
            self.call("ensure_path", "/")
        if not self.renew("/"):
            self.close()
            raise ConfigError(
                f"ZooKeeper at {self.hosts} has no {self._root}: check the path behind the hosts"
            )
        return self

    def close(self) -> None:
        """Ends the session, and with it all that is ephemeral. Safe to call twice."""
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except Exception as failure:  # kazoo raises what it is made of; the session ends by itself then
            _quiet.debug("close: %s", failure)

    @property
    def id(self) -> int | None:
        """The present session's, as it stands in the nodes that it owns; None without one."""
        known = self._kazoo.client_id
        return None if known is None else int(known[0])

    @property
    def trusted(self) -> bool:
        """Whether there is a connection, and the servers surely keep the session."""
        return self._kazoo.connected and time.monotonic() < self.lease_until

    def renew(self, path: str) -> bool:
        """Whether the node is there; the lease counts from when this was asked."""
        with self._lock:
            number, asked_at = self.number, time.monotonic()
        there = self.call("exists", path) is not None
        with self._lock:
            if self.number == number:
                self.lease_until = max(self.lease_until, asked_at + _LEASE * self.timeout_s)
        return there

    def call(self, operation: str, path: str, *args: Any, **kwargs: Any) -> Any:
        """What kazoo's operation on the path gives.

        Raises `NoNode`, `NodeExists`, `BadVersion`, or else `ConnectError`. Never waits for a connection.
        Calls are carried out in the order in which they were made.
        """
        return self.result(self.begin(operation, path, *args, **kwargs))

    def begin(self, operation: str, path: str, *args: Any, **kwargs: Any) -> Any:
        """The operation under way, for `result`: many at a time."""
        if not self._kazoo.connected:
            raise ZooKeeperLost(f"no connection to ZooKeeper at {self.hosts}")
        return getattr(self._kazoo, f"{operation}_async")(
            (self._root + path).rstrip("/") or "/", *args, **kwargs
        )

    def result(self, under_way: Any) -> Any:
        """What came of what `begin` began."""
        try:
            return under_way.get(timeout=self.timeout_s)
        except _FOUND:
            raise
        except (ConnectionLoss, SessionExpiredError, KazooTimeoutError) as failure:
            raise ZooKeeperLost(
                f"ZooKeeper at {self.hosts} does not answer: {type(failure).__name__}"
            ) from failure
        except KazooException as failure:
            if type(failure).__name__ in {"NoAuthError", "AuthFailedError"}:
                raise Denied(
                    f"ZooKeeper at {self.hosts} refuses: {type(failure).__name__}; check the nodes' ACLs"
                ) from failure
            raise ZooKeeperLost(
                f"ZooKeeper at {self.hosts} fails: {type(failure).__name__} {failure}"
            ) from failure

    def watch(self, _event: object) -> None:
        """For operations that take a watch."""
        self._changed()

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """The names of the node's children; none where it is not there."""
        try:
            found: list[str] = self.call("get_children", path, watch=self.watch if watch else None)
        except NoNode:
            return []
        return found

    def _heard(self, state: str) -> None:
        if state == KazooState.LOST:
            with self._lock:
                self.number += 1
                self.lease_until = 0.0
        self._changed()
