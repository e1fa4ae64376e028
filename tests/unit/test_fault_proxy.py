"""The proxy that the fault tests put before a broker."""

import socket
import threading
import time
from contextlib import closing, suppress

import pytest

from tests.fault_proxy import TO_CLIENT, FaultProxy, fault_proxies

PATIENCE_S = 60.0
SILENCE_S = 0.3
"""Nothing has arrived for so long: the proxy holds it back."""


def echo(listening: socket.socket) -> None:
    """Sends back what each connection sends, one connection after the other, until the listener is closed."""
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                while chunk := connection.recv(1000):
                    connection.sendall(chunk)


@pytest.fixture
def proxy():
    """A proxy before a server that sends everything back."""
    with socket.create_server(("127.0.0.1", 0)) as listening, fault_proxies(1) as (proxy,):
        server = threading.Thread(target=echo, args=(listening,))
        server.start()
        proxy.target = listening.getsockname()[1]
        yield proxy
        proxy.close()
        listening.shutdown(socket.SHUT_RDWR)
        server.join()


def connect(proxy: FaultProxy) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S))


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_S)
    try:
        client.recv(1000)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE_S)
    return False


@pytest.mark.parametrize("directions", [(), (TO_CLIENT,)], ids=["both", "responses"])
def test_it_relays_both_directions_until_a_stall_and_delivers_what_was_sent_after_it(proxy, directions):
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(1000) == b"one"
        proxy.stall(*directions)
        client.sendall(b"two")
        assert is_silent(client)
        proxy.resume()
        assert client.recv(1000) == b"two"


def test_a_delay_holds_each_chunk_back_in_both_directions(proxy):
    proxy.delay(0.2)
    with connect(proxy) as client:
        sent_s = time.monotonic()
        client.sendall(b"one")
        assert client.recv(1000) == b"one"
        assert time.monotonic() - sent_s >= 0.4
