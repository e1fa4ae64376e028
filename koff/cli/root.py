"""`koff`: the commands, and how all of them handle errors, pipes and signals."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from koff.cli.decode import decode
from koff.cli.demo import demo
from koff.cli.lag import lag
from koff.cli.monitor import monitor
from koff.cli.pipeline import pipeline
from koff.cli.printer import printer
from koff.errors import ConfigError, KoffError
from koff.version import VERSION

_WITH_THREADS = frozenset({"lag", "monitor"})
"""Commands that leave threads behind, which may hang in librdkafka or log at any moment."""


class _Commands(click.Group):
    """Prints koff's errors without a traceback. Exits with 0 at Ctrl-C, or if a pipe's reader has ended."""

    _leaves_threads = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command as this process. Click's test runner calls `main` instead."""
        try:
            return super().__call__(*args, **kwargs)
        except SystemExit as end:
            if self._leaves_threads:
                _exit_at_once(end.code if isinstance(end.code, int) else bool(end.code))
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here: otherwise Python notices a broken pipe only after this function
        except ConfigError as error:
            raise click.UsageError(str(error)) from error  # exit code 2
        except KoffError as error:
            raise click.ClickException(str(error)) from error  # exit code 1
        except BrokenPipeError:
            # Python flushes stdout once more at its exit: that must not fail again, with a traceback.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(0)
        finally:
            self._leaves_threads = ctx.invoked_subcommand in _WITH_THREADS
        return result


def _exit_at_once(code: int) -> NoReturn:
    """Ends the process. Python's own exit aborts, or hangs, if a thread is writing to standard error."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


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
