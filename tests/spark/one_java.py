"""Commands of `koff pipeline`, one after the other in one process: Java starts once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.spark.settings import NO_CODEGEN, QUICK, QUICK_FILES, as_options

_RUN_EACH_LINE = """
import contextlib, io, json, sys
from koff.cli import main
for line in sys.stdin:
    texts = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(texts[0]), contextlib.redirect_stderr(texts[1]):
        try:
            main.main(json.loads(line), prog_name="koff")
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, *(text.getvalue() for text in texts)]), flush=True)
"""


class OneJava:
    """A process that runs commands of `koff pipeline` with Spark's settings for tests."""

    def __init__(self) -> None:
        self._process: Any = subprocess.Popen(
            [sys.executable, "-c", _RUN_EACH_LINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """`koff pipeline ARGS`, run to its end."""
        command = ["pipeline", *args, *as_options(QUICK | QUICK_FILES | NO_CODEGEN)]
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process has ended with {self._process.wait(60)}"
        return subprocess.CompletedProcess(command, *json.loads(answer))

    def close(self) -> None:
        with self._process:  # closes its standard input, and waits for it
            pass
