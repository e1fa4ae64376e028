"""Where a running koff listens, as /proc says it."""

import os
import socket
from pathlib import Path

import pytest

from koff.cli.listening_process import find_listen_address

COMMAND = ("/opt/koff/bin/python3", "/opt/koff/bin/koff", "monitor", "--listen", ":1")


def make_process(proc: Path, number: int, command: tuple[str, ...], *opened: socket.socket) -> None:
    """A process with these sockets. The tables of the kernel are the real ones."""
    folder = proc / str(number)
    (folder / "fd").mkdir(parents=True)
    (folder / "net").symlink_to("/proc/self/net")
    (folder / "cmdline").write_bytes(b"\0".join(map(os.fsencode, command)) + b"\0")
    for at, each in enumerate(opened):
        inode = os.fstat(each.fileno()).st_ino
        (folder / "fd" / str(at)).symlink_to(f"socket:[{inode}]")


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", ""), ("::1", "[::1]"), ("::", "")]
)
def test_the_address_is_that_of_the_socket_whatever_the_options_say(address: str, host: str, tmp_path: Path):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("::1" if ":" in address else "127.0.0.1", port)) as client:
            make_process(tmp_path, 7, COMMAND, client, listening)
            assert find_listen_address(tmp_path) == f"{host}:{port}"


def test_processes_that_are_no_koff_or_do_not_listen_are_passed_over(tmp_path: Path):
    assert find_listen_address(tmp_path) is None
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as koff:
        make_process(tmp_path, 1, ("/sbin/docker-init", "--", "koff", "monitor"))
        make_process(tmp_path, 2, ("nginx",), other)
        make_process(tmp_path, 3, ("koff", "health"), other)
        (tmp_path / "4").mkdir()  # it has ended meanwhile
        assert find_listen_address(tmp_path) is None
        make_process(tmp_path, 10, ("python", "-m", "koff", "monitor"), koff)
        assert find_listen_address(tmp_path) == f"127.0.0.1:{koff.getsockname()[1]}"
