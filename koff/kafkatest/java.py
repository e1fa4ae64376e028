"""The command line that runs one of Kafka's classes on Java."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from koff.errors import KoffError
from koff.java import MissingJava, find_java, version_text


class KafkaTestError(KoffError):
    """A real Kafka, or one of its tools, could not be fetched, started or run."""


def java_command(name: str = "java") -> str:
    """The path of a program of the JDK (`java`, `keytool`). Raises `KafkaTestError` when there is none."""
    try:
        return find_java(name)
    except MissingJava as error:
        raise KafkaTestError(f"Kafka runs on Java: {error}") from error


def archive_path(jars: Path) -> Path:
    """The path of the archive of the classes in `jars`, for exactly the installed Java; see `archive`."""
    digest = hashlib.sha256(version_text(java_command()).encode()).hexdigest()[:8]
    return jars.with_name(f"{jars.name}-java-{digest}.jsa")


def quick_options() -> list[str]:
    """Options that halve the time to start, by compiling less. Later options on a command line win."""
    return ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def class_command(jars: Path, class_name: str, *args: str, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs `class_name` with all of `jars` on the class path, quick to start."""
    quick, archive = quick_options(), archive_path(jars)
    # If Java cannot use the archive, it would log that to standard output, among the tool's own output.
    if archive.exists():
        quick += ["-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:SharedArchiveFile={archive}"]
    return [java_command(), *quick, *options, "-cp", f"{jars}/*", class_name, *args]
