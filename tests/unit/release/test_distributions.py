"""What is in wheel and sdist."""

import email
import subprocess
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from trove_classifiers import classifiers

from koff.version import VERSION
from tests.distributions import ROOT, Distributions, build_distributions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def list_source_files(folder: str = ".") -> set[str]:
    """The files that git tracks, or would after `git add`. Without a repository, skips the test."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the git repository")
    # The tree may belong to another user, as in a container.
    command = [
        "git",
        "-c",
        f"safe.directory={ROOT}",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        folder,
    ]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def info() -> str:
    """The folder of the wheel's metadata."""
    return f"koff-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def metadata(distributions: Distributions, info: str) -> Message:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        return email.message_from_bytes(wheel.read(f"{info}/METADATA"))


def test_the_names_of_the_files_have_the_version(distributions: Distributions):
    assert distributions.wheel.name == f"koff-{VERSION}-py3-none-any.whl"
    assert distributions.sdist.name == f"koff-{VERSION}.tar.gz"


def test_the_wheel_has_each_file_of_the_package_and_the_licence(distributions: Distributions, info: str):
    with zipfile.ZipFile(distributions.wheel) as wheel:
        names = set(wheel.namelist())
        assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert wheel.read(f"{info}/entry_points.txt").split() == [
            *(b"[console_scripts]", b"koff", b"=", b"koff.cli:main"),
            *(b"[pytest11]", b"koff", b"=", b"koff.pytest_plugin"),
        ]
    assert "koff/py.typed" in names
    assert {name for name in names if not name.startswith(info)} == list_source_files("koff")


def test_the_sdist_has_the_whole_source_tree_and_nothing_else(distributions: Distributions):
    """Distributors run the tests, which read also docs/, deploy/ and the Makefile: 2 MB in all."""
    with tarfile.open(distributions.sdist) as sdist:
        names = {member.name.removeprefix(f"koff-{VERSION}/") for member in sdist if not member.isdir()}
    assert names == list_source_files() | {"PKG-INFO"}
    assert distributions.sdist.stat().st_size < 5e6


def test_the_sdist_gives_the_same_wheel(distributions: Distributions, tmp_path: Path):
    with tarfile.open(distributions.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    again = build_distributions(tmp_path / "dist", source=tmp_path / f"koff-{VERSION}")
    assert again.wheel.read_bytes() == distributions.wheel.read_bytes()


def test_the_metadata_says_what_koff_is_and_needs(metadata: Message):
    assert (metadata["Name"], metadata["Version"]) == ("koff", VERSION)
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(required) == len(PROJECT["dependencies"])
    assert set(metadata.get_all("Classifier", [])) <= classifiers
