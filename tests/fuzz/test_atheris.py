"""The atheris harnesses for a few seconds each; `KOFF_ATHERIS_SECONDS` asks for more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = os.environ.get("KOFF_ATHERIS_SECONDS", "3")
HARNESS = Path(__file__).with_name("atheris_decoders.py")


@pytest.mark.parametrize("target", ["scalar", "columns", "segments"])
def test_atheris_finds_nothing(target: str) -> None:
    pytest.importorskip("atheris")
    command = [sys.executable, HARNESS.name, target, str(SECONDS)]
    done = subprocess.run(command, cwd=HARNESS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
