"""Options that several commands share, and the objects that are built from them."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import structlog
from click.core import ParameterSource

from koff.client.addresses import check_addresses
from koff.client.cluster_conf import ClusterConf
from koff.config.keys import CLUSTER_KEYS, DEFAULTS_KEYS, TOP_KEYS, Kind
from koff.config.koff_yaml import KoffYaml, override, read_koff_yaml
from koff.config.properties import gather_properties
from koff.errors import ConfigError
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import compile_expression

Command = TypeVar("Command", bound=Callable[..., Any])
_KEYS = {"cluster_name": "name", "way": "start"}
"""The keys of koff.yaml for the parameters of commands that have another name."""


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """A click option that shows its default in --help."""
    return click.option(*names, **{"show_default": True, **settings})


class Regex(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """The type of an option that takes a regular expression. Commands match it anywhere in a name."""

    name = "REGEX"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        """The compiled expression. Fails with click's error."""
        if isinstance(value, re.Pattern):
            return value
        try:
            return compile_expression(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """The type of an option whose value is that of a key of koff.yaml."""

    def __init__(self, kind: Kind, name: str) -> None:
        self.name, self._kind = name, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value. Fails with click's error."""
        if not isinstance(value, str):
            return value
        try:
            return self._kind.parse(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class FiniteRange(click.FloatRange):
    """The type of an option that takes a number in a range, and neither `nan` nor `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails with click's error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def check_name(ctx: click.Context, param: click.Parameter, name: str) -> str:
    """The value of an option, for click's `callback`. Fails with click's error if it is empty."""
    if not name.strip():
        raise click.BadParameter("the name is empty", ctx, param)
    return name


_CONNECTION_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="A librdkafka property, such as security.protocol=sasl_ssl; repeatable. A value "
        "file:PATH is the content of that file. Passwords are refused here, because other users can "
        "read a command line: put them into KOFF_PROPERTY_... variables or a file.",
    ),
    option(
        "--property-file",
        metavar="FILE",
        help="A file of librdkafka properties, one key=value per line.",
    ),
    option(
        "--offsets-topic",
        default=OFFSETS_TOPIC,
        callback=check_name,
        help="The topic to read; change it to read a mirrored copy.",
    ),
)


_CONFIG_OPTION = option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A koff.yaml with one or more clusters (docs/configuration.md). Options override it.",
)


def cluster_options(command: Command) -> Command:
    """Adds the options that name one cluster, for `read_cluster`."""
    for decorate in reversed(  # as stacked decorators: the last is applied first
        (
            option("--brokers", metavar="HOST:PORT[,...]", help="Brokers to connect to first."),
            *_CONNECTION_OPTIONS,
            _CONFIG_OPTION,
            option("--cluster", metavar="NAME", help="Which cluster of --config, if it has several."),
        )
    ):
        command = decorate(command)
    return command


class ChosenCluster(NamedTuple):
    """How to reach a cluster, and what koff.yaml and the options say of it, by the keys of koff.yaml."""

    conf: ClusterConf
    settings: Mapping[str, Any]


def read_cluster(ctx: click.Context) -> ChosenCluster:
    """The cluster that --brokers or --config names. Raises `ConfigError`, and click's `UsageError`."""
    brokers, config, name = (ctx.params[each] for each in ("brokers", "config", "cluster"))
    names_file = name is not None or _is_from(ctx, "config", (ParameterSource.COMMANDLINE,))
    if brokers and names_file and _is_from(ctx, "brokers", (ParameterSource.COMMANDLINE,)):
        raise click.UsageError("--brokers names a cluster, and so does --config: give one of them", ctx)
    settings: Mapping[str, Any] = {}
    if names_file or not brokers:
        if config is None:
            raise click.UsageError("give --brokers, or --config with a file that names clusters", ctx)
        settings = _choose_cluster(read_koff_yaml(config, os.environ), name, config)
        brokers = settings["brokers"]
    else:
        check_brokers(brokers)
    properties = gather_properties(
        pairs=ctx.params["properties"], file=ctx.params["property_file"], environment=os.environ
    )
    conf = ClusterConf(brokers, {**settings.get("properties", {}), **properties})
    return ChosenCluster(conf, {**ctx.params, **settings, **find_given(ctx)})


def _choose_cluster(file: KoffYaml, name: str | None, path: Path) -> Mapping[str, Any]:
    """The settings of the cluster of that name, or of the only cluster. Raises `ConfigError`."""
    named = {cluster["name"]: cluster for cluster in file.clusters}
    if name is None and len(named) == 1:
        return next(iter(named.values()))
    if name in named:
        return named[name]
    known = ", ".join(named)
    if name is None:
        raise ConfigError(f"{path} has {len(named)} clusters: choose one with --cluster ({known})")
    raise ConfigError(f"{path} has no cluster {name}: it has {known}")


def check_brokers(brokers: str) -> None:
    """Raises `ConfigError` if an address cannot be one."""
    try:
        check_addresses(brokers)
    except ConfigError as error:
        raise ConfigError(f"--brokers: {error}") from None


def clusters_options(command: Command) -> Command:
    """Adds the options that name one cluster, and --config, for `read_clusters`."""
    for decorate in reversed(  # as stacked decorators: the last is applied first
        (
            option(
                "--brokers",
                default="",
                show_default=False,
                metavar="HOST:PORT[,...]",
                help="Brokers to connect to first.",
            ),
            *_CONNECTION_OPTIONS,
            option(
                "--cluster-name",
                default="",
                show_default=False,
                help="The name of the cluster: in the label `cluster` and in tables.  [default: its id]",
            ),
            _CONFIG_OPTION,
        )
    ):
        command = decorate(command)
    return command


def find_given(ctx: click.Context) -> dict[str, Any]:
    """The values of the options that the command line or the environment gives, by the keys of koff.yaml."""
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    keys = {key.name for key in CLUSTER_KEYS + DEFAULTS_KEYS + TOP_KEYS if key.kind is not None}
    named = {_KEYS.get(name, name): value for name, value in ctx.params.items() if _is_from(ctx, name, given)}
    return {name: value for name, value in named.items() if name in keys and value not in (None, "", ())}


def _is_from(ctx: click.Context, name: str, sources: tuple[ParameterSource, ...]) -> bool:
    return ctx.get_parameter_source(name) in sources


def read_clusters(ctx: click.Context) -> tuple[KoffYaml, dict[str, str]]:
    """What koff.yaml and the options say, and the properties that override those of all clusters.

    Reads the file, and files with secrets, each time. Raises `ConfigError`.
    """
    given, config = find_given(ctx), ctx.params["config"]
    if "brokers" in given:
        check_brokers(given["brokers"])
    elif config is None:
        raise ConfigError("give --brokers, or --config with a file that names clusters")
    properties = gather_properties(
        pairs=ctx.params["properties"], file=ctx.params["property_file"], environment=os.environ
    )
    file = read_koff_yaml(config, os.environ) if config is not None else KoffYaml()
    return override(file, given), properties


def source_option(command: Command) -> Command:
    """Adds --source."""
    return option(
        "--source",
        type=click.Choice(["auto", "log", "coordinators"]),
        default="auto",
        help="Where commits come from. log: the offsets topic (needs READ on it). coordinators: their "
        "responses (needs DESCRIBE on the groups), without commit times and the commits between two "
        "requests. auto: the log if it may be read, else the coordinators.",
    )(command)


def zookeeper_option(command: Command) -> Command:
    """Adds --zookeeper."""
    return option(
        "--zookeeper",
        default="",
        show_default=False,
        metavar="HOST:PORT[,...][/CHROOT]",
        help="Show also the groups that keep their offsets in this ZooKeeper, as Kafka's first consumers did "
        "(needs koff[zookeeper]).",
    )(command)


def logging_options(command: Command) -> Command:
    """Adds --log-format and --log-level, for `set_up_logs`."""
    command = option(
        "--log-level",
        default="info",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="The lowest level to log.",
    )(command)
    return option(
        "--log-format",
        default="auto",
        type=click.Choice(["auto", "text", "json"]),
        help="auto is text on a terminal, else JSON.",
    )(command)


def set_up_logs(form: str = "auto", level: str = "warning") -> None:
    """Sends logs to standard error: as text on a terminal, else as JSON lines (with `form` "auto").

    Every logger of koff binds `component`, the module or package that writes the line.
    """
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderers: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
                # With rich installed, the default shows local variables, which may be passwords.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,  # the cluster, where a process watches several
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
