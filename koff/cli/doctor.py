"""`koff doctor`: checks a connection step by step, and says what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click

from koff.cli.doctor_checks import Check, Level, run_checks
from koff.cli.log_lines import set_up_logs
from koff.cli.options import cluster_options, group_options, read_cluster, timeout_option
from koff.config.monitors import build_look

WARNED = 3
"""Exit code: there is a warning, and no failure."""


@click.command()
@cluster_options
@group_options
@timeout_option("How long the groups may take to be read.")
def doctor(timeout_s: float, **_: Any) -> None:
    """Check a connection to Kafka step by step: each step with one line, and what to do about it.

    Addresses, log-in, advertised listeners, internal topics, rights (with the commands that grant what is
    missing), retention of offsets, all groups, and what koff monitor will cost. Changes nothing. Exit codes:
    1 if a step failed, 3 if there is a warning.

    \b
    Examples:
      koff doctor --brokers localhost:9092
      koff doctor --config koff.yaml --cluster production
    """
    set_up_logs()
    conf = build_look(*read_cluster(click.get_current_context()))
    levels = print_checks(run_checks(conf, timeout_s))
    sys.exit(1 if Level.FAILURE in levels else WARNED if Level.WARNING in levels else 0)


def print_checks(checks: Iterable[Check]) -> set[Level]:
    """Prints each check when it is done, with its cure. Returns the levels."""
    levels = set()
    for check in checks:
        levels.add(check.level)
        click.echo(f"{check.level.value:<5} {check.name:<19} {check.text}")
        if check.cure:
            click.echo(f"{'':<25} -> {check.cure}")
        sys.stdout.flush()
    return levels
