"""Where Java is, whether it is new enough, and how a class of Kafka's is run."""

# ruff: noqa: S603 - it runs the JDK alone

import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from koff.errors import KoffError

KAFKA_NEEDS_JAVA = 17  # Kafka 4's brokers and tools


class KafkaTestError(KoffError):
    """A real Kafka, or one of its tools, could not be fetched, started or run."""


@functools.cache
def java_command(name: str = "java") -> str:
    """The path of a program of the JDK (`java`, `keytool`), of JAVA_HOME before PATH.

    Raises `KafkaTestError` when there is none, or when it is too old for Kafka.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(name, path=str(Path(home) / "bin")) if home else None
    path = path or shutil.which(name)
    if path is None:
        raise KafkaTestError(
            f"no {name!r} in JAVA_HOME or on PATH, and Kafka runs on Java:"
            f" install a JDK {KAFKA_NEEDS_JAVA} or newer"
            f" (Debian and Ubuntu: apt-get install openjdk-{KAFKA_NEEDS_JAVA}-jdk-headless)"
        )
    if name == "java":
        _check_version(path)
    return path


@functools.cache
def _version(path: str) -> str:
    """What `java -version` says."""
    try:
        return subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise KafkaTestError(
            f"{path} does not run ({error}): reinstall the JDK or point JAVA_HOME at one"
        ) from error


def _check_version(path: str) -> None:
    found = re.search(r'version "(?:1\.)?(\d+)', _version(path))
    if found and int(found[1]) < KAFKA_NEEDS_JAVA:
        raise KafkaTestError(
            f"{path} is Java {found[1]}, but Kafka needs {KAFKA_NEEDS_JAVA} or newer:"
            " install one, or point JAVA_HOME at one"
        )


def archive_path(jars: Path) -> Path:
    """Where the classes of `jars` are kept as this very Java loads them; see `archive`."""
    digest = hashlib.sha256(_version(java_command()).encode()).hexdigest()[:8]
    return jars.with_name(f"{jars.name}-java-{digest}.jsa")


def java_class(jars: Path, class_name: str, *args: str, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs `class_name` with all of `jars` on the class path, quick to start."""
    # Compiling less halves the time to start; later options win, so a benchmark may have the full compiler.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    archive = archive_path(jars)
    if archive.exists():  # the log stays off, as Java would tell standard output when it cannot use it
        quick += ["-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:SharedArchiveFile={archive}"]
    return [java_command(), *quick, *options, "-cp", f"{jars}/*", class_name, *args]
