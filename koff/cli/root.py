"""`koff`: the commands, and what all of them do with errors, pipes and signals."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from koff.cli.decode import decode
from koff.cli.demo import demo
from koff.cli.lag import lag
from koff.cli.monitor import monitor
from koff.cli.pipeline import pipeline
from koff.cli.printer import printer
from koff.errors import ConfigError, KoffError
from koff.version import VERSION


class _Commands(click.Group):
    """Says koff's errors as one line, and ends quietly when the reader of a pipe has gone or at Ctrl-C."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except ConfigError as failure:
            raise click.UsageError(str(failure)) from failure
        except KoffError as failure:
            raise click.ClickException(str(failure)) from failure
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(0)
        return result


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
    """How far behind every Kafka consumer group is, and why.

    \b
    Examples:
      koff lag --brokers localhost:9092
      koff printer --brokers localhost:9092 --group '^payments'
      koff monitor --brokers localhost:9092 --listen :9850
      koff decode segments /var/lib/kafka/__consumer_offsets-7
      koff demo

    Every option can come from the environment: --brokers of `koff monitor` is KOFF_MONITOR_BROKERS.
    librdkafka properties, TLS and SASL among them, come by --property, --property-file or the
    environment: KOFF_PROPERTY_SASL_PASSWORD is sasl.password.
    """


def _name_variables(command: click.Command, prefix: str) -> None:
    """Lets every option come from the environment, by its long name, and says so in --help."""
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
            option.envvar, option.show_envvar = f"{prefix}_{name}", True
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            _name_variables(below, f"{prefix}_{name.upper()}")


for each in (monitor, lag, printer, decode, demo, pipeline):
    main.add_command(each)
    _name_variables(each, f"KOFF_{str(each.name).upper()}")
