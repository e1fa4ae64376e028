"""`koff config`: checks koff.yaml, shows what koff makes of it, and prints its schema."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from koff.config.kinds import FILE, Setting
from koff.config.koff_yaml import ConfigFileError, KoffYaml, read_koff_yaml
from koff.config.monitors import (
    build_metrics_conf,
    build_serve_conf,
    find_refused_properties,
    list_monitors,
    list_webhooks,
)
from koff.config.properties import gather_properties
from koff.config.settings import FILE_SETTINGS, build_schema
from koff.errors import ConfigError

_file = click.argument("file", default="koff.yaml", type=FILE, metavar="[FILE]")


@click.group()
def config() -> None:
    """Check a koff.yaml, show what koff makes of it, and print the schema of such files."""


@config.command()
@_file
def check(file: Path) -> None:
    """Check a koff.yaml (the default), and print every error and warning with its line. Does not connect.

    Variables and files with secrets are read as `koff monitor` would read them, and librdkafka checks the
    properties. koff must be able to listen on the address here. The exit code is 2 if there is an error.
    """
    errors: tuple[str, ...] = ()
    try:
        read = read_koff_yaml(file, os.environ)
        for line in read.warnings:
            click.echo(f"warning: {line}", err=True)
        errors = _find_errors(read)
    except ConfigFileError as error:
        errors = error.errors
    for line in errors:
        click.echo(line, err=True)
    if errors:
        raise click.exceptions.Exit(2)
    names = ", ".join(cluster["name"] for cluster in read.clusters)
    click.echo(f"{file} is right. Clusters: {names}")


@config.command()
@_file
def show(file: Path) -> None:
    """Print a koff.yaml as koff understands it: with defaults and the environment, and without secrets."""
    import yaml

    read = read_koff_yaml(file, os.environ)
    properties = gather_properties(environment=os.environ)
    click.echo(yaml.safe_dump(_describe(read, properties), sort_keys=False, allow_unicode=True), nl=False)


@config.command()
def schema() -> None:
    """Print the JSON schema of koff.yaml, for editors."""
    click.echo(json.dumps(build_schema(), indent=2))


def _find_errors(file: KoffYaml) -> tuple[str, ...]:
    """What is wrong with a file whose values are right by themselves. Raises `ConfigFileError`."""
    from koff.serve.access import read_rules
    from koff.serve.listening import find_listen_fault

    errors = []
    try:
        read_rules(build_serve_conf(file).access)
        build_metrics_conf(file)
        list_webhooks(file)
    except ConfigError as error:
        errors.append(str(error))
    if fault := find_listen_fault(build_serve_conf(file)):
        errors.append(fault)
    monitors = list_monitors(file, gather_properties(environment=os.environ), shares_state_dir=True)
    return (*errors, *find_refused_properties(file, monitors))


def _describe(file: KoffYaml, properties: Mapping[str, str]) -> dict[str, Any]:
    clusters = [{**each, "properties": {**each["properties"], **properties}} for each in file.clusters]
    return _describe_object(FILE_SETTINGS, {"clusters": clusters, **file.settings})


def _describe_object(settings: Sequence[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that there are, in the order of the settings, as YAML can have them."""
    found = [(each, values.get(each.name, each.initial)) for each in settings]
    return {each.name: _describe_value(each, value) for each, value in found if value not in (None, {}, ())}


def _describe_value(setting: Setting, value: Any) -> Any:
    if isinstance(setting.kind, tuple):
        return [_describe_object(setting.kind, each) for each in value]
    if setting.mask is not None:
        return setting.mask(value)
    if setting.many:
        texts = [_describe_text(each) for each in value]
        return texts[0] if len(texts) == 1 else texts
    return _describe_text(value)


def _describe_text(value: Any) -> Any:
    if isinstance(value, tuple):  # a shard
        return "/".join(map(str, value))
    if isinstance(value, re.Pattern):
        return value.pattern
    return value if type(value) in (bool, int, float, dict) else str(value)
