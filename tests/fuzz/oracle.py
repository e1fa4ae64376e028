"""Kafka's own code, asked about many byte strings at once."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from koff.kafkatest import kafka_jars
from koff.kafkatest.java import java_command

SOURCE = Path(__file__).with_name("Oracle.java")


class Case(NamedTuple):
    """What to ask: `mode` as Oracle.java has it. A blob is its key."""

    mode: str
    key: bytes
    value: bytes | None = None

    def line(self) -> str:
        return f"{self.mode} {word(self.key)} {word(self.value)}"


def word(data: bytes | None) -> str:
    return "-" if data is None else data.hex() or "e"


def ask(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Kafka's answer to each."""
    command = [java_command(), "-XX:+UseSerialGC", "-cp", f"{kafka_jars()}/*", str(SOURCE)]
    lines = "".join(case.line() + "\n" for case in cases)
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().splitlines()]
