"""Wheel and sdist, and what koff must do where one of them is installed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from click.testing import CliRunner

from koff.cli import main
from koff.version import VERSION

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "golden.jsonl"
DECODED_RECORDS = 20
BCRYPT_HASH = "$2b$04$SM9l.WHoBGsQ9HFBer94reAOjR0ta1JDgwrTzSVwWuY298DlGHNZ."
NOWHERE = "--brokers 127.0.0.1:1"
MISSING = {
    "spark": f"koff pipeline run {NOWHERE} --tables tables",
    "zookeeper": f"koff lag {NOWHERE} --zookeeper 127.0.0.1:1",
    "auth": f"printf 'basic_auth_users:\\n  a: {BCRYPT_HASH}\\n' >web.yml;"
    f" koff monitor {NOWHERE} --web.config.file web.yml",
    "aws": f"AWS_REGION=eu-west-1 koff lag {NOWHERE} --property security.protocol=sasl_ssl"
    " --property sasl.mechanism=AWS_MSK_IAM",
}
"""A command for each extra that it needs."""

Run = Callable[[str], tuple[int, str]]
"""Runs a shell script where koff is installed: the exit code, and both outputs."""


@dataclass(frozen=True)
class Distributions:
    """The files of a release."""

    wheel: Path
    sdist: Path


def build_distributions(folder: Path, source: Path = ROOT) -> Distributions:
    """Wheel and sdist of the source tree, with the build backend that `make dist` calls."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def read_constraints() -> str:
    """requirements.lock for `pip install --constraint`: without hashes, which a local file would need too."""
    pins = re.findall(r"^[\w.-]+==[^\s\\]+(?: ;[^\\\n]+)?", (ROOT / "requirements.lock").read_text(), re.M)
    return "".join(f"{pin}\n" for pin in pins)


def check_version(run: Run) -> None:
    expected = (0, f"koff, version {VERSION}\n")
    assert run("koff --version") == expected
    assert run("python -m koff --version") == expected


def check_help(run: Run) -> None:
    commands = ["koff", *_find_commands(main, "koff")]
    code, output = run("set -e; " + "; ".join(f"{command} --help" for command in commands))
    assert code == 0, output
    assert len(commands) > 15
    assert [line.split(" [")[0] for line in output.splitlines() if line.startswith("Usage: ")] == [
        f"Usage: {command}" for command in commands
    ]


def _find_commands(group: click.Group, path: str) -> Iterator[str]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        yield f"{path} {name}"
        if isinstance(command, click.Group):
            yield from _find_commands(command, f"{path} {name}")


def check_decode(run: Run) -> None:
    with GOLDEN.open() as file:
        records = [json.loads(next(file)) for _ in range(DECODED_RECORDS)]
    pairs = "".join(f"{record['key_hex']} {record['value_hex'] or '-'}\n" for record in records)
    expected = CliRunner().invoke(main, ["decode", "--format", "json"], input=pairs).output
    assert len(expected.splitlines()) == DECODED_RECORDS
    assert run(f"koff decode --format json <<'END'\n{pairs}END") == (0, expected)


def check_missing_extras(run: Run) -> None:
    for extra, script in MISSING.items():
        code, output = run(script)
        assert code == 2, output
        assert f"pip install 'koff[{extra}]'" in output


def check_library(run: Run) -> None:
    code, output = run(
        "python -c 'import koff, koff.client.broker, koff.client.multicluster, koff.kafkatest, pathlib; "
        'print((pathlib.Path(koff.__file__).parent / "py.typed").exists(), koff.__version__)\''
    )
    assert (code, output) == (0, f"True {VERSION}\n")


CHECKS = (check_version, check_help, check_decode, check_missing_extras, check_library)
