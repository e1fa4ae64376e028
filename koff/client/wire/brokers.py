"""Where a request goes: to the broker at an address, or to any broker of the cluster."""

import time
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import replace
from typing import TypeVar

from koff.client.addresses import check_addresses, parse_addresses
from koff.client.calls import call_in_thread
from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.foreign_errors import make_connect_error
from koff.client.wire.connection import Connection, UnsupportedVersion
from koff.client.wire.credentials import TokenSource
from koff.client.wire.pool import Address, ConnectionPool
from koff.errors import ConnectError, Denied, copy_error
from koff.proto.requests import EncodedRequest

T = TypeVar("T")
PATIENCE_S = 1.0
"""How long koff waits for a broker before it sends the request to another one as well."""
FAILED_S = 60.0
"""For this time, a broker that did not respond comes after the others."""


def _accept(_response: object, _address: Address) -> None:
    """Any response is right."""


class Brokers(Closing):
    """Sends requests over connections that stay open. A context manager; several threads may use it.

    `token` returns the bearer token if the properties choose SASL/OAUTHBEARER. Raises `ConfigError` for
    invalid addresses.
    """

    def __init__(self, conf: ClusterConf, *, token: TokenSource | None = None) -> None:
        self._conf, self._token = conf, token
        check_addresses(conf.brokers)
        self._bootstrap = list(parse_addresses(conf.brokers))
        # Each request has a deadline of its own.
        self._pool = ConnectionPool(replace(conf, request_timeout_s=float("inf")), token=token)
        self._members: dict[Address, None] = {}
        self._requested_s: dict[Address, float] = {}
        self._failed_s: dict[Address, float] = {}

    def close(self) -> None:
        """Closes the connections. Safe to call twice."""
        self._pool.close()

    def connect(self, address: Address, *, timeout_s: float) -> Connection:
        """A connection of the caller's own. Raises what `Connection.connect` raises."""
        return Connection.connect(self._conf, *address, token=self._token, timeout_s=timeout_s)

    def set_members(self, addresses: Iterable[Address]) -> None:
        """These are the brokers of the cluster now. Forgets those that are not in it any more."""
        self._members = dict.fromkeys(addresses)
        kept = {*self._members, *self._bootstrap}
        self._pool.keep_only(kept)
        self._requested_s = {
            at: requested_s for at, requested_s in self._requested_s.copy().items() if at in kept
        }
        self._failed_s = {at: failed_s for at, failed_s in self._failed_s.copy().items() if at in kept}

    def list_candidates(self) -> list[Address]:
        """The brokers for the next request: first those that respond, the one with the oldest request first.

        A bootstrap server may be a broker under another name, so these come after the brokers.
        """
        now, members = time.monotonic(), self._members

        def rank(address: Address) -> tuple[bool, bool, float]:
            has_failed = now < self._failed_s.get(address, float("-inf")) + FAILED_S
            return has_failed, address not in members, self._requested_s.get(address, float("-inf"))

        return sorted(members | dict.fromkeys(self._bootstrap), key=rank)

    def lend(self, address: Address, use: Callable[[Connection], T], *, deadline: float) -> T:
        """Calls `use` with a connection to that broker, and returns its result: see `ConnectionPool.lend`."""
        return self._pool.lend(address, use, deadline=deadline)

    def send_request(
        self,
        address: Address,
        build: Callable[[Connection], EncodedRequest[T]],
        *,
        deadline: float,
        check: Callable[[T, Address], None] = _accept,
    ) -> T:
        """The response of one broker, as `ConnectionPool.send_request` returns it.

        `check` raises `ConnectError` for a response that is as good as none.
        """
        try:
            response = self._pool.send_request(address, build, deadline=deadline)
            check(response, address)
        except ConnectError:
            self._failed_s[address] = time.monotonic()
            raise
        self._failed_s.pop(address, None)
        return response

    def send_to_any(
        self,
        build: Callable[[Connection], EncodedRequest[T]],
        *,
        deadline: float,
        candidates: Iterable[Address] | None = None,
        check: Callable[[T, Address], None] = _accept,
    ) -> tuple[Address, T]:
        """The response of the first of the candidates that responds, with its address.

        A broker that hangs must not take all the time: after `PATIENCE_S`, the next one gets the request too.
        Raises `ConnectError`, or `UnsupportedVersion` if a broker that responds is too old.
        """
        errors: list[BaseException] = []
        pending: dict[futures.Future[T], Address] = {}
        left = self.list_candidates() if candidates is None else list(candidates)

        def send(address: Address) -> T:
            return self.send_request(address, build, deadline=deadline, check=check)

        while left or pending:
            if left:
                address = left.pop(0)
                self._requested_s[address] = time.monotonic()
                pending[call_in_thread(send, address)] = address
            left_s = deadline - time.monotonic()
            wait_s = min(PATIENCE_S, left_s) if left else left_s
            for future in futures.wait(pending, max(0.0, wait_s), futures.FIRST_COMPLETED).done:
                address, error = pending.pop(future), future.exception()
                if error is None:
                    self._failed_s |= dict.fromkeys(pending.values(), time.monotonic())
                    return address, future.result()
                if isinstance(error, UnsupportedVersion):
                    raise copy_error(error)
                errors.append(error)
            if time.monotonic() >= deadline:
                break
        # A refused log-in says more than an address that does not respond.
        first = min(errors, key=lambda error: not isinstance(error, Denied), default=self.make_late_error())
        raise copy_error(first)

    def make_late_error(self) -> ConnectError:
        """The error for when no broker has responded in time."""
        return make_connect_error(self._conf.brokers, [])
