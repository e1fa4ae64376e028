"""The command line: help, environment, refusals."""

from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.cli.text_table import format_table
from koff.version import VERSION


def run(*args: str, **environment: str):
    return CliRunner(env=environment).invoke(main, list(args))


def test_the_version_and_the_commands_are_told():
    assert VERSION in run("--version").output
    for command in ("monitor", "lag", "printer", "demo"):
        assert command in run("--help").output


@pytest.mark.parametrize("command", ["monitor", "lag", "printer"])
def test_help_has_examples_and_names_the_environment_variables(command):
    output = run(command, "--help").output
    assert "Examples:" in output
    assert f"KOFF_{command.upper()}_BROKERS" in output


@pytest.mark.parametrize(
    "args",
    [
        ("lag",),
        ("lag", "--brokers", "a:1", "--group", "("),
        ("lag", "--brokers", "a:1", "--fail-above", "-1"),
        ("lag", "--brokers", "a:1", "--property", "nonsense"),
        ("lag", "--brokers", "a:1", "--property", "no.such=1"),
        ("printer", "--brokers", "a:1", "--format", "xml"),
        ("monitor", "--brokers", "a:1", "--listen", "nowhere"),
        ("monitor", "--brokers", "a:1", "--property-file", "no-such-file"),
    ],
)
def test_bad_options_end_with_code_2_and_say_which(args):
    result = run(*args)
    assert result.exit_code == 2
    assert "Error: " in result.output


def test_options_come_from_the_environment():
    result = run("lag", KOFF_LAG_BROKERS="a:1", KOFF_LAG_GROUP="(")
    assert "is not a regular expression" in result.output


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        (["lag"], ["KOFF_LAG_FORMAT", "KOFF_LAG_PROPERTY", "KOFF_LAG_FAIL_ABOVE"]),
        (["printer"], ["KOFF_PRINTER_FROM", "KOFF_PRINTER_TYPE", "KOFF_PRINTER_FOLLOW"]),
        (["monitor"], ["KOFF_MONITOR_END_OFFSET_INTERVAL", "KOFF_MONITOR_LISTEN"]),
        (["decode", "segments"], ["KOFF_DECODE_SEGMENTS_READ_COMMITTED"]),
    ],
)
def test_variables_are_named_after_the_options(command, variables):
    output = run(*command, "--help").output
    for variable in variables:
        assert variable in output.replace("\n", "")


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("monitor", "--brokers", "127.0.0.1:1", "--listen", address)
    assert result.exit_code == 2
    assert f"cannot listen on {address}" in result.output


def test_a_table_is_aligned_numbers_to_the_right_and_unknown_as_a_dash():
    assert format_table(("NAME", "LAG"), [("a", 5), ("long", None), ("b\x1b", 1234)]) == (
        "NAME    LAG\na         5\nlong      -\nb\\x1b  1234\n"
    )
