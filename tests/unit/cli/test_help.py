"""`koff help`: the help of each command, and lists that the code has."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from koff.cli import main
from koff.cli.help import EXIT_CODES, TOPICS

OUTPUT_PAGE = Path(__file__).parents[3] / "docs" / "output.md"


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["help", *args])


@pytest.mark.parametrize("names", [("lag",), ("config", "check"), ("decode", "segments")])
def test_the_help_of_a_command_is_that_of_its_option(names: tuple[str, ...]):
    expected = CliRunner().invoke(main, [*names, "--help"]).output
    assert run(*names).output == expected


def test_without_a_topic_the_commands_and_the_topics_are_listed():
    shown = run().output
    for name in (*TOPICS, *main.list_commands(click.Context(main))):
        assert f"  {name} " in shown


@pytest.mark.parametrize(
    ("topic", "told"),
    [("metrics", "koff_group_lag\n"), ("settings", "end_offset_interval\n"), ("exit-codes", "130\n")],
)
def test_a_topic_is_a_list(topic: str, told: str):
    assert f"\n{told}    " in run(topic).output


@pytest.mark.parametrize("names", [("nope",), ("lag", "nope"), ("config", "nope")])
def test_what_is_no_topic_is_refused_with_where_to_look(names: tuple[str, ...]):
    ended = run(*names)
    assert ended.exit_code == 2
    assert f"there is no command or topic {' '.join(names)!r}" in " ".join(ended.stderr.split())


def test_the_docs_have_the_same_exit_codes():
    rows = "".join(f"| {code} | {text} |\n" for code, text in EXIT_CODES.items())
    assert f"| --- | --- |\n{rows}\n" in OUTPUT_PAGE.read_text()
