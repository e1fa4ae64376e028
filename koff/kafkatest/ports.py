"""Free loopback ports, for servers that must know their port before they listen."""

import random
import socket

HOST = "127.0.0.1"
_BELOW_EPHEMERAL = range(20_000, 32_000)  # Linux gives 32768 and above to outgoing connections


def free_ports(count: int) -> list[int]:
    """`count` different ports on which no process listens now. Another process may take one at any time."""
    ports: list[int] = []
    for port in random.sample(_BELOW_EPHEMERAL, len(_BELOW_EPHEMERAL)):
        if len(ports) == count:
            break
        if is_free(port):
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
