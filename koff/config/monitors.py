"""The configuration of `koff monitor`, as the classes of monitor, server and webhooks have it.

A field of these classes has the value of the setting with its name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from koff.client.cluster_conf import ClusterConf
from koff.client.wire.credentials import check_properties
from koff.config.koff_yaml import KoffYaml
from koff.config.label_names import find_clash
from koff.config.settings import SETTINGS
from koff.config.webhook_settings import WEBHOOK_SETTINGS
from koff.errors import ConfigError
from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.conf import MonitorConf
from koff.monitor.requests import Display
from koff.monitor.zookeeper import ZooKeeperConf
from koff.serve.access import AccessConf
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.listening import ServeConf
from koff.serve.metrics.conf import MetricsConf
from koff.tracker import Objective, Rule, ShownNames
from koff.view.owners import Owner, Owners

Conf = TypeVar("Conf", AccessConf, Display, MetricsConf, MonitorConf, WebhookConf)
_FIELDS = {each.name: each.field for each in (*SETTINGS.values(), *WEBHOOK_SETTINGS) if each.field}


def fill(kind: type[Conf], values: Mapping[str, Any], **more: Any) -> Conf:
    """An object of that class. A field that is not in `more` has the value of its setting, if any."""
    names = {field.name for field in fields(kind)}
    given = {name if name in names else _FIELDS.get(name, name): value for name, value in values.items()}
    return kind(**{**{name: value for name, value in given.items() if name in names}, **more})


def build_metrics_conf(file: KoffYaml) -> MetricsConf:
    """Which series are served. Raises `ConfigError`."""
    names = ",".join(file.settings["families"]).split(",")
    families = tuple(name.strip() for name in names if name.strip())
    return fill(MetricsConf, file.settings, families=families)


def build_serve_conf(file: KoffYaml) -> ServeConf:
    return ServeConf(file.settings["listen"], fill(AccessConf, file.settings))


def list_webhooks(file: KoffYaml) -> list[WebhookConf]:
    """A configuration for each webhook. Raises `ConfigError`, whose text has no secret."""
    confs = []
    owned = {owner.get("webhook") for cluster in file.clusters for owner in cluster["owners"]} - {None}
    for index, values in enumerate(file.settings["webhooks"]):
        with file.name_place(f"webhooks[{index}]"):
            confs.append(fill(WebhookConf, values, owned=values.get("name") in owned))
    return confs


def list_monitors(
    file: KoffYaml, properties: Mapping[str, str], *, shares_state_dir: bool
) -> list[MonitorConf]:
    """A configuration for each cluster of the file. Raises `ConfigError`.

    `properties`, of the environment or of options, override those in the file. With `shares_state_dir`, each
    cluster has a folder of its own in `state_dir`.
    """
    # A monitor of several clusters retries those that cannot be reached: they must not affect the others.
    wait = file.settings["wait"] or len(file.clusters) > 1

    def build(values: Mapping[str, Any]) -> MonitorConf:
        state_dir = file.settings["state_dir"]
        if shares_state_dir:
            state_dir = find_state_dir(file, values["name"])
        start = values["start"] or ("resume" if state_dir else "snapshot")
        if start == "resume" and state_dir is None:
            raise ConfigError(
                "start resume needs state_dir (--state-dir): name the folder with the saved state"
            )
        return fill(
            MonitorConf,
            values,
            cluster=ClusterConf(values["brokers"], {**values["properties"], **properties}),
            cluster_name=values["name"] or "",
            display=_build_display(values),
            only=_choose_partitions(values),
            watches_all=values["watch_topics"] == "all",
            wait=wait,
            start=start,
            state_dir=state_dir,
            zookeeper=ZooKeeperConf(values["zookeeper"] or ""),
        )

    return file.map_clusters(build)


def build_look(conf: ClusterConf, values: Mapping[str, Any], **more: Any) -> MonitorConf:
    """The configuration for one look at a cluster with these settings, as `koff lag` takes it."""
    return MonitorConf(
        conf,
        display=Display(runbook=values["runbook"], **_build_owned(values)),
        source=values["source"],
        offsets_topic=values["offsets_topic"],
        zookeeper=ZooKeeperConf(values["zookeeper"] or ""),
        **more,
    )


def find_refused_properties(file: KoffYaml, monitors: Sequence[MonitorConf]) -> list[str]:
    """An error for each cluster whose properties koff refuses. Connects to nothing."""
    errors = []
    for index, conf in enumerate(monitors):
        try:
            with file.name_place(f"clusters[{index}]"):
                check_properties(conf.cluster)
        except ConfigError as error:
            errors.append(str(error))
    return errors


def _build_display(values: Mapping[str, Any]) -> Display:
    labels = values["labels"]
    if values["shard"] is not None:  # alerts must tell a dead shard from a dead replica
        number, count = values["shard"]
        labels = {"shard": f"{number}/{count}", **labels}
    if clash := find_clash({**values, "labels": labels}):  # the file has one, and an option the other
        raise ConfigError(clash)
    names = ShownNames(_choose_groups(values), values["topics"])
    for name in values["expected_groups"]:
        if not names.shows_group(name):
            raise ConfigError(f"expected_groups has {name!r}, which groups (or group) hides")
    return fill(Display, values, names=names, labels=labels, **_build_owned(values))


def _build_owned(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the owners of groups accept, and who they are."""
    objectives = tuple(Objective(**each) for each in values["objectives"])
    return {"objectives": objectives, "owners": Owners(tuple(Owner(**each) for each in values["owners"]))}


def _choose_groups(values: Mapping[str, Any]) -> tuple[Rule, ...]:
    if values["group"] is None:
        rules: tuple[Rule, ...] = values["groups"]
        return rules
    return (Rule(re.compile(rf"\A{re.escape(values['group'])}\Z")),)


def _choose_partitions(values: Mapping[str, Any]) -> ChosenPartitions | None:
    if values["shard"] is None and values["group"] is None:
        return None
    number, count = values["shard"] or (0, 1)
    return ChosenPartitions(number, count, values["group"])


def find_state_dir(file: KoffYaml, cluster: str) -> Path | None:
    """The folder of a cluster's state, in the folder that the file names; None if it names none."""
    folder = file.settings["state_dir"]
    return None if folder is None else Path(folder) / name_folder(cluster)


def name_folder(cluster: str) -> str:
    """The name of the folder for a cluster's state: another one for each cluster, and never a path."""
    return f"cluster-{quote(cluster, safe='')}"
