"""Free loopback ports, for servers that must know their port before they listen."""

import itertools
import os
import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
_BELOW_EPHEMERAL = range(20_000, 32_000)  # Linux gives 32768 and above to outgoing connections
_SHARE = 500
"""So many ports in a row are for one process: others could take the ports of a broker that is restarted."""


def free_ports(count: int) -> list[int]:
    """`count` different ports on which no process listens now.

    No other process that calls this function takes one of them, as long as this process lives.
    """
    ports: list[int] = []
    for port in itertools.islice(_SHARES.ports, len(_BELOW_EPHEMERAL)):
        if len(ports) == count:
            break
        if is_free(port) and port not in ports:
            ports.append(port)
    return ports


def is_listening(port: int, *, timeout_s: float = 0.5) -> bool:
    """Whether a process accepts connections on `port`."""
    try:
        socket.create_connection((HOST, port), timeout_s).close()
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on `port`."""
    with socket.socket() as probe:
        # As servers do: connections that a server has closed before do not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class _Shares:
    """The ports of this process in turn, so that a port comes back late."""

    def __init__(self) -> None:
        self._owner_pid = 0
        self._ports: Iterator[int] = iter(())

    @property
    def ports(self) -> Iterator[int]:
        if self._owner_pid != os.getpid():  # a forked child has a share of its own
            self._owner_pid, self._ports = os.getpid(), itertools.cycle(_take_share())
        return self._ports


_SHARES = _Shares()


def _take_share() -> list[int]:
    """The ports of a share that no other process has. All ports, in random order, if there is none."""
    shares = range(_BELOW_EPHEMERAL.start, _BELOW_EPHEMERAL.stop, _SHARE)
    for first in random.sample(shares, len(shares)):
        lock = socket.socket()
        try:
            lock.bind((HOST, first))  # it does not listen: the process has this port until it ends
        except OSError:
            lock.close()
            continue
        lock.detach()
        return list(range(first + 1, first + _SHARE))
    return random.sample(_BELOW_EPHEMERAL, len(_BELOW_EPHEMERAL))
