"""Wheel and sdist, each installed by pip into an empty environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributions import CHECKS, Distributions, Run, read_constraints

pytestmark = [pytest.mark.installs, pytest.mark.timeout(600), pytest.mark.thorough]


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def run(
    request: pytest.FixtureRequest, distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Runs a script in an environment that has nothing but koff and what koff requires."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    (folder / "constraints").write_text(read_constraints())
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KOFF_", "PYTHON"))}
    env["PATH"] = f"{folder / 'venv' / 'bin'}:{env['PATH']}"

    def run(script: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    code, output = run(f"pip install -q --constraint constraints {getattr(distributions, request.param)}")
    assert code == 0, output
    return run


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_koff_runs_where_only_its_requirements_are_installed(check, run: Run):
    check(run)
