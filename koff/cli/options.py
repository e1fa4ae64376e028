"""Options that several commands share, and what they mean."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
import structlog

from koff.client import ClusterConf
from koff.config.properties import gather_properties
from koff.records.topics import OFFSETS_TOPIC

Command = TypeVar("Command", bound=Callable[..., Any])


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """A click option that shows its default."""
    return click.option(*names, **{"show_default": True, **settings})


class Regex(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """A regular expression; it may match anywhere in the name."""

    name = "REGEX"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        """The compiled expression, or click's error."""
        if isinstance(value, re.Pattern):
            return value
        try:
            return re.compile(value)
        except re.error as failure:
            self.fail(f"{value!r} is not a regular expression: {failure}", param, ctx)


def cluster_options(command: Command) -> Command:
    """--brokers, --property, --property-file, --offsets-topic: taken together by `cluster_conf`."""
    for decorate in reversed(
        (
            option("--brokers", required=True, metavar="HOST:PORT[,...]", help="Brokers to begin with."),
            option(
                "--property",
                "properties",
                multiple=True,
                metavar="KEY=VALUE",
                help="A librdkafka property, such as security.protocol=sasl_ssl; repeatable. Secrets are "
                "better off in KOFF_PROPERTY_... variables or in a file: others can read a command line.",
            ),
            option("--property-file", metavar="FILE", help="librdkafka properties, a key=value per line."),
            option("--offsets-topic", default=OFFSETS_TOPIC, help="The topic to read, for mirrored copies."),
        )
    ):
        command = decorate(command)
    return command


def cluster_conf(brokers: str, properties: tuple[str, ...], property_file: str | None) -> ClusterConf:
    """What the cluster options say, with the environment's properties."""
    gathered = gather_properties(pairs=properties, file=property_file, environment=os.environ)
    return ClusterConf(brokers, gathered)


def exact_option(command: Command) -> Command:
    """--exact-time-lag."""
    return option(
        "--exact-time-lag",
        type=Regex(),
        show_default=False,
        help="For groups whose name matches, read the record at each commit: lag in seconds is then its age, "
        "not estimated (needs READ on their topics).",
    )(command)


def zookeeper_option(command: Command) -> Command:
    """--zookeeper."""
    return option(
        "--zookeeper",
        default="",
        show_default=False,
        metavar="HOST:PORT[,...][/CHROOT]",
        help="Show groups as well that keep their offsets in this ZooKeeper, as Kafka's first consumers did "
        "(needs koff[zookeeper]).",
    )(command)


def logging_options(command: Command) -> Command:
    """--log-format and --log-level: handed to `set_up_logs`."""
    command = option(
        "--log-level",
        default="info",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Least to log.",
    )(command)
    return option(
        "--log-format",
        default="auto",
        type=click.Choice(["auto", "text", "json"]),
        help="auto: text on a terminal, else JSON.",
    )(command)


def set_up_logs(form: str = "auto", level: str = "warning") -> None:
    """Logs go to standard error, readable on a terminal and as JSON lines otherwise.

    Each logger binds `component`, the package of koff that wrote the line.
    """
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    rendering: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ)]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
