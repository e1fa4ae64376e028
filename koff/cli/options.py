"""Options that several commands share, and what the options say of clusters."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from click import option
from click.core import ParameterSource

from koff.client.cluster_conf import ClusterConf
from koff.config.kinds import FILE, number
from koff.config.koff_yaml import KoffYaml, override, read_koff_yaml
from koff.config.monitors import find_state_dir
from koff.config.properties import gather_properties
from koff.config.settings import EXPRESSION, SETTINGS
from koff.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])
SECONDS = number("SECONDS", 0.1)
OF_CLUSTERS = ("brokers", "offsets_topic", "name")
"""The settings whose options are in `clusters_options`."""
_OF_CLUSTER = ("brokers", "offsets_topic", "source", "zookeeper")
"""The settings whose options are in `cluster_options` and `group_options`."""
GROUP_FILTER = option(
    "--group", type=EXPRESSION, help="Only groups whose name matches (anywhere in it: anchor with ^ and $)."
)
TOPIC_FILTER = option("--topic", type=EXPRESSION, help="Only commits for topics whose name matches.")
_PROPERTIES = (
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
        "--property-file", metavar="FILE", help="A file of librdkafka properties, one key=value per line."
    ),
)
_CONFIG = option(
    "--config",
    type=FILE,
    help="A koff.yaml with one or more clusters (docs/configuration.md). Options override it.",
)
_CLUSTER = option("--cluster", metavar="NAME", help="Which cluster of --config, if it has several.")


def decorate(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """One decorator that does what these do, with the options in this order in --help."""

    def apply(command: Command) -> Command:
        for each in reversed(decorators):  # as stacked decorators: the last is applied first
            command = each(command)
        return command

    return apply


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Adds the options of these settings."""
    return decorate(*(SETTINGS[name].build_option() for name in names))


connection_options = decorate(setting_options("brokers", "offsets_topic"), *_PROPERTIES)
"""Adds the options that name one cluster, without those of koff.yaml."""
cluster_options = decorate(connection_options, _CONFIG, _CLUSTER)
"""Adds the options that name one cluster, for `read_cluster`."""
clusters_options = decorate(setting_options(*OF_CLUSTERS), *_PROPERTIES, _CONFIG)
"""Adds the options that name one cluster, and --config, for `read_clusters`."""
group_options = setting_options("source", "zookeeper")
"""Adds the options that say where the offsets of groups are."""
logging_options = setting_options("log_level", "log_format")
"""Adds the options for `set_up_logs`."""


def timeout_option(help_text: str) -> Callable[[Command], Command]:
    """Adds --timeout, after which the command ends with what it knows."""
    return option("--timeout", "timeout_s", default=30.0, type=SECONDS, help=help_text)


def watch_options(help_text: str) -> Callable[[Command], Command]:
    """Adds --watch and --interval: whether the command goes on, and how often it looks."""
    interval = option("--interval", default=2.0, type=SECONDS, help="Time between two outputs of --watch.")
    return lambda command: option("--watch", is_flag=True, help=help_text)(interval(command))


def choose_end_interval_s(interval_s: float, *, watch: bool) -> float:
    """How often end offsets are sampled: as often as koff prints, within bounds."""
    return min(max(interval_s, 1.0), 5.0) if watch else 5.0


class ChosenCluster(NamedTuple):
    """How to reach a cluster, and the values of its settings, of koff.yaml and the options.

    Also of `state_dir`: the folder in which a monitor with this koff.yaml saves the cluster's state.
    """

    conf: ClusterConf
    settings: Mapping[str, Any]


def read_cluster(ctx: click.Context) -> ChosenCluster:
    """The cluster that --brokers or --config names. Raises `ConfigError`, and click's `UsageError`."""
    brokers, config, name = (ctx.params.get(each) for each in ("brokers", "config", "cluster"))
    is_named = name is not None or ctx.get_parameter_source("config") is ParameterSource.COMMANDLINE
    if brokers and is_named and ctx.get_parameter_source("brokers") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--brokers names a cluster, and so does --config: give one of them", ctx)
    given = _find_given(ctx, _OF_CLUSTER)
    if is_named or not brokers:
        if config is None:
            raise click.UsageError("give --brokers, or --config with a file that names clusters", ctx)
        given.pop("brokers", None)
        values = {**_choose_cluster(read_koff_yaml(config, os.environ), name, config), **given}
    else:
        values = {**override(KoffYaml(), given).clusters[0], "state_dir": None}
    conf = ClusterConf(values["brokers"], {**values["properties"], **_gather_properties(ctx)})
    return ChosenCluster(conf, values)


def _choose_cluster(file: KoffYaml, name: str | None, path: Path) -> Mapping[str, Any]:
    """The settings of the cluster of that name, or of the only cluster. Raises `ConfigError`."""
    named = {cluster["name"]: cluster for cluster in file.clusters}
    if name is None and len(named) == 1:
        name = next(iter(named))
    if name is not None and name in named:
        return {**named[name], "state_dir": find_state_dir(file, name)}
    known = ", ".join(named)
    if name is None:
        raise ConfigError(f"{path} has {len(named)} clusters: choose one with --cluster ({known})")
    raise ConfigError(f"{path} has no cluster {name}: it has {known}")


def read_clusters(ctx: click.Context) -> tuple[KoffYaml, dict[str, str]]:
    """What koff.yaml and the options say, and the properties that override those of all clusters.

    Reads the file, and files with secrets, each time. Raises `ConfigError`.
    """
    given, config = _find_given(ctx, SETTINGS), ctx.params["config"]
    if "brokers" not in given and config is None:
        raise ConfigError("give --brokers, or --config with a file that names clusters")
    file = read_koff_yaml(config, os.environ) if config is not None else KoffYaml()
    return override(file, given), _gather_properties(ctx)


def _find_given(ctx: click.Context, names: Iterable[str]) -> dict[str, Any]:
    """The values of these settings that the command line or the environment gives."""
    sources = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    # `properties` are gathered from several places.
    given = [each for each in names if each in ctx.params and each != "properties"]
    return {name: ctx.params[name] for name in given if ctx.get_parameter_source(name) in sources}


def _gather_properties(ctx: click.Context) -> dict[str, str]:
    return gather_properties(
        pairs=ctx.params["properties"], file=ctx.params["property_file"], environment=os.environ
    )
