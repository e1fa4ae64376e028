"""The lock files: the images have each library that `koff monitor` may need. The files name no registry."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOT_FOR_THE_IMAGE = {"demo", "dev", "kafkatest", "kerberos", "mcp", "otlp", "sasl", "spark"}
"""Extras for the demo, for koff's tests, for those of users, for agents, for OTLP, for Kerberos, which has to
be built where it is used, for `koff.client.zookeeper`, and for the image with Spark."""


def list_extras() -> dict[str, list[str]]:
    """The names of the libraries of each extra that the image needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        extra: [re.split(r"[^\w-]", library)[0] for library in libraries]
        for extra, libraries in project["optional-dependencies"].items()
        if extra not in NOT_FOR_THE_IMAGE
    }


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-spark.lock"])
def test_the_images_have_the_libraries_of_all_extras_for_the_monitor(lock: str):
    extras = list_extras()
    assert extras["aws"] == ["aws-msk-iam-sasl-signer-python"]
    pinned = re.findall(r"^([\w-]+)==", (ROOT / lock).read_text(), re.MULTILINE)
    assert {name for names in extras.values() for name in names} <= set(pinned)
    command = next(
        line
        for line in (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
        if line.endswith(f"--output-file {lock}")
    )
    assert all(f"--extra {extra} " in command for extra in extras)


@pytest.mark.parametrize("lock", sorted(path.name for path in ROOT.glob("requirements*.lock")))
def test_a_lock_file_names_no_registry(lock: str):
    assert "://" not in (ROOT / lock).read_text()
