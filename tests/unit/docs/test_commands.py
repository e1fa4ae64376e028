"""Each command of koff and make in README.md and docs/ is one that there is, with options that it has.

Most commands cannot run in a test as they stand: they name an address, or a file of the reader. So click
parses those in blocks of code: the command and its options exist, and the values are of their kinds. Of those
in the text, the command and the names of options are checked. `RUN_BY` says which test runs each command.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from koff.cli import main

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
_BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_SHELL = ("", "sh", "bash", "console")
_INLINE = re.compile(r"`((?:koff|make) [^`]*)`")
_OPERATORS = {"|", "||", "&&", "&", ";", "(", ")", ">", ">>", "<"}
_PLACEHOLDER = re.compile(r"[A-Z]+|\.\.\.")
RUN_BY = {
    "completion": "unit/cli/test_shell.py",
    "config check": "unit/cli/test_config.py",
    "config schema": "unit/cli/test_config.py",
    "config show": "unit/cli/test_config.py",
    "decode": "unit/cli/test_decode.py",
    "decode segments": "integration/test_printer.py",
    "demo": "integration/test_demo.py",
    "doctor": "integration/test_doctor.py",
    "group": "integration/test_causes.py",
    "health": "unit/cli/test_health.py",
    "help": "unit/cli/test_help.py",
    "lag": "integration/test_against_kafka.py",
    "mcp": "unit/cli/test_mcp.py",
    "monitor": "integration/test_errors.py",
    "notify test": "unit/cli/test_notify.py",
    "offsets apply": "integration/test_offsets.py",
    "offsets plan": "integration/test_offsets.py",
    "pipeline backfill": "spark",
    "pipeline check": "spark",
    "pipeline maintain": "spark",
    "pipeline report": "spark",
    "pipeline run": "spark",
    "pipeline status": "spark",
    "printer": "integration/test_printer.py",
    "push": "unit/cli/test_push.py",
    "rules": "unit/cli/test_rules.py",
    "quickstart": "integration/test_doctor.py",
    "unused": "integration/test_unused.py",
    "version": "unit/cli/test_version.py",
}
"""By command, the tests that run it: on a real Kafka if it talks to one."""


class Line(NamedTuple):
    """A command of a page: its words, without what the shell does with it. It is whole in a block of code."""

    page: str
    words: tuple[str, ...]
    is_whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def list_lines(page: Path) -> Iterator[Line]:
    """The commands in the blocks of code, and in the text, of a page."""
    text, name = page.read_text(), str(page.relative_to(ROOT))
    for language, fenced, indented in _BLOCKS.findall(text):
        if language in _SHELL:
            for line in (fenced or indented).replace("\\\n", " ").split("\n"):
                yield from (Line(name, words, True) for words in split_commands(line))
    for mentioned in _INLINE.findall(_BLOCKS.sub("", text).replace("\n", " ")):
        for words in split_commands(mentioned):
            if words[0] == "make" or words[1] in main.list_commands(click.Context(main)):
                yield Line(name, words, False)


def split_commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of koff and make in a line of shell."""
    lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # no shell: an apostrophe of a sentence
        return
    command: list[str] = []
    for word in (*words, ";"):
        if word in _OPERATORS:
            yield from find_command(command)
            command = []
        else:
            command.append(word)


def find_command(words: list[str]) -> Iterator[tuple[str, ...]]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if [word.rpartition("/")[2] for word in words[:1]] in (["python"], ["python3"]) and words[1:3] == [
        "-m",
        "koff",
    ]:
        words = ["koff", *words[3:]]
    if words and words[0].rpartition("/")[2] in ("koff", "make"):
        yield (words[0].rpartition("/")[2], *words[1:])


LINES = sorted({line for page in PAGES for line in list_lines(page)})


def find(words: tuple[str, ...]) -> tuple[click.Context, list[str], list[str]]:
    """The context of the command, its names, and its arguments. Raises click's `UsageError`."""
    ctx = click.Context(main, info_name="koff")
    names, arguments = [], list(words)
    while isinstance(ctx.command, click.Group) and arguments and re.match(r"[a-z]", arguments[0]):
        names.append(arguments.pop(0))
        command = ctx.command.get_command(ctx, names[-1])
        if command is None:
            raise click.UsageError(f"there is no command {' '.join(names)}")
        ctx = click.Context(command, info_name=names[-1], parent=ctx)
    return ctx, names, arguments


def check(words: tuple[str, ...], *, is_whole: bool) -> str:
    """The names of the command. Raises click's `UsageError` for what is wrong."""
    ctx, names, arguments = find(words)
    if is_whole and names:
        try:
            ctx.command.make_context(names[-1], list(arguments), parent=ctx.parent)
        except click.exceptions.Exit:  # --help
            pass
        except click.BadParameter as error:
            if "does not exist" not in error.message:  # a file of the reader
                raise
    known = {
        name for option in ctx.command.get_params(ctx) for name in (*option.opts, *option.secondary_opts)
    }
    for word in arguments:
        if word.startswith("--") and word.partition("=")[0] not in known:
            raise click.UsageError(f"there is no option {word}")
    return " ".join(names)


@pytest.mark.parametrize("line", [line for line in LINES if line.words[0] == "koff"], ids=str)
def test_a_command_of_koff_is_one_that_there_is(line: Line):
    name = check(line.words[1:], is_whole=line.is_whole)
    assert not name or name in RUN_BY or any(each.startswith(f"{name} ") for each in RUN_BY)


@pytest.mark.parametrize("line", [line for line in LINES if line.words[0] == "make"], ids=str)
def test_a_command_of_make_is_a_target(line: Line):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = [word for word in line.words[1:] if "=" not in word and not _PLACEHOLDER.fullmatch(word)]
    assert set(wanted) <= targets


def test_each_command_of_koff_is_run_by_a_test():
    def list_commands(ctx: click.Context, names: tuple[str, ...] = ()) -> Iterator[str]:
        assert isinstance(ctx.command, click.Group)
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            if isinstance(command, click.Group):
                if command.invoke_without_command:
                    yield " ".join([*names, name])
                yield from list_commands(click.Context(command, parent=ctx), (*names, name))
            else:
                yield " ".join([*names, name])

    assert set(list_commands(click.Context(main))) == RUN_BY.keys()
    for command, path in RUN_BY.items():
        files = (
            [ROOT / "tests" / path] if path.endswith(".py") else (ROOT / "tests" / path).rglob("test_*.py")
        )
        spoken = re.compile(rf"(?<![a-z]){command.split()[-1]}(?![a-z])")
        assert any(spoken.search(file.read_text()) for file in files), f"{path} does not run koff {command}"


def test_the_check_finds_what_is_wrong():
    for wrong in ("koff lagg", "koff lag --nope", "koff lag --top many", "koff config nope", "koff group"):
        ((_, *words),) = split_commands(wrong)
        with pytest.raises(click.UsageError):
            check(tuple(words), is_whole=True)
    with pytest.raises(click.UsageError):
        check(("group", "--nope"), is_whole=False)
    assert list(split_commands("KOFF_BROKERS=a:1 koff lag | head && make demo # both")) == [
        ("koff", "lag"),
        ("make", "demo"),
    ]
