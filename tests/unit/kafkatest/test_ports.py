"""Which ports are free for a server."""

import socket
import subprocess
import sys

from koff.kafkatest.ports import free_ports, is_free


def test_a_port_is_taken_while_a_server_listens_and_free_again_when_it_has_ended():
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as server:
        assert not is_free(port)
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()  # first, as servers do at their end: TIME_WAIT stays at this port
            assert client.recv(1) == b""
    assert is_free(port)


def test_two_processes_are_given_no_port_in_common():
    command = [
        sys.executable,
        "-c",
        "from koff.kafkatest import free_ports; print(*free_ports(300)); input()",
    ]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        given = [
            one.stdout.readline().split(),
            other.stdout.readline().split(),
            list(map(str, free_ports(300))),
        ]
        one.communicate("\n")
        other.communicate("\n")
    assert [len(set(ports)) for ports in given] == [300] * 3
    assert len(set().union(*given)) == 900


def test_a_port_is_not_given_again_soon():
    assert not set(free_ports(200)) & set(free_ports(200))
