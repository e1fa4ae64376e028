"""Where Java is, whether it is new enough, and how a class of Kafka's is run."""

# ruff: noqa: S603 - it runs the JDK alone

import functools
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


def _check_version(path: str) -> None:
    try:
        said = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise KafkaTestError(
            f"{path} does not run ({error}): reinstall the JDK or point JAVA_HOME at one"
        ) from error
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found and int(found[1]) < KAFKA_NEEDS_JAVA:
        raise KafkaTestError(
            f"{path} is Java {found[1]}, but Kafka needs {KAFKA_NEEDS_JAVA} or newer:"
            " install one, or point JAVA_HOME at one"
        )


def java_class(jars: Path, class_name: str, *args: str, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs `class_name` with all of `jars` on the class path."""
    return [java_command(), *options, "-cp", f"{jars}/*", class_name, *args]
