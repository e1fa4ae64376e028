"""A ZooKeeper session with a lease: the time until which the session is certainly alive.

No other module of koff imports kazoo.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
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
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from koff.client.closing import Closing
from koff.client.foreign_errors import convert_foreign_error
from koff.client.zookeeper.errors import ZooKeeperLost
from koff.errors import ConfigError, ConnectError, Denied, KoffError, copy_error

NoNode, NodeExists, BadVersion = NoNodeError, NodeExistsError, BadVersionError
"""kazoo's errors that the caller of `Session.call` handles. All others become koff's errors."""
_FOR_CALLERS = (NoNode, NodeExists, BadVersion)
_LEASE = 0.9
"""The part of the session timeout that is trusted: the clocks of client and server may differ in speed."""
_CHECK_S = 0.05
"""How often a session that is being made looks whether it was refused."""
_NO_VERSION = 2**31 - 1
_kazoo_log = logging.getLogger("koff.zookeeper.kazoo")
# kazoo logs each lost connection; koff reports such errors itself.
_kazoo_log.addHandler(logging.NullHandler())
_kazoo_log.propagate = False


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """How a session logs in to ZooKeeper, and whether it speaks TLS.

    - `scheme`: "digest", or "sasl" (DIGEST-MD5; needs the library pure-sasl). Not used without a `username`.
    - `tls`: speaks TLS. The server's certificate must be signed by a certificate in `ca_file`, and name the
      host unless `check_hostname` is false. `certificate_file` and `key_file` are the client's own.
    - `private_nodes`: only this user may read or change the nodes that the session creates. Otherwise
      everybody may, like the nodes of Kafka's first consumers.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    scheme: str = "digest"
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    private_nodes: bool = False

    def kazoo_options(self) -> dict[str, Any]:
        """The arguments of kazoo's client. Raises `ConfigError`."""
        if self.scheme not in ("digest", "sasl"):
            raise ConfigError(f"ZooKeeper's scheme {self.scheme!r} is not known: choose digest or sasl")
        options: dict[str, Any] = {}
        if self.username and self.scheme == "digest":
            options["auth_data"] = [("digest", f"{self.username}:{self.password}")]
        elif self.username:
            if find_spec("puresasl") is None:
                raise ConfigError("SASL with ZooKeeper needs the library pure-sasl: pip install 'koff[sasl]'")
            options["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": self.username,
                "password": self.password,
            }
        if self.private_nodes:
            if not self.username:
                raise ConfigError("private_nodes needs a username: without it nobody could use the nodes")
            options["default_acl"] = CREATOR_ALL_ACL
        return {
            **options,
            "use_ssl": self.tls,
            "ca": self.ca_file,
            "certfile": self.certificate_file,
            "keyfile": self.key_file,
            "keyfile_password": self.key_password,
            "check_hostname": self.check_hostname,
        }


class Session(Closing):
    """A connection to the servers at `hosts` (`host:port,...[/chroot]`); an ended session is replaced.

    `number` counts the sessions that ended: when it changes, ZooKeeper has deleted all ephemeral nodes of
    this client. `lease_until` (monotonic time) is until when the servers certainly keep the present session.
    `on_change` is called by kazoo's threads whenever the state of the connection changes or a watch fires.
    """

    # The lease is computed from the session timeout that the server granted. A renewal is a write, to which
    # only a leader with a quorum can respond: a server that is cut off still responds to reads. A follower
    # tells the leader with a delay which clients are alive; when the leader responds to a write, it has
    # heard of the renewal before. So a lease counts from the renewal before.

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        timeout_s: float = 6.0,
        connect_timeout_s: float = 15.0,
        login: ZooKeeperLogin | None = None,
    ) -> None:
        self.hosts = hosts if isinstance(hosts, str) else ",".join(hosts)
        self.timeout_s = timeout_s
        self.number = 0
        self.lease_until = 0.0
        self._connect_timeout_s = connect_timeout_s
        self.on_change: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        # kazoo connects without the chroot: `submit` puts it before each path.
        servers, _, root = self.hosts.partition("/")
        self._root = "/" + root.strip("/") if root.strip("/") else ""
        options = (login or ZooKeeperLogin()).kazoo_options()
        with self._map_errors():
            try:
                self._kazoo: Any = KazooClient(
                    servers,
                    timeout=timeout_s,
                    connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
                    logger=_kazoo_log,
                    **options,
                )
            except ValueError as error:
                raise ConfigError(
                    f"{self.hosts!r} is not an address of ZooKeeper: write host:port,...[/chroot]"
                ) from error
        self._kazoo.add_listener(self._handle_state)
        self._renewed_at: float | None = None
        """When the last renewal since the connection was made was sent (monotonic)."""
        # kazoo does not tell which timeout the server granted, except by the read timeout (two thirds of it,
        # in ms) that its `_connect` returns.
        connect = self._kazoo._connection._connect

        def note_timeout(*args: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*args)
            self.timeout_s = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        self._kazoo._connection._connect = note_timeout

    def connect(self, *, make_chroot: bool = False) -> Self:
        """Waits for a session, and returns self.

        Raises `ConnectError` without a session in time, and `ConfigError` when the chroot does not exist.
        """
        until = time.monotonic() + self._connect_timeout_s
        try:
            with self._map_errors():
                connected = self._kazoo.start_async()
            lost: ZooKeeperLost | None = None
            while time.monotonic() < until:
                # A server that refuses a SASL log-in connects and then hangs up; kazoo tries no more.
                if lost is not None and self._kazoo.client_state == KeeperState.CLOSED:
                    raise self._make_denied("the connection was closed after the log-in") from lost
                try:
                    if connected.wait(_CHECK_S):
                        self._check_root(make_chroot=make_chroot)
                        return self
                except ZooKeeperLost as error:
                    lost = copy_error(error)
                    time.sleep(_CHECK_S)
            raise ConnectError(
                f"cannot reach ZooKeeper at {self.hosts}: no session within {self._connect_timeout_s:g} s; "
                "check the address, that it runs, that its port is open from here, and the log-in"
            ) from lost
        except BaseException:  # else kazoo's threads would go on trying for ever
            self.close()
            raise

    def _check_root(self, *, make_chroot: bool) -> None:
        if make_chroot and self._root:
            self.call("ensure_path", "/")
        if self.call("exists", "/") is None:
            raise ConfigError(
                f"ZooKeeper at {self.hosts} has no {self._root}: check the path behind the hosts"
            )

    def close(self) -> None:
        """Ends the session; ZooKeeper deletes its ephemeral nodes. Safe to call twice."""
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except Exception as error:  # kazoo's internal errors come through; the session then times out
            _kazoo_log.debug("close: %s", error)

    @property
    def id(self) -> int | None:
        """The id of the present session, as in the `ephemeralOwner` of its nodes; None without a session."""
        client_id = self._kazoo.client_id
        return None if client_id is None else int(client_id[0])

    @property
    def trusted(self) -> bool:
        """Whether the lease has not ended; the connection may be lost for a moment."""
        return time.monotonic() < self.lease_until

    def renew_lease(self, path: str) -> bool:
        """Renews the lease by a write to the node at `path`, which changes nothing.

        Returns whether the node exists. Needs the permission to write the node.
        """
        with self._lock:
            number, requested_at, before = self.number, time.monotonic(), self._renewed_at
        # No node has this version, so ZooKeeper refuses the write, as a transaction of the whole ensemble.
        exists = True
        try:
            self.call("set", path, b"", version=_NO_VERSION)
        except BadVersion:
            pass
        except NoNode:
            exists = False
        # The response counts only for the session that sent the request. The leader itself has confirmed the
        # session when the connection was made, so the first renewal counts from its own request.
        with self._lock:
            if self.number == number:
                confirmed_at = requested_at if before is None else before
                self.lease_until = max(self.lease_until, confirmed_at + _LEASE * self.timeout_s)
                self._renewed_at = requested_at
        return exists

    def call(self, operation: str, path: str, *args: Any, **kwargs: Any) -> Any:
        """The result of kazoo's `operation` on the node at `path`.

        Raises `NoNode`, `NodeExists`, `BadVersion`, or else `ConnectError`. Raises at once while there is no
        connection. ZooKeeper executes the requests in the order of the calls.
        """
        return self.wait_for_result(self.submit(operation, path, *args, **kwargs))

    def submit(self, operation: str, path: str, *args: Any, **kwargs: Any) -> Any:
        """Sends the request and returns at once; `wait_for_result` takes the returned object.

        The caller may submit many requests before it waits for the first result.
        """
        self.check_process()
        if not self._kazoo.connected:
            raise ZooKeeperLost(
                f"no connection to ZooKeeper at {self.hosts}: check that it runs and that its port is open"
            )
        with self._map_errors():
            return getattr(self._kazoo, f"{operation}_async")(
                (self._root + path).rstrip("/") or "/", *args, **kwargs
            )

    def wait_for_result(self, pending: Any) -> Any:
        """The result of a request of `submit`. Raises as `call` does."""
        with self._map_errors():
            pending.wait(self.timeout_s)
            if pending.exception is not None:
                raise copy_error(pending.exception)  # `pending` keeps the other
            return pending.get_nowait()

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Raises kazoo's errors, except `_FOR_CALLERS`, and all other errors as koff's."""
        try:
            yield
        except (KoffError, *_FOR_CALLERS):
            raise
        except (ConnectionLoss, SessionExpiredError, KazooTimeoutError) as error:
            raise self._make_lost(type(error).__name__) from error
        except KazooException as error:
            if type(error).__name__ in {"NoAuthError", "AuthFailedError"}:
                raise self._make_denied(type(error).__name__) from error
            raise ZooKeeperLost(
                f"request to ZooKeeper at {self.hosts} failed: {type(error).__name__} {error}"
            ) from error
        except Exception as error:
            raise convert_foreign_error(
                error,
                f"request to ZooKeeper at {self.hosts} failed",
                lambda causes: self._make_lost(causes[0].str() if causes else "no response in time"),
            ) from error

    def _make_denied(self, why: str) -> Denied:
        return Denied(f"ZooKeeper at {self.hosts} denies access: {why}; check the log-in and the nodes' ACLs")

    def _make_lost(self, why: str) -> ZooKeeperLost:
        return ZooKeeperLost(f"ZooKeeper at {self.hosts} does not respond: {why}; check that it runs")

    def on_watch(self, _event: object) -> None:
        """The callback for operations that take a watch."""
        self.on_change()

    def list_children(self, path: str, *, watch: bool = False) -> list[str]:
        """The names of the node's children; empty if there is no such node. Raises `ConnectError`."""
        try:
            children: list[str] = self.call("get_children", path, watch=self.on_watch if watch else None)
        except NoNode:
            return []
        return children

    def find_own_node(self, path: str) -> Any:
        """The stat of the node if the present session created it, else None. Raises `ConnectError`."""
        stat = self.call("exists", path)
        return stat if stat is not None and stat.ephemeralOwner == self.id else None

    def _handle_state(self, state: str) -> None:
        # Called by kazoo's connection thread: it must not wait for a response of ZooKeeper.
        with self._lock:
            self._renewed_at = None
            if state == KazooState.LOST:
                self.number += 1
                self.lease_until = 0.0
        self.on_change()
