"""`koff`: the commands, and how all of them handle errors, pipes and signals."""

import functools
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import click

# numpy comes with a library that starts a thread for each further core. koff does nothing that uses them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from koff.cli.standard_streams import set_up_standard_streams
from koff.errors import ConfigError, KoffError
from koff.version import VERSION

COMMANDS = (
    "completion",
    "config",
    "decode",
    "demo",
    "doctor",
    "group",
    "health",
    "help",
    "lag",
    "mcp",
    "monitor",
    "notify",
    "offsets",
    "pipeline",
    "printer",
    "push",
    "quickstart",
    "rules",
    "unused",
    "version",
)
"""Each command is in the module of its name. It is imported when it is used, for a quick start."""
SHARED = ("BROKERS", "PROPERTY_FILE", "OFFSETS_TOPIC", "CONFIG")
"""Options that all commands take from the same variable, unless the command's own is set: KOFF_BROKERS."""
INTERRUPTED = 130
"""The exit code at Ctrl-C, as of a shell: 128 + SIGINT. Commands that Ctrl-C ends in order exit with 0."""
PRINT_S = 5.0
"""How long each last message on standard error may take. On a busy machine, a traceback takes a second."""


class _Commands(click.Group):
    """Prints koff's errors without a traceback. Exits with 130 at Ctrl-C; 0 if a pipe's reader has ended."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Runs a command as this process, and ends the process without waiting for any thread.

        Commands leave threads behind, which may hang in librdkafka or log at any moment. Python's own exit
        waits for some of them, and aborts or hangs if a thread is writing to standard error. Click's test
        runner calls `main` instead.
        """
        code = 1
        try:
            call = functools.partial(super().__call__, *args, standalone_mode=False, **kwargs)
            code = _run(set_up_standard_streams) or _run(call)
            code = _run(sys.stdout.flush) or code
            _print_last(sys.stderr.flush)
        finally:
            os._exit(code & 0xFF)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            command = getattr(importlib.import_module(f"koff.cli.{cmd_name}"), cmd_name)
            _name_variables(command, f"KOFF_{cmd_name.upper()}")
            self.add_command(command)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)  # what a command returns is no exit code
        except ConfigError as error:
            raise click.UsageError(str(error)) from error  # exit code 2
        except KoffError as error:
            raise click.ClickException(str(error)) from error  # exit code 1
        except EOFError as error:  # click raises the same, but first writes to standard error
            raise click.Abort from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _run(work: Callable[[], int | None]) -> int:
    """The exit code of `work`. Prints its error, in click's format if the error is not a fault of koff."""
    try:
        return work() or 0
    except click.ClickException as error:
        _print_last(error.show)
        return error.exit_code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        _print_last(functools.partial(click.echo, "Aborted!", err=True))
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        _print_last(functools.partial(click.echo, end.code, err=True))  # as `sys.exit` documents it
    except BaseException:  # a fault of koff
        _print_last(functools.partial(sys.excepthook, *sys.exc_info()))
    return 1


def _print_last(write: Callable[[], None]) -> None:
    """Calls `write`, but does not wait long: another thread may hold the lock of standard error, and hang."""
    printing = threading.Thread(target=write, daemon=True)
    try:
        printing.start()
    except RuntimeError:  # the process may have no more threads
        write()
    else:
        printing.join(PRINT_S)


@click.group(
    cls=_Commands,
    context_settings={
        "auto_envvar_prefix": "KOFF",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
)
@click.version_option(VERSION, prog_name="koff")
def main() -> None:
    """Show how far behind every Kafka consumer group is, and why.

    \b
    Examples:
      koff doctor --brokers localhost:9092
      koff lag --brokers localhost:9092
      koff group payments --brokers localhost:9092
      koff printer --brokers localhost:9092 --group '^payments'
      koff monitor --brokers localhost:9092 --listen :9850
      koff decode segments /var/lib/kafka/__consumer_offsets-7
      koff demo

    Every option can be set in the environment: --brokers of `koff monitor` is KOFF_MONITOR_BROKERS, and
    KOFF_BROKERS is --brokers of all commands. Set librdkafka properties, such as those for TLS and SASL, with
    --property, with --property-file or in the environment: KOFF_PROPERTY_SASL_PASSWORD is sasl.password.
    """


def _name_variables(command: click.Command, prefix: str) -> None:
    """Names an environment variable for every option, by its long name, and shows it in --help."""
    for option in command.params:
        if isinstance(option, click.Option):
            name = re.sub(r"\W", "_", max(option.opts, key=len).lstrip("-")).upper()
            shared = [f"KOFF_{name}"] if name in SHARED else []
            also = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
            # Each name once, also if this is called again.
            option.envvar = list(dict.fromkeys([f"{prefix}_{name}", *shared, *also]))
            option.show_envvar = True
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            _name_variables(subcommand, f"{prefix}_{name.upper()}")
