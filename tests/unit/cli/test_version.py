"""`koff version --verbose` says what is installed, and how to get what is missing."""

from importlib import metadata

import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.version import VERSION

REQUIRED = [
    "click>=8.1",
    "none-such>=1",
    "pytest>=8; extra == 'kafkatest'",
    "koff[demo]; extra == 'kafkatest'",
    "never-made>=1; python_version < '3.14' and extra == 'spark'",
    "pytest; extra == 'dev'",
]


def run(*args: str) -> list[str]:
    return CliRunner().invoke(main, ["version", *args], catch_exceptions=False).output.splitlines()


def test_the_version_alone_is_one_line():
    assert run() == [f"koff {VERSION}"]


def test_extras_are_there_or_missing_with_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRED)
    lines = run("--verbose")
    assert lines[1].startswith("Python 3.")
    assert f"needs: click {metadata.version('click')}, none-such (missing)" in lines
    assert f"koff[kafkatest]: pytest {metadata.version('pytest')}" in lines
    assert "koff[spark]: missing never-made: pip install 'koff[spark]'" in lines
    assert not any("dev" in line for line in lines if line.startswith("koff["))


def test_koff_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch):
    def find_nothing(_name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", find_nothing)
    assert run("--verbose")[-1].startswith("koff runs from its source")
