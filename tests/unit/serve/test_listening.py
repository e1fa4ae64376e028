"""The addresses that the server listens on."""

import errno
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from koff.errors import ConfigError
from koff.serve.http import Server
from koff.serve.listen_address import parse_listen_address
from koff.serve.listening import ServeConf, open_sockets
from tests.unit.serve.views import Source, fill_tracker, take_view


def find_answers(listen: str) -> dict[str, bool]:
    """Whether a server that listens there answers on the addresses of this machine."""
    answers = {}
    with Server(Source(take_view(fill_tracker())), ServeConf(listen)) as server:
        port = int(server.url.rpartition(":")[2])
        for host in ("127.0.0.1", "::1"):
            try:
                with socket.create_connection((host, port), timeout=30) as connection:
                    connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                    answers[host] = connection.recv(12) == b"HTTP/1.1 200"
            except ConnectionRefusedError:
                answers[host] = False
    return answers


def test_without_a_host_the_server_listens_on_ipv4_and_ipv6():
    assert find_answers(":0") == {"127.0.0.1": True, "::1": True}


def test_the_default_is_loopback():
    assert parse_listen_address(ServeConf().listen) == ("127.0.0.1", 9850)


def test_an_address_is_the_only_one_that_the_server_listens_on():
    assert find_answers("127.0.0.1:0") == {"127.0.0.1": True, "::1": False}
    assert find_answers("0.0.0.0:0") == {"127.0.0.1": True, "::1": False}
    assert find_answers("[::1]:0") == {"127.0.0.1": False, "::1": True}


def test_a_name_stands_for_all_its_addresses(monkeypatch):
    both = [(socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with ExitStack() as open_:
        sockets = [open_.enter_context(opened) for opened in open_sockets(ServeConf("localhost:0"))]
        assert [opened.getsockname()[0] for opened in sockets] == ["::1", "127.0.0.1"]
        assert len({opened.getsockname()[1] for opened in sockets}) == 1


@pytest.mark.parametrize("missing", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("listen", [":0", "localhost:0"])
def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch, listen, missing):
    create = socket.create_server

    def create_ipv4(address: tuple, *, family: int, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(missing, "no IPv6")
        return create(address, family=family, **options)

    both = [(socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    monkeypatch.setattr(socket, "create_server", create_ipv4)
    (opened,) = open_sockets(ServeConf(listen))
    with opened:
        assert opened.family == socket.AF_INET


def test_an_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as raised:
            Server(Source(), ServeConf(listen))
    assert str(raised.value) == (
        f"cannot listen on {listen}: Address already in use; choose another address with --listen"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_in_use_for_one_kind_is_named(host):
    with open_sockets(ServeConf(f"{host}:0"))[0] as taken:
        listen = f":{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen on {listen}: Address already in use"):
            Server(Source(), ServeConf(listen))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "192.0.2.1"])
def test_a_host_that_is_not_here_is_named(host):
    with pytest.raises(
        ConfigError, match=rf"^cannot listen on {host}:0: .+; choose another address with --listen$"
    ):
        Server(Source(), ServeConf(f"{host}:0"))


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:", ":65536", ":http", ":\u0663", ""])
def test_what_is_no_address_is_refused(listen):
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse_listen_address(listen)
