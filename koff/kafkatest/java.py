"""Finds Java, checks its version, and makes the command line that runs one of Kafka's classes."""

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

MIN_JAVA_VERSION = 17  # for Kafka 4's brokers and tools


class KafkaTestError(KoffError):
    """A real Kafka, or one of its tools, could not be fetched, started or run."""


@functools.cache
def java_command(name: str = "java") -> str:
    """The path of a program of the JDK (`java`, `keytool`), from JAVA_HOME before PATH.

    Raises `KafkaTestError` when there is none, or when `java` is too old for Kafka.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(name, path=str(Path(home) / "bin")) if home else None
    path = path or shutil.which(name)
    if path is None:
        raise KafkaTestError(
            f"no {name!r} in JAVA_HOME or on PATH, and Kafka runs on Java:"
            f" install a JDK {MIN_JAVA_VERSION} or newer"
            f" (Debian and Ubuntu: apt-get install openjdk-{MIN_JAVA_VERSION}-jdk-headless)"
        )
    if name == "java":
        _check_version(path)
    return path


@functools.cache
def _version_text(path: str) -> str:
    """The output of `java -version`, which Java prints to standard error."""
    try:
        return subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise KafkaTestError(
            f"{path} does not run ({error}): reinstall the JDK or point JAVA_HOME at one"
        ) from error


def _check_version(path: str) -> None:
    # Up to Java 8 the version is "1.8.0_292", later "17.0.2".
    match = re.search(r'version "(?:1\.)?(\d+)', _version_text(path))
    if match and int(match[1]) < MIN_JAVA_VERSION:
        raise KafkaTestError(
            f"{path} is Java {match[1]}, but Kafka needs {MIN_JAVA_VERSION} or newer:"
            " install one, or point JAVA_HOME at one"
        )


def archive_path(jars: Path) -> Path:
    """The path of the archive of the classes in `jars`, for exactly the installed Java; see `archive`."""
    digest = hashlib.sha256(_version_text(java_command()).encode()).hexdigest()[:8]
    return jars.with_name(f"{jars.name}-java-{digest}.jsa")


def class_command(jars: Path, class_name: str, *args: str, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs `class_name` with all of `jars` on the class path, quick to start."""
    # Compiling less halves the time to start. Later options win, so a benchmark can have the full compiler.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    archive = archive_path(jars)
    # If Java cannot use the archive, it would log that to standard output, among the tool's own output.
    if archive.exists():
        quick += ["-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:SharedArchiveFile={archive}"]
    return [java_command(), *quick, *options, "-cp", f"{jars}/*", class_name, *args]
