"""koff's state directory: the real one, on files that outlive koff."""

import os
import random
import tempfile
from pathlib import Path

from koff.errors import KoffError
from koff.monitor.duties.loading import Load
from koff.monitor.duties.savings import Done, ForgetSaved, WriteRequest
from koff.monitor.requests import Failed, Input
from koff.monitor.state import StateDir

MEMORY = Path("/dev/shm")
"""Files are forced to the disk after each write: in memory that takes no time."""


class Disk:
    """The files of one run. A write replaces a file whole, or fails and changes nothing."""

    def __init__(self, rng: random.Random) -> None:
        self.is_full = False
        self._rng = rng
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._state: StateDir | None = None

    def close(self) -> None:
        """Removes all files."""
        self.restart()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def restart(self) -> None:
        """koff was killed: perhaps in the middle of a write, which leaves half a new file."""
        if self._state is None:
            return
        self._state.close()
        self._state = None
        files = self._files()
        if files and self._rng.random() < 0.3:
            half = self._rng.choice(files)
            half.with_name(half.name + ".new").write_bytes(half.read_bytes()[: self._rng.randrange(100)])

    def write(self, request: WriteRequest) -> Input:
        """Carries out a request to write."""
        state = self._open()
        if self.is_full and not isinstance(request, ForgetSaved):
            return Failed(request.id, "No space left on device")
        request.write(state)
        return Done(request.id)

    def load(self, request: Load) -> Input:
        """What can be read of that origin."""
        state = self._open()
        try:
            return request.load(state)
        except KoffError as error:
            return Failed(request.id, str(error))

    def damage(self) -> str:
        """Damages a file, and returns its name: some bytes differ, or the end is missing."""
        files = self._files()
        if not files:
            return ""
        file = self._rng.choice(files)
        data = bytearray(file.read_bytes())
        if self._rng.random() < 0.5:
            del data[self._rng.randrange(len(data)) :]
        else:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        file.write_bytes(data)
        return file.name

    def _open(self) -> StateDir:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="koff-simulation-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None
            )
        if self._state is None:
            self._state = StateDir(self._folder.name).lock()
        return self._state

    def _files(self) -> list[Path]:
        if self._folder is None:
            return []
        return sorted(
            file for file in Path(self._folder.name).iterdir() if file.name != "lock" and file.stat().st_size
        )
