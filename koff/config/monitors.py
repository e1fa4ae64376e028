"""The monitors of `koff monitor`, one for each cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from koff.client.cluster_conf import ClusterConf
from koff.client.wire.credentials import check_properties
from koff.config.keys import DEFAULTS_KEYS, TOP_KEYS
from koff.config.koff_yaml import KoffYaml
from koff.config.label_names import find_clash
from koff.errors import ConfigError
from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.conf import MonitorConf
from koff.monitor.plan import Way
from koff.monitor.requests import Display
from koff.monitor.zookeeper import ZooKeeperConf
from koff.serve.access import AccessConf
from koff.serve.listening import ServeConf
from koff.serve.metrics.conf import MetricsConf
from koff.tracker import Objective, Rule, ShownNames

_DEFAULTS = {key.name: key.default for key in DEFAULTS_KEYS + TOP_KEYS if key.default is not None}


def find_setting(file: KoffYaml, name: str) -> Any:
    """The value of a key of the whole process, or its default; None if it has none."""
    return file.settings.get(name, _DEFAULTS.get(name))


def build_metrics_conf(file: KoffYaml) -> MetricsConf:
    """Which series are served. Raises `ConfigError`."""
    listed = find_setting(file, "families")
    return MetricsConf(
        families=tuple(name.strip() for names in listed for name in names.split(",") if name.strip()),
        granularity=find_setting(file, "granularity"),
        max_series=find_setting(file, "max_series"),
        compat=find_setting(file, "compat") or (),
    )


def build_serve_conf(file: KoffYaml) -> ServeConf:
    """Where to serve, and who may connect."""
    return ServeConf(
        find_setting(file, "listen"),
        AccessConf(
            web_config_file=find_setting(file, "web_config_file"),
            tokens_file=find_setting(file, "tokens_file"),
            tokens_for=find_setting(file, "tokens_for"),
        ),
    )


def list_monitors(
    file: KoffYaml, properties: Mapping[str, str], *, shares_state_dir: bool
) -> list[MonitorConf]:
    """A configuration for each cluster of the file. Raises `ConfigError`.

    `properties`, of the environment or of options, override those in the file. With `shares_state_dir`, each
    cluster has a folder of its own in `state_dir`.
    """
    # A monitor of several clusters retries those that cannot be reached: they must not affect the others.
    wait = find_setting(file, "wait") or len(file.clusters) > 1

    def build(values: Mapping[str, Any]) -> MonitorConf:
        values, state_dir = {**_DEFAULTS, **values}, find_setting(file, "state_dir")
        if state_dir is not None and shares_state_dir:
            state_dir = Path(state_dir) / name_folder(values["name"])
        start: Way = values.get("start") or ("resume" if state_dir else "snapshot")
        if start == "resume" and state_dir is None:
            raise ConfigError(
                "start resume needs state_dir (--state-dir): name the folder with the saved state"
            )
        return MonitorConf(
            cluster=ClusterConf(values["brokers"], {**values.get("properties", {}), **properties}),
            cluster_name=values.get("name", ""),
            display=_build_display(values),
            only=_choose_partitions(values),
            watches_all=values["watch_topics"] == "all",
            log_sizes=values["log_sizes"],
            wait=wait,
            start=start,
            source=values["source"],
            state_dir=state_dir,
            offsets_topic=values["offsets_topic"],
            end_interval_s=values["end_offset_interval"],
            zookeeper=ZooKeeperConf(values.get("zookeeper", "")),
        )

    monitors = []
    for index, values in enumerate(file.clusters):
        with file.name_place(index):
            monitors.append(build(values))
    return monitors


def find_refused_properties(file: KoffYaml, monitors: Sequence[MonitorConf]) -> list[str]:
    """An error for each cluster whose properties koff refuses. Connects to nothing."""
    errors = []
    for index, conf in enumerate(monitors):
        try:
            with file.name_place(index):
                check_properties(conf.cluster)
        except ConfigError as error:
            errors.append(str(error))
    return errors


def _build_display(values: Mapping[str, Any]) -> Display:
    labels, group_labels = values.get("labels", {}), values.get("group_labels", ())
    if "shard" in values:  # alerts must tell a dead shard from a dead replica
        number, count = values["shard"]
        labels = {"shard": f"{number}/{count}", **labels}
    if clash := find_clash(labels, group_labels):  # the file has one, and an option the other
        raise ConfigError(f"labels and group_labels both set the label {clash}")
    names = ShownNames(_choose_groups(values), values.get("topics", ()))
    expected: tuple[str, ...] = values.get("expected_groups", ())
    for name in expected:
        if not names.shows_group(name):
            raise ConfigError(f"expected_groups has {name!r}, which groups (or group) hides")
    return Display(names, labels, group_labels, expected, build_objectives(values))


def build_objectives(values: Mapping[str, Any]) -> tuple[Objective, ...]:
    """The objectives of a cluster with these settings."""
    return tuple(Objective(**each) for each in values.get("objectives", ()))


def _choose_groups(values: Mapping[str, Any]) -> tuple[Rule, ...]:
    if "group" not in values:
        rules: tuple[Rule, ...] = values.get("groups", ())
        return rules
    return (Rule(re.compile(rf"\A{re.escape(values['group'])}\Z")),)


def _choose_partitions(values: Mapping[str, Any]) -> ChosenPartitions | None:
    if "shard" not in values and "group" not in values:
        return None
    number, count = values.get("shard", (0, 1))
    return ChosenPartitions(number, count, values.get("group"))


def name_folder(cluster: str) -> str:
    """The name of the folder for a cluster's state: another one for each cluster, and never a path."""
    return f"cluster-{quote(cluster, safe='')}"
