"""What can be checked before Spark starts: versions, jars, folders; and Ivy's many lines in one."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from koff.errors import ConfigError
from koff.spark import requirements
from koff.spark.job.interval_watch import REMIND_S, IntervalWatch
from koff.spark.quiet_java import buffer_java_output
from koff.spark.requirements import (
    MissingJars,
    WrongVersion,
    check_versions,
    check_writable,
    find_unresolved,
    list_jars,
)
from koff.spark.tables.delta_tables import WrongTables, check_root
from koff.spark.tables.schemas import TABLES

IVY = b"""\
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: io.delta#delta-spark_2.13;9.9.9
\t\t:: io.delta#delta-spark_2.13;9.9.9: not found
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_2.13;9.9.9: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:529)
"""


def test_the_supported_versions_are_those_that_pip_installs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    for package, (major, minor) in requirements.SUPPORTED.items():
        pinned = f"{package}>={major}.{minor},<{major}.{minor + 1}"
        assert pinned in project["project"]["optional-dependencies"]["spark"]


def test_another_version_of_a_package_is_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    check_versions()  # what is installed here is supported
    monkeypatch.setattr(requirements, "version", lambda package: "4.2.0")
    with pytest.raises(WrongVersion, match=r"pyspark 4\.2\.0 is installed.*4\.0\.x only: pip install"):
        check_versions()


def fail_to_start(output: bytes) -> None:
    """Does what a start of Java does that prints `output` and ends."""
    with buffer_java_output() as java:
        os.write(java["stderr"], output)
        raise RuntimeError("JAVA_GATEWAY_EXITED")


def test_an_unresolved_package_is_one_line_and_ivys_lines_are_not_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(MissingJars) as raised:
        fail_to_start(IVY)
    assert str(raised.value).startswith("Spark could not download io.delta:delta-spark_2.13:9.9.9: ")
    assert "--jars DIR" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_other_output_of_java_is_printed_when_java_fails(capfd: pytest.CaptureFixture[str]) -> None:
    assert find_unresolved(b"Error: Could not create the Java Virtual Machine.\n") is None
    with pytest.raises(RuntimeError, match="EXITED"):
        fail_to_start(b"Could not reserve enough space\n")
    assert capfd.readouterr().err == "Could not reserve enough space\n"


def test_the_folder_of_jars_must_have_deltas_of_the_installed_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "version", lambda package: "4.0.1")
    with pytest.raises(MissingJars, match="is not a folder"):
        list_jars(tmp_path / "absent")
    with pytest.raises(MissingJars, match=r"has no delta-spark_2\.13-4\.0\.1\.jar"):
        list_jars(tmp_path)
    old = tmp_path / "delta-spark_2.13-4.0.0.jar"
    old.touch()
    with pytest.raises(MissingJars, match=r"has no delta-storage-4\.0\.1\.jar"):
        list_jars(tmp_path)
    (tmp_path / "io.delta_delta-storage-4.0.1.jar").touch()
    with pytest.raises(MissingJars, match=r"has delta-spark 4\.0\.0, and the Python package has 4\.0\.1"):
        list_jars(tmp_path)
    old.rename(tmp_path / "io.delta_delta-spark_2.13-4.0.1.jar")
    (tmp_path / "README").touch()
    assert [Path(path).name for path in list_jars(tmp_path)] == [
        "io.delta_delta-spark_2.13-4.0.1.jar",
        "io.delta_delta-storage-4.0.1.jar",
    ]


def test_a_path_that_cannot_be_written_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "new" / "report.html", folder=False)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a folder"):
        check_writable(tmp_path, folder=False)
    with pytest.raises(ConfigError, match="is a file"):
        check_writable(tmp_path / "file", folder=True)
    with pytest.raises(ConfigError, match="file is a file and not a folder"):
        check_writable(tmp_path / "file" / "t", folder=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=re.escape(f"may not write to {tmp_path}")):
        check_writable(tmp_path / "t", folder=True)
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    with pytest.raises(ConfigError, match=re.escape(f"the file system of {tmp_path} is read-only")):
        check_writable(tmp_path / "t", folder=True)


def test_a_folder_that_cannot_be_one_of_tables_is_refused_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_root("s3a://bucket/koff", create=False)  # only Spark can look there
    check_root(str(tmp_path), create=True)
    with pytest.raises(WrongTables, match="no tables of koff's"):
        check_root(str(tmp_path), create=False)
    (tmp_path / "file").touch()
    with pytest.raises(WrongTables, match=r"contains other files \(file\)"):
        check_root(str(tmp_path), create=True)
    with pytest.raises(WrongTables, match="is a file"):
        check_root(str(tmp_path / "file"), create=True)
    for name in TABLES:
        (tmp_path / "t" / name).mkdir(parents=True)
    check_root(str(tmp_path / "t"), create=False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check_root(str(tmp_path / "t"), create=False)  # for commands that only read
    with pytest.raises(ConfigError, match="may not write"):
        check_root(str(tmp_path / "t"), create=False, write=True)


def test_an_interval_that_is_not_kept_is_said_once_for_each_cluster_and_again_later() -> None:
    watch = IntervalWatch(30)
    samples = [("a", 0), ("a", 30), ("b", 31), ("a", 76), ("b", 77), ("a", 200), ("a", 76 + REMIND_S)]
    assert [watch.note_sample(*sample) for sample in samples] == [
        False,
        False,
        False,
        True,
        True,
        False,
        True,
    ]
