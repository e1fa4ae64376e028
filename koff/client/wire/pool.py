"""Connections to the brokers of a cluster that stay open between requests."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeVar

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.wire.connection import Connection
from koff.client.wire.credentials import TokenSource
from koff.errors import Closed, ConnectError
from koff.proto.requests import EncodedRequest

T = TypeVar("T")
Address = tuple[str, int]
"""A host and a port."""

MAX_IDLE = 8
"""So many open connections to an address are kept."""
MAX_CONNECTING = 16
"""So many attempts to connect to an address may be under way: the search for it has no deadline."""
IDLE_S = 30.0
"""A connection that was not used for so long is closed: a firewall may have forgotten it."""


class ConnectionPool(Closing):
    """Sends requests over open connections, and opens more where all are in use. For many threads."""

    def __init__(self, conf: ClusterConf, *, token: TokenSource | None = None) -> None:
        self._conf, self._token = conf, token
        self._lock = threading.Lock()
        self._idle: dict[Address, list[tuple[float, Connection]]] = defaultdict(list)
        """The connections with the time of their last use, the newest last."""
        self._connecting: dict[Address, int] = defaultdict(int)
        self._closed = False

    def close(self) -> None:
        """Closes the idle connections at once, and each other one when its request is done."""
        with self._lock:
            self._closed = True
        self.keep_only(())

    def send_request(
        self, address: Address, build: Callable[[Connection], EncodedRequest[T]], *, deadline: float
    ) -> T:
        """The response to a request that `build` makes for the connection, before `deadline` (monotonic).

        Raises what `lend` raises.
        """

        def exchange(connection: Connection) -> T:
            (response,) = connection.send_requests([build(connection)])
            return response

        return self.lend(address, exchange, deadline=deadline)

    def lend(self, address: Address, use: Callable[[Connection], T], *, deadline: float) -> T:
        """Calls `use` with a connection to the address, and returns its result.

        `use` sends requests, and reads all responses. It may be called again: the broker may have closed an
        idle connection. Raises `ConnectError`, `Denied` for a refused log-in, `ConfigError` for properties
        that koff cannot use, and what `use` raises.
        """
        self.check_process()
        while (connection := self._take_idle(address)) is not None:
            try:
                return self._use(connection, address, use, deadline)
            except ConnectError:
                # What closed this connection has closed the others, too.
                self._close_idle(address)
                if time.monotonic() >= deadline:
                    raise
        return self._use(self._connect(address, deadline), address, use, deadline)

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Closes the idle connections to all other addresses."""
        with self._lock:
            gone = [address for address in self._idle if address not in addresses]
        for address in gone:
            self._close_idle(address)

    def _connect(self, address: Address, deadline: float) -> Connection:
        now = time.monotonic()
        with self._lock:
            if self._connecting[address] == MAX_CONNECTING:
                host, port = address
                raise ConnectError(
                    f"cannot reach Kafka at {host}:{port}: {MAX_CONNECTING} attempts do not return; "
                    "check the name server"
                )
            self._connecting[address] += 1
        timeout_s = max(0.001, min(self._conf.connect_timeout_s, deadline - now))
        try:
            return Connection.connect(self._conf, *address, token=self._token, timeout_s=timeout_s)
        finally:
            with self._lock:
                self._connecting[address] -= 1
                if not self._connecting[address]:
                    del self._connecting[address]

    def _use(
        self, connection: Connection, address: Address, use: Callable[[Connection], T], deadline: float
    ) -> T:
        try:
            connection.deadline, connection.timeout_s = deadline, self._conf.request_timeout_s
            return use(connection)
        finally:
            self._put_idle(address, connection)  # unless an error has closed it

    def _take_idle(self, address: Address) -> Connection | None:
        with self._lock:
            if self._closed:
                raise Closed("the connections are closed")
            idle = self._idle.get(address)
            if not idle:
                return None
            used_s, connection = idle.pop()
        if time.monotonic() < used_s + IDLE_S:
            return connection
        connection.close()
        self._close_idle(address)  # the others were not used for even longer
        return None

    def _put_idle(self, address: Address, connection: Connection) -> None:
        """Keeps the connection if it is open. Closes the connections that were not used for `IDLE_S`."""
        now, surplus = time.monotonic(), [connection]
        with self._lock:
            if not self._closed and not connection.closed and not connection.in_flight:
                idle = [*self._idle[address], (now, connection)]
                kept = [(used_s, each) for used_s, each in idle[-MAX_IDLE:] if now < used_s + IDLE_S]
                self._idle[address] = kept
                surplus = [each for _, each in idle[: len(idle) - len(kept)]]
        for each in surplus:
            each.close()

    def _close_idle(self, address: Address) -> None:
        with self._lock:
            idle = self._idle.pop(address, [])
        for _, connection in idle:
            connection.close()
