"""Downloads listed jars from a Maven repository, several at a time.

A jar is complete when its SHA-256 is that of the list. Complete jars and parts of jars stay when a download
breaks off, so the next one fetches only the rest.
"""

import hashlib
import queue
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.maven import Repository, find_repository
from koff.kafkatest.progress_line import Progress

_AT_ONCE = 8
_REPORT_S = 0.5
_STALLED_S = 3.0
_BAR = 20
_CURE = (
    "Check the network, HTTPS_PROXY and KOFF_MAVEN_REPOSITORY (address or folder of a Maven repository), then"
    " run this again: it continues where this download ended"
)


@dataclass(frozen=True, slots=True)
class Jar:
    """A line of a list: checksum, size in bytes, and path in a Maven repository."""

    sha256: str
    size: int
    path: str

    @classmethod
    def parse(cls, line: str) -> Self:
        sha256, size, path = line.split()
        return cls(sha256, int(size), path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def is_at(self, path: Path) -> bool:
        """Whether `path` is this jar, whole and unchanged."""
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


class _Stopped(Exception):
    """Another jar failed, or the user interrupted the download."""


def fetch_jars(jars: Sequence[Jar], folder: Path, report: Progress) -> None:
    """Fills `folder`, which appears when all of `jars` are in it. Raises `KafkaTestError` when one fails."""
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(exist_ok=True)
    _remove_others(part, {jar.name for jar in jars})
    download = _Download(find_repository(), jars, part)
    download.run(report)
    # A rename within one file system is atomic: no process sees a folder with half of the jars.
    part.rename(folder)


def _remove_others(folder: Path, names: set[str]) -> None:
    """Removes what an older list has left."""
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


class _Download:
    """Threads that fetch `jars` into `folder`, and what they have received.

    They are daemon threads which nobody waits for: Ctrl-C ends a download at once, also while a repository
    does not respond. After that, no thread writes.
    """

    def __init__(self, repository: Repository, jars: Sequence[Jar], folder: Path) -> None:
        self._repository, self._folder = repository, folder
        self._missing: queue.SimpleQueue[Jar] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[KafkaTestError | None] = queue.SimpleQueue()
        wanted = [jar for jar in jars if not jar.is_at(folder / jar.name)]
        for jar in sorted(wanted, key=lambda each: -each.size):  # the largest one last would be fetched alone
            self._missing.put(jar)
        self._count, self._total = len(wanted), sum(jar.size for jar in wanted)
        self._had = {jar.name: _size(folder / jar.name) for jar in wanted}
        self._have = dict(self._had)  # one thread a name: no two write the same number
        self._began_s = self._received_s = time.monotonic()
        self._is_stopped = False

    def run(self, report: Progress) -> None:
        """Returns when all jars are there. Raises `KafkaTestError` when one fails."""
        report(self._describe())
        for _ in range(min(_AT_ONCE, self._count)):
            threading.Thread(target=self._fetch_all, name="koff-jars", daemon=True).start()
        try:
            while self._count:
                try:
                    error = self._ended.get(timeout=_REPORT_S)
                except queue.Empty:
                    error = None
                else:
                    self._count -= 1
                if error:
                    raise error
                report(self._describe())
        finally:
            self._is_stopped = True

    def _fetch_all(self) -> None:
        while True:
            try:
                jar = self._missing.get_nowait()
                self._fetch(jar)
            except (queue.Empty, _Stopped):
                return
            except OSError as error:  # the errors of requests are OSErrors
                text = f"cannot fetch {jar.name}: {_describe_error(error)}. {_CURE}"
                self._ended.put(KafkaTestError(text))
            except KafkaTestError as error:
                self._ended.put(error)
            else:
                self._ended.put(None)

    def _fetch(self, jar: Jar) -> None:
        """Fetches the rest of the jar, again as long as each try brings some of it."""
        path = self._folder / jar.name
        if path.exists():
            self._receive_all(jar, path)
            if jar.is_at(path):
                return
            path.unlink()  # the part was of another file
        self._receive_all(jar, path)
        if not jar.is_at(path):
            path.unlink()
            raise KafkaTestError(
                f"{jar.name} came with another content than koff's list says (SHA-256 {jar.sha256}). {_CURE}"
            )

    def _receive_all(self, jar: Jar, path: Path) -> None:
        had = -1
        while had < _size(path) < jar.size:
            had = _size(path)
            try:
                self._receive(jar, path)
            except OSError:
                if _size(path) <= had:
                    raise

    def _receive(self, jar: Jar, path: Path) -> None:
        """Appends to the part of the jar at `path`, until the jar ends or the connection."""
        with self._repository.open(jar.path, _size(path)) as (offset, pieces), path.open("ab") as file:
            file.truncate(offset)
            for piece in pieces:
                if self._is_stopped:
                    raise _Stopped
                file.write(piece)
                self._have[jar.name], self._received_s = file.tell(), time.monotonic()

    def _describe(self) -> str:
        now_s, have = time.monotonic(), sum(self._have.values())
        bar = "#" * int(_BAR * have / self._total) if self._total else ""
        text = f"[{bar:.<{_BAR}}] {have / 2**20:.1f} of {self._total / 2**20:.1f} MiB"
        if now_s - self._received_s > _STALLED_S:
            return f"{text}, nothing received for {now_s - self._received_s:.0f} s"
        received = have - sum(self._had.values())
        seconds = now_s - self._began_s
        return f"{text}, {(self._total - have) * seconds / received:.0f} s left" if received > 0 else text


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _describe_error(error: Exception) -> object:
    """The reason alone, where requests would add its pool of connections and the path."""
    cause = next((each for each in error.args if isinstance(each, Exception)), error)
    return getattr(cause, "reason", None) or cause
