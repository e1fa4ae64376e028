"""The atheris harnesses for a second each, and by `make test-long` for a minute."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("target", ["scalar", "columns", "segments"])
def test_atheris_finds_nothing(target: str, seconds: int, tmp_path: Path):
    pytest.importorskip("atheris")
    command = [sys.executable, "-m", "tests.fuzz.atheris_decoders", target, str(seconds), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
