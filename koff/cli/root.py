"""`koff`: the commands, and how all of them handle errors, pipes and signals."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn

import click

from koff.cli.decode import decode
from koff.cli.demo import demo
from koff.cli.lag import lag
from koff.cli.monitor import monitor
from koff.cli.pipeline import pipeline
from koff.cli.printer import printer
from koff.cli.standard_streams import OutputError, set_up_standard_streams
from koff.errors import ConfigError, KoffError
from koff.version import VERSION

_FLUSH_S = 1.0
"""How long the last write to standard error may take."""


class _Commands(click.Group):
    """Prints koff's errors without a traceback. Exits with 0 at Ctrl-C, or if a pipe's reader has ended."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Runs a command as this process, and ends the process. Click's test runner calls `main` instead."""
        code = 1
        try:
            set_up_standard_streams()
            super().__call__(*args, **kwargs)
        except SystemExit as end:
            code = _read_code(end)
        except BaseException:  # a fault of koff
            sys.excepthook(*sys.exc_info())
        finally:
            _end_process(code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise click.UsageError(str(error)) from error  # exit code 2
        except KoffError as error:
            raise click.ClickException(str(error)) from error  # exit code 1
        except KeyboardInterrupt:
            ctx.exit(0)


def _read_code(end: SystemExit) -> int:
    if isinstance(end.code, str):  # as `sys.exit` documents it
        click.echo(end.code, err=True)
        return 1
    return int(end.code or 0)


def _end_process(code: int) -> NoReturn:
    """Ends the process once standard output is written, without waiting for any thread.

    Commands leave threads behind, which may hang in librdkafka or log at any moment. Python's own exit waits
    for some of them, and aborts or hangs if a thread is writing to standard error.
    """
    try:
        try:
            sys.stdout.flush()
        except OutputError as error:
            code = error.exit_code
            error.show()
        except click.exceptions.Exit:  # the reader of the pipe has ended
            pass
        # In a thread: the lock of standard error may be held by a thread that cannot write.
        flushing = threading.Thread(target=sys.stderr.flush, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_S)
    finally:
        os._exit(code & 0xFF)


@click.group(
    cls=_Commands,
    context_settings={
        "auto_envvar_prefix": "KOFF",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
)
@click.version_option(VERSION, prog_name="koff")
def main() -> None:
    """Show how far behind every Kafka consumer group is, and why.

    \b
    Examples:
      koff lag --brokers localhost:9092
      koff printer --brokers localhost:9092 --group '^payments'
      koff monitor --brokers localhost:9092 --listen :9850
      koff decode segments /var/lib/kafka/__consumer_offsets-7
      koff demo

    Every option can be set in the environment: --brokers of `koff monitor` is KOFF_MONITOR_BROKERS. Set
    librdkafka properties, such as those for TLS and SASL, with --property, with --property-file or in the
    environment: KOFF_PROPERTY_SASL_PASSWORD is sasl.password.
    """


def _name_variables(command: click.Command, prefix: str) -> None:
    """Names an environment variable for every option, by its long name, and shows it in --help."""
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
            option.envvar, option.show_envvar = f"{prefix}_{name}", True
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            _name_variables(subcommand, f"{prefix}_{name.upper()}")


for command in (monitor, lag, printer, decode, demo, pipeline):
    main.add_command(command)
    _name_variables(command, f"KOFF_{str(command.name).upper()}")
