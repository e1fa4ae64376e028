"""Where a running `koff monitor` of this user listens, as Linux says it in /proc.

For `koff health` in a container, which does not see the options of koff monitor. Imports next to nothing.
"""

import itertools
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""


def find_listen_address(proc: Path = Path("/proc")) -> str | None:
    """The address of a `koff monitor` or `koff pipeline`, as `host:port`; None if there is none."""
    for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if _is_koff(process) and (inodes := _find_sockets(process)):
                return min(_list_addresses(process, inodes), default=None)
        except OSError:  # it has ended, or belongs to another user
            continue
    return None


def _is_koff(process: Path) -> bool:
    """Whether it runs `koff monitor` or `python -m koff monitor`."""
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    names = [os.path.basename(word) for word in words]
    return any(pair in _COMMANDS for pair in itertools.pairwise(names))


_COMMANDS = {("koff", "monitor"), ("koff", "pipeline")}


def _find_sockets(process: Path) -> set[str]:
    """The inodes of its open sockets."""
    targets = (os.readlink(link) for link in (process / "fd").iterdir())
    return {found[1] for target in targets if (found := re.fullmatch(r"socket:\[(\d+)\]", target))}


def _list_addresses(process: Path, inodes: set[str]) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        table = process / "net" / name
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and fields[9] in inodes:
                host, port = fields[1].split(":")
                yield f"{_format_host(host)}:{int(port, 16)}"


def _format_host(text: str) -> str:
    """The address as users write it. The kernel writes 32-bit words, the last byte first."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    packed = b"".join(words)
    if not any(packed):  # all addresses
        return ""
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]"
