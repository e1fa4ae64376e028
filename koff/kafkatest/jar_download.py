"""Downloads listed jars from a Maven repository, several at a time, through the package jgo.

A jar is complete when its SHA-256 is that of the list. Complete jars stay when a download breaks off, so the
next one fetches only the rest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self
from xml.etree import ElementTree

from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.progress_line import Progress

if TYPE_CHECKING:
    from jgo.maven import MavenContext

_AT_ONCE = 8
_TIMEOUT_S = 20
_CURE = (
    "Check the network, HTTPS_PROXY and KOFF_MAVEN_REPOSITORY (address or folder of a Maven repository), then"
    " run this again: complete jars are kept"
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

    def is_at(self, path: Path) -> bool:
        """Whether `path` is this jar, whole and unchanged."""
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


class _Stopped(Exception):
    """Another jar failed, or the user interrupted the download."""


@dataclass(slots=True)
class _Tally:
    """What is downloaded so far. The threads add to it."""

    total: int
    started_at: float = field(default_factory=time.monotonic)
    begun: dict[str, int] = field(default_factory=dict)
    is_stopped: bool = False

    @contextmanager
    def count(self, name: str, _size: int) -> Iterator[Callable[[int], None]]:
        """Yields a function that jgo calls with the size of each piece of the jar `name`."""

        def add(size: int) -> None:
            if self.is_stopped:
                raise _Stopped
            self.begun[name] += size

        self.begun[name] = 0  # one thread a name: no two add to the same number
        yield add

    def describe(self) -> str:
        received = sum(list(self.begun.values()))
        seconds = time.monotonic() - self.started_at
        left = f", {(self.total - received) * seconds / received:.0f} s left" if received else ""
        return f"{received / 2**20:.1f} of {self.total / 2**20:.1f} MiB{left}"


def fetch_jars(jars: Sequence[Jar], folder: Path, report: Progress) -> None:
    """Fills `folder`, which appears when all of `jars` are in it. Raises `KafkaTestError` when one fails."""
    repository = folder.with_name(f"{folder.name}.part")
    tally = _Tally(sum(jar.size for jar in jars if not jar.is_at(repository / jar.path)))
    context = _make_context(repository, tally)
    report(tally.describe())
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as work:
        libs = Path(work) / "libs"
        libs.mkdir()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                running = {pool.submit(_fetch_jar, context, jar, libs) for jar in jars}
                while running:
                    done, running = wait(running, timeout=0.5, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
                    report(tally.describe())
            finally:
                tally.is_stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
        # A rename within one file system is atomic: no process sees a folder with half of the jars.
        libs.rename(folder)
    shutil.rmtree(repository, ignore_errors=True)


def _fetch_jar(context: MavenContext, jar: Jar, libs: Path) -> None:
    group, artifact, version, name = jar.path.rsplit("/", 3)
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    kept = context.repo_cache / jar.path
    if not jar.is_at(kept):
        kept.unlink(missing_ok=True)  # jgo would take the part of a jar for the whole
    try:
        component = context.project(group.replace("/", "."), artifact).at_version(version)
        found = component.artifact(classifier, "jar").resolve()
    except (OSError, RuntimeError) as error:  # the errors of requests are OSErrors
        raise KafkaTestError(f"cannot fetch {name}: {_describe(error)}. {_CURE}") from error
    if not jar.is_at(found):
        raise KafkaTestError(
            f"{name} came with another content than koff's list says (SHA-256 {jar.sha256}). {_CURE}"
        )
    shutil.copyfile(found, libs / name)


def _describe(error: Exception) -> object:
    """The reason alone, where requests would add its pool of connections and the path."""
    cause = error.args[0] if error.args else error
    return getattr(cause, "reason", None) or cause


def _make_context(repository: Path, tally: _Tally) -> MavenContext:
    """jgo's access to the configured repository, or to Maven Central. Downloads go to `repository`."""
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise KafkaTestError(
            "the package jgo is missing, and Kafka's jars come through it: pip install 'koff[demo]'"
        ) from error
    source = os.environ.get("KOFF_MAVEN_REPOSITORY") or _find_mirror(Path.home() / ".m2" / "settings.xml")
    is_folder = bool(source) and "://" not in source
    return MavenContext(
        resolver=PythonResolver(progress_callback=tally.count),
        repo_cache=repository,
        local_repos=[Path(source).expanduser()] if is_folder else [],
        remote_repos={"configured": source.rstrip("/")} if source and not is_folder else None,
        offline=is_folder,
        timeout=_TIMEOUT_S,
    )


def _find_mirror(settings: Path) -> str:
    """The address of the mirror of Maven Central in Maven's settings.xml, or ""."""
    if not settings.is_file():
        return ""
    try:
        root = ElementTree.parse(settings).getroot()  # noqa: S314 - the user's own file
    except ElementTree.ParseError as error:
        raise KafkaTestError(
            f"{settings} is not XML ({error}): correct it, or set KOFF_MAVEN_REPOSITORY"
        ) from error
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        names = {name.strip() for name in mirror.findtext("{*}mirrorOf", "").split(",")}
        if names & {"*", "external:*", "central"} and "!central" not in names:
            return mirror.findtext("{*}url", "").strip()
    return ""
