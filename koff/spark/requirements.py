"""What the pipeline needs from the machine, checked before Spark starts: that takes half a minute.

Nothing here imports pyspark or starts Java.
"""

import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from koff.errors import ConfigError, KoffError

SUPPORTED = {"pyspark": (4, 0), "delta-spark": (4, 0)}
"""The release lines of packages that are tested. `pyproject.toml` pins the same."""
_DELTA_JAR = re.compile(r"(?:.*_)?delta-spark_[\d.]+-(?P<version>[\d.]+)\.jar$")
_STORAGE_JAR = re.compile(r"(?:.*_)?delta-storage-[\d.]+\.jar$")
_UNRESOLVED = re.compile(rb"unresolved dependency: ([^#\s]+)#([^;\s]+);([^:\s\]]+)")


class WrongVersion(ConfigError):
    """A package has a version that the pipeline was not tested with."""


class MissingJars(KoffError):
    """Spark could not download a Java package, or the folder of --jars lacks one."""


def check_versions() -> None:
    """Raises `WrongVersion` if pyspark or delta-spark is installed in a version that is not supported."""
    for package, line in SUPPORTED.items():
        try:
            installed = version(package)
        except PackageNotFoundError:  # Spark's own folder may hold it, without pip: its import decides
            continue
        if tuple(int(number) for number in re.findall(r"\d+", installed)[:2]) != line:
            wanted = ".".join(map(str, line))
            raise WrongVersion(
                f"{package} {installed} is installed, and koff is tested with {wanted}.x only: "
                "pip install --upgrade 'koff[spark]'"
            )


def list_jars(folder: Path) -> list[str]:
    """The paths of the .jar files in the folder of `--jars`. Raises `MissingJars` if it lacks Delta's."""
    if not folder.is_dir():
        raise MissingJars(f"--jars {folder} is not a folder: copy Delta's jars into a folder")
    jars = sorted(path.absolute() for path in folder.iterdir() if path.suffix == ".jar")
    delta = [match for path in jars if (match := _DELTA_JAR.match(path.name))]
    wanted = _find_version("delta-spark")
    if not delta or not any(_STORAGE_JAR.match(path.name) for path in jars):
        missing = "delta-storage" if delta else "delta-spark_2.13"
        raise MissingJars(
            f"--jars {folder} has no {missing}-{wanted or 'VERSION'}.jar: on a machine with a network, "
            "`koff pipeline` leaves Delta's jars in ~/.ivy2.5.2/jars; copy them from there"
        )
    if wanted and wanted not in (versions := sorted(match["version"] for match in delta)):
        raise MissingJars(
            f"--jars {folder} has delta-spark {', '.join(versions)}, and the Python package has {wanted}: "
            f"copy the jars of {wanted}"
        )
    return [str(path) for path in jars]


def check_writable(path: Path, *, folder: bool) -> None:
    """Raises `ConfigError` if the local file (or folder) cannot be written, with the reason."""
    if path.exists() and path.is_dir() != folder:
        raise ConfigError(f"{path} is a {'file' if path.is_file() else 'folder'}: give another path")
    present = path.absolute()
    while not present.exists():
        present = present.parent
    if present.is_file() and present != path.absolute():
        raise ConfigError(f"cannot write {path}: {present} is a file and not a folder")
    if not os.access(present, os.W_OK | (os.X_OK if present.is_dir() else 0)):
        if os.statvfs(present).f_flag & os.ST_RDONLY:
            raise ConfigError(f"cannot write {path}: the file system of {present} is read-only")
        raise ConfigError(f"cannot write {path}: this user may not write to {present}")


def find_unresolved(java_output: bytes) -> MissingJars | None:
    """The error for the Java packages that Spark could not download, if its output says so."""
    names = dict.fromkeys(
        b":".join(match).decode(errors="replace") for match in _UNRESOLVED.findall(java_output)
    )
    if not names:
        return None
    return MissingJars(
        f"Spark could not download {', '.join(names)}: check the name, and that this machine reaches a Maven "
        "repository (another one: --spark-conf spark.jars.repositories=URL); without a network: --jars DIR"
    )


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
