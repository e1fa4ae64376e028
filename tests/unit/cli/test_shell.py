"""What a shell sees of koff: completion, and the scripts in cmd/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[3] / "cmd").glob("*.py"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion(shell):
    def run(*args: str, **env: str) -> str:
        shown = subprocess.run(
            [sys.executable, "-c", "from koff.cli import main; main(prog_name='koff')", *args],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return shown.stdout + shown.stderr

    assert f"_KOFF_COMPLETE={shell}_complete" in run("completion", shell)
    typed = {"COMP_WORDS": "koff la", "COMP_CWORD": "la" if shell == "fish" else "1"}
    assert "lag" in run(_KOFF_COMPLETE=f"{shell}_complete", **typed)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_and_says_what_to_do_without_koff(script):
    assert os.access(script, os.X_OK)
    shown = subprocess.run(
        [sys.executable, str(script), "--help"], capture_output=True, text=True, check=True
    )
    assert f"Usage: koff {script.stem}" in shown.stdout
    # -S: without site-packages, so neither koff nor click is there
    bare = subprocess.run(
        [sys.executable, "-I", "-S", str(script)], capture_output=True, text=True, check=False
    )
    assert bare.returncode == 1
    assert "pip install ." in bare.stderr
    assert "Traceback" not in bare.stderr
