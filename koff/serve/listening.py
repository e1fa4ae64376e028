"""The address that the server listens on."""

import errno
import os
import socket
from dataclasses import dataclass, field
from typing import Any

from koff.errors import ConfigError, copy_error
from koff.serve.access import AccessConf
from koff.serve.listen_address import DEFAULT_LISTEN, parse_listen_address

BACKLOG = 1024
"""So many connections may wait to be accepted. More would try again a second later."""
_NOT_ON_THIS_MACHINE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class ServeConf:
    """The address to listen on: `host:port`, `[v6]:port` or `:port` (all IPv4 and IPv6 addresses).

    Port 0 is a free port. `access` says who may connect.
    """

    listen: str = DEFAULT_LISTEN
    access: AccessConf = field(default_factory=AccessConf)


def open_sockets(conf: ServeConf) -> list[socket.socket]:
    """Sockets that listen: one for each address of the host. The caller closes them.

    Raises `ConfigError` if the host has no address, or koff cannot listen on it.
    """
    host, port = parse_listen_address(conf.listen)
    try:
        return _open_any(port) if not host else _open_all(host, port)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can be so long
        why = str(error)
        if isinstance(error, socket.gaierror):
            why = error.strerror or why
        elif isinstance(error, OSError) and error.errno is not None:
            why = os.strerror(error.errno)
        raise ConfigError(
            f"cannot listen on {conf.listen}: {why}; choose another address with --listen"
        ) from error


def find_listen_fault(conf: ServeConf) -> str | None:
    """Why koff could not listen there, None if it could. An address in use is right: koff may be running."""
    try:
        sockets = open_sockets(conf)
    except ConfigError as error:
        is_in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        return None if is_in_use else str(error)
    for opened in sockets:
        opened.close()
    return None


def _open_any(port: int) -> list[socket.socket]:
    """One socket for all addresses: of both kinds, or of IPv4 where the machine has no IPv6."""
    try:
        return [_open(socket.AF_INET6, ("::", port))]
    except OSError as error:
        if error.errno not in _NOT_ON_THIS_MACHINE:
            raise
    return [_open(socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104 - the user asked for all addresses


def _open_all(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host that this machine has, all with the same port."""
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if sockets:
                port = sockets[0].getsockname()[1]
            try:
                sockets.append(_open(family, (address[0], port, *address[2:])))
            except OSError as error:
                # `localhost` may have ::1 in a container without IPv6.
                if error.errno not in _NOT_ON_THIS_MACHINE:
                    raise
                failure = copy_error(error)
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    if not sockets:
        assert failure is not None
        raise copy_error(failure)
    return sockets


def _open(family: int, address: tuple[Any, ...]) -> socket.socket:
    is_any = address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_any)
