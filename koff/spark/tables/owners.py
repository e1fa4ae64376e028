"""Which process writes a cluster's rows, as far as it can be seen from here. No row depends on it."""

import os
import socket
from dataclasses import dataclass, field
from typing import Self
from uuid import uuid4

_RUNNING: set[str] = set()
"""The nonces of the owners of this process that have not ended."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A job of a process. `name` has the host of the process, its number, and when it started."""

    name: str
    nonce: str = field(default_factory=lambda: uuid4().hex)

    @classmethod
    def create(cls) -> Self:
        """The owner for a job that begins here. `end` it."""
        owner = cls(_name_process(os.getpid()))
        _RUNNING.add(owner.nonce)
        return owner

    def end(self) -> None:
        """Notes that the job has ended."""
        _RUNNING.discard(self.nonce)

    @property
    def is_here(self) -> bool:
        """Whether the process is, or was, on this host."""
        return self.name.partition(" ")[0] == socket.gethostname()

    def is_alive(self) -> bool:
        """Whether the job still runs, of a process on this host."""
        _, number, _ = self.name.split(" ")
        if int(number) == os.getpid():
            return self.nonce in _RUNNING
        return _name_process(int(number)) == self.name

    def __str__(self) -> str:
        host, number, _ = self.name.split(" ")
        return f"process {number} on {host}"


def _name_process(number: int) -> str:
    """Host, number and start of a process. The start is 0 where it is not known, and -1 without a process."""
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            started = file.read().rpartition(")")[2].split()[19]
    except OSError:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            started = "-1"
        except OSError:
            started = "0"
        else:
            started = "0"
    return f"{socket.gethostname()} {number} {started}"
