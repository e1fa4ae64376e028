"""How a process of koff ends: its exit code, all of its output, and no thread that delays it."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import pytest

from tests.koff_process import KOFF

PAIR = "000100016700017400000000 -\n"
DECODED = "offset  g t/0 deleted\n"
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

NAMED_KOFF = (sys.executable, "-c", "from koff.cli import main; main(prog_name='koff')")

# A command of koff that does `work`. Its output is not flushed.
COMMAND = """
import os, signal, sys, threading
import click
from koff.cli import main
from koff.errors import ConfigError, KoffError

def work():
    print("result")
{work}

main.add_command(click.Command("work", callback=work))
main(["work"], prog_name="koff")
"""


def run(
    command: Sequence[str],
    *,
    stdin: str = "",
    stdout: int | IO[str] = subprocess.PIPE,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=BUFFERED,
        timeout=timeout_s,
        check=False,
    )


def build_command(*work: str) -> list[str]:
    """The command line of a koff that does only `work`."""
    return [sys.executable, "-c", COMMAND.format(work="\n".join(f"    {line}" for line in work))]


ENDS = [
    ("return", 0, ""),
    ("return 5", 0, ""),
    ("sys.exit(3)", 3, ""),
    ("sys.exit('why')", 1, "why\n"),
    ("click.get_current_context().exit(4)", 4, ""),
    ("raise KoffError('why')", 1, "Error: why\n"),
    ("raise ConfigError('why')", 2, "Error: why\n"),
    ("raise click.Abort", 1, "Aborted!\n"),
    ("raise EOFError", 1, "Aborted!\n"),
    ("signal.raise_signal(signal.SIGINT)", 130, ""),
    ("raise LookupError('a fault')", 1, "LookupError: a fault\n"),
]


@pytest.mark.parametrize(("end", "code", "message"), ENDS)
def test_a_thread_that_hangs_delays_no_end_and_all_output_is_there(end, code, message):
    ended = run(build_command("threading.Thread(target=threading.Event().wait).start()", end))
    assert (ended.returncode, ended.stdout) == (code, "result\n")
    assert ended.stderr.endswith(message)
    assert ("Traceback" in ended.stderr) == ("LookupError" in message)


@contextmanager
def stuck(end: str, stdout: int | IO[str] = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """A koff that ends like this while a thread holds the lock of standard error: the pipe is full."""
    work = (
        "from koff.cli import root",
        "from koff.cli.standard_streams import StandardError",
        "root.PRINT_S = 0.05",
        "write, has_lock = StandardError.write, threading.Event()",
        "def write_and_tell(self, data):",
        "    has_lock.set()",
        "    return write(self, data)",
        "StandardError.write = write_and_tell",
        "lines = 'a line ' * 100_000  # more than the pipe holds",
        "threading.Thread(target=sys.stderr.write, args=(lines,), daemon=True).start()",
        "has_lock.wait()",
    )
    with subprocess.Popen(
        build_command(*work, end), stdout=stdout, stderr=subprocess.PIPE, env=BUFFERED
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("end", "code"), [(end, code) for end, code, _ in ENDS])
def test_a_thread_that_cannot_write_its_log_line_does_not_keep_koff_from_ending(end, code):
    with stuck(end) as process:
        assert process.wait(60) == code
        assert process.stdout.read() == b"result\n"


def test_a_full_disk_ends_koff_although_the_error_cannot_be_printed():
    with open("/dev/full", "w") as full, stuck("return", full) as process:
        assert process.wait(60) == 1


def test_an_error_is_printed_although_no_thread_can_be_started():
    work = (
        "def start(thread):",
        '    raise RuntimeError("can\'t start new thread")',
        "threading.Thread.start = start",
        "threading.Thread().start()",
    )
    ended = run(build_command(*work))
    assert (ended.returncode, ended.stdout) == (1, "result\n")
    assert ended.stderr.endswith("RuntimeError: can't start new thread\n")


def test_a_bad_option_is_printed_with_the_usage():
    ended = run([*NAMED_KOFF, "lag", "--no-such-option"])
    assert (ended.returncode, ended.stdout) == (2, "")
    lines = ended.stderr.splitlines()
    assert lines[0] == "Usage: koff lag [OPTIONS]"
    assert lines[-1].startswith("Error: No such option")


def test_a_shell_completes_commands():
    variables = ("_KOFF_COMPLETE=bash_complete", "COMP_WORDS=koff moni", "COMP_CWORD=1")
    ended = run(["env", *variables, *NAMED_KOFF])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "plain,monitor\n", "")


def test_a_message_without_the_end_of_its_line_is_not_lost():
    assert run(build_command("sys.stderr.write('half a line')")).stderr == "half a line"


@pytest.mark.parametrize("args", [("decode",), ("decode", "--help"), ("--version",)])
def test_a_full_disk_is_an_error_in_one_line(args):
    with open("/dev/full", "w") as full:
        ended = run([*KOFF, *args], stdin=PAIR, stdout=full)
    assert (ended.returncode, ended.stderr) == (1, "Error: write error: No space left on device\n")


@pytest.mark.parametrize("end", ["return", "sys.exit(3)"])
def test_a_full_disk_that_shows_only_at_the_end_is_an_error_too(end):
    with open("/dev/full", "w") as full:
        ended = run(build_command(end), stdout=full)
    assert (ended.returncode, ended.stderr) == (1, "Error: write error: No space left on device\n")


def test_a_closed_standard_output_is_an_error_in_one_line():
    ended = run(["sh", "-c", 'exec "$@" >&-', "sh", *KOFF, "decode"], stdin=PAIR)
    assert (ended.returncode, ended.stderr) == (1, "Error: write error: Bad file descriptor\n")


def test_nothing_is_printed_into_a_file_that_is_opened_while_standard_output_is_closed(tmp_path):
    path = tmp_path / "state"
    work = f"file = open({str(path)!r}, 'w')", "sys.stdout.flush()"
    ended = run(["sh", "-c", 'exec "$@" >&-', "sh", *build_command(*work)])
    assert (ended.returncode, path.read_text()) == (1, "")


def test_a_pipe_whose_reader_has_ended_ends_koff_silently():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        ended = run([*KOFF, "decode"], stdin=PAIR, stdout=pipe)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_pipe_that_another_program_has_made_non_blocking_gets_all_output():
    size = 1 << 20  # more than a pipe holds
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    work = f"sys.stdout.write('x' * {size})"
    with (
        open(reader, "rb") as pipe,
        subprocess.Popen(build_command(work), stdout=writer, stderr=subprocess.PIPE) as process,
    ):
        os.close(writer)
        assert len(pipe.read()) == len("result\n") + size
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_message_that_cannot_be_written_changes_neither_the_output_nor_the_exit_code(redirection):
    ended = run(["sh", "-c", f'exec "$@" {redirection}', "sh", *KOFF, "decode"], stdin=PAIR + "zz\n")
    assert ended.returncode == 1
    assert ended.stdout == DECODED + '{"error": "line 2 is not a pair KEY VALUE in hex"}\n'


def test_a_log_line_that_cannot_be_written_ends_nothing():
    work = (
        "from koff.cli.log_lines import set_up_logs",
        "import structlog",
        "set_up_logs()",
        "structlog.get_logger(component='test').warning('lost')",
        "print('alive')",
    )
    ended = run(["sh", "-c", 'exec "$@" 2>/dev/full', "sh", *build_command(*work)])
    assert (ended.returncode, ended.stdout) == (0, "result\nalive\n")


def test_a_closed_standard_input_is_an_error_of_the_command_that_reads_it():
    ended = run(["sh", "-c", 'exec "$@" <&-', "sh", *KOFF, "decode"])
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Error: standard input is closed")


def test_a_name_that_the_locale_cannot_encode_is_escaped():
    ended = run(["env", "PYTHONIOENCODING=ascii", *build_command("print('gr\\u00fcn')")])
    assert (ended.returncode, ended.stdout) == (0, "result\ngr\\xfcn\n")
