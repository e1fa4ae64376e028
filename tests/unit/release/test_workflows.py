"""GitHub's workflows: they call what there is, with no more rights than necessary."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.distributions import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
JOBS = [
    pytest.param(job, id=f"{workflow}-{name}")
    for workflow, document in WORKFLOWS.items()
    for name, job in document["jobs"].items()
]
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
ON = True
"""How YAML 1.1 reads the key `on`."""


def list_scripts(job: dict[str, Any]) -> list[str]:
    """The shell scripts of a job, one for each value of its matrix."""
    scripts = [step["run"] for step in job.get("steps", ()) if "run" in step]
    for name, values in job.get("strategy", {}).get("matrix", {}).items():
        pattern = f"${{{{ matrix.{name} }}}}"
        scripts = [
            script.replace(pattern, str(value))
            for script in scripts
            for value in (values if pattern in script else [""])
        ]
    return scripts


def list_called_targets() -> Iterator[str]:
    for document in WORKFLOWS.values():
        for job in document["jobs"].values():
            for script in list_scripts(job):
                yield from re.findall(r"\bmake ([a-z-]+)", script)


def list_permissions(job: dict[str, Any]) -> set[str]:
    return {f"{name}: {value}" for name, value in job.get("permissions", {}).items()}


def test_the_workflows_call_targets_of_the_makefile():
    called = set(list_called_targets())
    assert called <= TARGETS
    assert called >= {
        "test-unit",
        "test-long",
        "test-versions",
        "test-benches",
        "audit",
        "dist",
        "release-check",
    }


def test_each_python_that_koff_names_is_tested():
    text = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r"Programming Language :: Python :: (3\.\d+)", text))
    tested = set(re.findall(r"\b3\.\d+\b", (FOLDER / "ci.yml").read_text()))
    assert named == tested


@pytest.mark.parametrize("job", JOBS)
def test_a_job_ends_and_its_scripts_can_be_parsed(job: dict[str, Any]):
    if "uses" in job:  # the jobs of another workflow
        assert (ROOT / job["uses"]).is_file()
        return
    assert job["timeout-minutes"] <= 180
    for script in list_scripts(job):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        assert "${{" not in script, "GitHub would paste text that others may choose: use a variable"
        for file in re.findall(r"\.ci/[\w.]+", script):
            assert (ROOT / file).is_file()


@pytest.mark.parametrize("job", JOBS)
def test_a_checkout_leaves_no_token_for_the_scripts(job: dict[str, Any]):
    for step in job.get("steps", ()):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_action_is_named_by_its_commit(name: str):
    used = re.findall(r"uses: (.+)", (FOLDER / f"{name}.yml").read_text())
    assert used
    for action in used:
        assert action.startswith("./") or PINNED.fullmatch(action), action


def test_only_jobs_that_publish_may_write():
    assert list_permissions(WORKFLOWS["ci"]) == {"contents: read"}
    assert not any("permissions" in job for job in WORKFLOWS["ci"]["jobs"].values())
    release = WORKFLOWS["release"]
    assert release["permissions"] == {}
    granted = {name: list_permissions(job) - {"contents: read"} for name, job in release["jobs"].items()}
    assert {name: rights for name, rights in granted.items() if rights} == {
        "image": {"packages: write"},
        "image-tags": {"packages: write", "id-token: write", "attestations: write"},
        "pypi": {"id-token: write"},
        "github": {"contents: write", "id-token: write", "attestations: write"},
    }


def test_a_release_publishes_only_what_was_checked_and_tested():
    release = WORKFLOWS["release"]
    assert release[ON] == {"push": {"tags": ["v*.*.*"]}}
    assert release["jobs"]["test"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in WORKFLOWS["ci"][ON]
    (check,) = list_scripts(release["jobs"]["check"])
    assert check == 'make release-check ARGS="--tag $GITHUB_REF_NAME"'

    def find_needs(name: str) -> set[str]:
        needs = release["jobs"][name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*map(find_needs, direct))

    for name, job in release["jobs"].items():
        if list_permissions(job) - {"contents: read"}:
            assert find_needs(name) >= {"check", "test"}, name


def test_what_is_published_is_attested_and_built_on_one_base():
    jobs = WORKFLOWS["release"]["jobs"]
    for name in ("image-tags", "github"):
        actions = [step.get("uses", "") for step in jobs[name]["steps"]]
        assert any(action.startswith("actions/attest-build-provenance@") for action in actions), name
    assert "base" in jobs["image"]["needs"]
    assert jobs["image"]["env"]["BASE"].startswith("debian:trixie-slim@")
    (script,) = {script for script in list_scripts(jobs["image"]) if "docker build" in script}
    assert '--build-arg BASE="$BASE"' in script
    assert "sbom" in " ".join(list_scripts(jobs["dist"]))
