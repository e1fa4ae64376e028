"""`koff config`: checks koff.yaml, shows what koff makes of it, and prints its schema."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from koff.config.keys import CLUSTER_KEYS, DEFAULTS_KEYS, TOP_KEYS, ConfigKey, build_schema
from koff.config.koff_yaml import ConfigFileError, KoffYaml, read_koff_yaml
from koff.config.monitors import (
    build_metrics_conf,
    build_serve_conf,
    find_refused_properties,
    list_monitors,
)
from koff.config.properties import gather_properties, is_secret
from koff.config.webhooks import list_webhooks
from koff.errors import ConfigError

_MASK = "********"
_file = click.argument(
    "file", default="koff.yaml", type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE]"
)


@click.group()
def config() -> None:
    """Check a koff.yaml, show what koff makes of it, and print the schema of such files."""


@config.command()
@_file
def check(file: Path) -> None:
    """Check a koff.yaml (the default), and print every error with its line. Does not connect.

    Variables and files with secrets are read as `koff monitor` would read them, and librdkafka checks the
    properties. The exit code is 2 if there is an error.
    """
    errors: tuple[str, ...] = ()
    try:
        read = read_koff_yaml(file, os.environ)
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

    errors = []
    try:
        read_rules(build_serve_conf(file).access)
        build_metrics_conf(file)
        list_webhooks(file)
    except ConfigError as error:
        errors.append(str(error))
    monitors = list_monitors(file, gather_properties(environment=os.environ), shares_state_dir=True)
    return (*errors, *find_refused_properties(file, monitors))


def _describe(file: KoffYaml, properties: Mapping[str, str]) -> dict[str, Any]:
    clusters = []
    for values in file.clusters:
        merged = {**values, "properties": {**values.get("properties", {}), **properties}}
        clusters.append(_describe_keys(CLUSTER_KEYS + DEFAULTS_KEYS, merged))
    webhooks = tuple(map(_mask_webhook, file.settings.get("webhooks", ())))
    return {"clusters": clusters, **_describe_keys(TOP_KEYS, {**file.settings, "webhooks": webhooks})}


def _mask_webhook(values: Mapping[str, Any]) -> dict[str, Any]:
    """The path of a URL, any header, and the body (as a file, or with a key in it) may be a secret."""
    url = urlsplit(values["url"])
    headers = dict.fromkeys(values.get("headers", {}), _MASK)
    masked = {"url": f"{url.scheme}://{url.netloc}/{_MASK}", "headers": headers}
    return {**values, **masked, **({"template": _MASK} if "template" in values else {})}


def _describe_keys(keys: tuple[ConfigKey, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the keys that have one, in the order of the keys, as YAML can have them."""
    found = [(key, values.get(key.name, key.default)) for key in keys]
    return {key.name: _describe_value(value, key) for key, value in found if value not in (None, {}, ())}


def _describe_value(value: Any, key: ConfigKey) -> Any:
    if key.fields:
        return [_describe_keys(key.fields, each) for each in value]
    if isinstance(value, Mapping):
        return {name: _MASK if is_secret(name) else str(text) for name, text in value.items()}
    if isinstance(value, tuple):
        if all(isinstance(each, int) for each in value):  # a shard
            return "/".join(map(str, value))
        texts = [each.pattern if isinstance(each, re.Pattern) else str(each) for each in value]
        return texts[0] if len(texts) == 1 else texts
    if isinstance(value, re.Pattern):
        return value.pattern
    return str(value) if isinstance(value, Path) else value
