"""Wheel and sdist, each installed into an empty environment of Debian's Python in a container."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.containers import images
from tests.distributions import CHECKS, Distributions, Run, read_constraints

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900), pytest.mark.thorough]
PYTHON = "Python 3.13"


@pytest.fixture(scope="module")
def container(engine: docker.DockerClient, distributions: Distributions) -> Iterator:
    """A container with Python, wheel, sdist and constraints, which does nothing."""
    try:
        image = images.build_koff(engine, target="build")
    except images.NoImage as error:
        pytest.skip(str(error))
    patient = docker.from_env(timeout=600)  # pip may print nothing for minutes
    container = patient.containers.create(image, ["sleep", "infinity"], init=True, network_mode="host")
    try:
        container.put_archive("/srv", pack([distributions.wheel, distributions.sdist]))
        container.start()
        yield container
    finally:
        container.remove(force=True, v=True)
        patient.close()


def pack(files: list[Path]) -> bytes:
    """The files and the constraints as a tar archive."""
    packed, constraints = io.BytesIO(), read_constraints().encode()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for file in files:
            tar.add(file, file.name)
        info = tarfile.TarInfo("constraints")
        info.size = len(constraints)
        tar.addfile(info, io.BytesIO(constraints))
    return packed.getvalue()


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def run(request: pytest.FixtureRequest, container, distributions: Distributions) -> Run:
    """Runs a script in an environment that has nothing but koff and what koff requires."""
    venv = f"/opt/{request.param}"

    def run(script: str) -> tuple[int, str]:
        done = container.exec_run(["sh", "-c", f"PATH={venv}/bin:$PATH; {script}"], workdir="/srv")
        return done.exit_code, done.output.decode()

    file = getattr(distributions, request.param).name
    code, output = run(f"python3 -m venv {venv} && pip install -q --constraint constraints {file}")
    assert code == 0, output
    return run


def test_python_is_newer_than_the_oldest_that_koff_supports(container):
    assert container.exec_run(["python3", "--version"]).output.decode().startswith(PYTHON)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_koff_runs_where_only_its_requirements_are_installed(check, run: Run):
    check(run)
