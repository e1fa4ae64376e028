"""The atheris harnesses for a few seconds each; `KOFF_ATHERIS_SECONDS` asks for more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = os.environ.get("KOFF_ATHERIS_SECONDS", "3")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["scalar", "columns", "segments"])
def test_atheris_finds_nothing(target: str) -> None:
    pytest.importorskip("atheris")
    command = [sys.executable, "-m", "tests.fuzz.atheris_decoders", target, str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
