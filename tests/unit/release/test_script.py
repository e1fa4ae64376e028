"""The script that says whether the source tree may be released."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from koff.version import VERSION
from tests.distributions import ROOT

SCRIPT = ROOT / ".ci" / "release.py"
CHANGELOG = """# Changelog

## Unreleased

## 1.2.0 - 2026-12-01

### Added

- A thing.

## 1.1.0 - 2026-11-01

### Fixed

- An older thing.
"""
FILES = {
    "CHANGELOG.md": CHANGELOG,
    "koff/version.py": 'VERSION = "1.2.0"\n',
    "pyproject.toml": '[project]\nname = "koff"\n[project.urls]\nSource = "https://example.org/koff"\n',
    "deploy/helm/koff/Chart.yaml": "name: koff\nversion: 1.2.0\nappVersion: 1.2.0\n",
    "deploy/kubernetes/koff.yaml": "  image: koff:1.2.0\n",
    "deploy/helm/koff/values.yaml": "prometheusRule:\n  runbookUrl: https://example.org/koff/docs/runbooks.md\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A git repository of a koff that may be released as 1.2.0."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    commit(tmp_path)
    return tmp_path


def commit(tree: Path) -> None:
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "c"], check=True)


def change(tree: Path, name: str, old: str, new: str) -> None:
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new))
    commit(tree)


def run(tree: Path, *args: str) -> tuple[int, str]:
    """The exit code, and what was printed."""
    command = [sys.executable, str(SCRIPT), "--root", str(tree), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_tree_where_everything_agrees_may_be_released(tree: Path):
    assert run(tree, "check") == (0, "")
    assert run(tree, "check", "--tag", "v1.2.0") == (0, "")


@pytest.mark.parametrize("tag", ["v1.2.1", "1.2.0", "v1.2", "v1.2.0-rc1"])
def test_a_tag_must_be_that_of_the_version(tree: Path, tag: str):
    assert run(tree, "check", "--tag", tag) == (1, f"the tag is {tag}, but koff/version.py has 1.2.0\n")


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("CHANGELOG.md", "## Unreleased\n", "", "does not begin with"),
        (
            "CHANGELOG.md",
            "Unreleased\n",
            "Unreleased\n\n### Added\n\n- New.\n",
            "move them under '## 1.2.0 - 20",
        ),
        (
            "CHANGELOG.md",
            "1.2.0 - 2026-12-01",
            "1.3.0 - 2026-12-01",
            "the newest release in CHANGELOG.md is 1.3.0",
        ),
        ("CHANGELOG.md", "1.2.0 - 2026-12-01", "1.2.0", "the newest release in CHANGELOG.md is 1.2.0,"),
        ("CHANGELOG.md", "2026-12-01", "2026-13-01", "'1.2.0 - 2026-13-01' is not 'X.Y.Z - YYYY-MM-DD'"),
        (
            "CHANGELOG.md",
            "Unreleased\n",
            "Unreleased\n\n### Features\n",
            "'Features' of Unreleased is none of",
        ),
        ("CHANGELOG.md", "### Fixed", "### Repaired", "'Repaired' of 1.1.0 - 2026-11-01 is none of"),
        ("koff/version.py", "1.2.0", "1.3.0", "the newest release in CHANGELOG.md is 1.2.0"),
        ("deploy/helm/koff/Chart.yaml", "appVersion: 1.2.0", "appVersion: 1.1.0", "Chart.yaml has 1.1.0"),
        ("deploy/kubernetes/koff.yaml", "koff:1.2.0", "koff:1.1.0", "koff.yaml has the image koff:1.1.0"),
        ("deploy/kubernetes/koff.yaml", "koff:1.2.0", "example.org/a/koff:1.1.0", "the image koff:1.1.0"),
        ("pyproject.toml", "[project.urls]", "[tool.x]", "no [project.urls]"),
        (
            "pyproject.toml",
            "example.org/koff",
            "example.org/lag",
            "runbookUrl that is not below [project.urls]",
        ),
    ],
)
def test_what_does_not_agree_is_named(tree: Path, name: str, old: str, new: str, why: str):
    change(tree, name, old, new)
    code, output = run(tree, "check")
    assert code == 1
    assert why in output


def test_what_is_not_committed_is_named(tree: Path):
    (tree / "scratch.txt").write_text("")
    assert run(tree, "check") == (1, "not committed: scratch.txt\n")


def test_the_notes_are_the_section_of_the_version_alone(tree: Path):
    assert run(tree, "notes") == (0, "### Added\n\n- A thing.\n")


def test_without_a_section_there_are_no_notes(tree: Path):
    change(tree, "koff/version.py", "1.2.0", "1.3.0")
    assert run(tree, "notes") == (1, "CHANGELOG.md says nothing about 1.3.0\n")


def test_chart_and_manifests_have_the_version_between_releases_too():
    """What else `check` says here depends on whether a release is being prepared."""
    output = run(ROOT, "check")[1]
    assert not re.search(r"Chart\.yaml has|has the image", output), output
    assert "does not begin with" not in output
    assert "is none of" not in output
    assert "is not 'X.Y.Z" not in output
    assert VERSION in (ROOT / "koff" / "version.py").read_text()


def test_a_library_whose_licence_is_not_known_or_forbids_it_is_named(tree: Path):
    sbom = tree / "sbom.json"
    components = [
        {"name": "a", "version": "1", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "b", "version": "2", "licenses": [{"expression": "Apache-2.0 OR BSD-3-Clause"}]},
        {"name": "c", "version": "3", "licenses": [{"license": {"name": "AGPL-3.0"}}]},
        {"name": "d", "version": "4"},
    ]
    sbom.write_text(json.dumps({"components": components}))
    code, output = run(tree, "licences", str(sbom))
    assert code == 1
    assert re.findall(r"^(\w) \d has the licence (.*?):", output, re.M) == [
        ("c", "AGPL-3.0"),
        ("d", "unknown"),
    ]
    sbom.write_text(json.dumps({"components": components[:2]}))
    assert run(tree, "licences", str(sbom))[0] == 0


def test_a_build_that_differs_is_named_and_koff_builds_alike(tree: Path):
    (tree / "hatchling").mkdir()
    (tree / "hatchling" / "__init__.py").touch()
    (tree / "hatchling" / "__main__.py").write_text(
        "import os, pathlib, uuid\nos.mkdir('built')\n"
        "pathlib.Path('built/a').write_text('a')\npathlib.Path('built/b').write_text(str(uuid.uuid4()))\n"
    )
    commit(tree)
    code, output = run(tree, "reproduce")
    assert code == 1
    assert output.endswith("b is not the same when it is built again\n")
    assert "a is not" not in output
    assert run(ROOT, "reproduce")[0] == 0
