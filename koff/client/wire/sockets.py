"""Sockets to brokers: every address of a host, and TLS."""

import socket
import time

from koff.client.cluster_conf import ClusterConf
from koff.client.wire.credentials import Credentials, build_tls_context
from koff.errors import copy_error


def open_socket(
    conf: ClusterConf, credentials: Credentials, host: str, port: int, until: float
) -> socket.socket:
    """A socket through TCP and TLS, before `until` (monotonic). Raises OSError."""
    context = build_tls_context(conf.read_properties()) if credentials.tls else None
    opened = _connect_to_any(
        host, port, _FAMILIES.get(conf.properties.get("broker.address.family", "any")), until
    )
    try:
        # Without TCP_NODELAY the second request in flight would wait for the acknowledgement of the first.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if context is None:
            return opened
        opened.settimeout(remaining_s(until))  # for the TLS handshake
        return context.wrap_socket(opened, server_hostname=host)
    except BaseException:
        opened.close()
        raise


_FAMILIES = {"v4": socket.AF_INET, "v6": socket.AF_INET6}
"""The values of librdkafka's `broker.address.family`; all others mean any."""


def _connect_to_any(host: str, port: int, family: int | None, until: float) -> socket.socket:
    """A connection to the first of the host's addresses that responds. The addresses share the time."""
    try:
        found = socket.getaddrinfo(host, port, family or socket.AF_UNSPEC, socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of the name is empty, or longer than 63 characters
        raise OSError(f"no valid host name: {error}") from error
    failure: OSError = OSError("the name has no address")
    for number, (of_family, kind, protocol, _, address) in enumerate(found):
        try:
            opened = socket.socket(of_family, kind, protocol)
        except OSError as error:  # this machine has no IPv6, for example
            failure = copy_error(error)
            continue
        try:
            opened.settimeout(remaining_s(until) / (len(found) - number))
            opened.connect(address)
        except OSError as error:
            opened.close()
            failure = copy_error(error)
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise copy_error(failure)


def remaining_s(until: float) -> float:
    """How many seconds are left; raises `TimeoutError` if there are none."""
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("no response in time")
    return remaining
