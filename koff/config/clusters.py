"""The clusters of `koff pipeline`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.config.koff_yaml import KoffYaml
from koff.errors import ConfigError
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import Objective, Rule


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """A cluster to watch.

    An empty `name` means the cluster's id. `groups` and `topics` are regular expressions that a name must
    match; None matches every name. `objectives` are the lags that owners accept.
    """

    name: str
    conf: ClusterConf
    offsets_topic: str = OFFSETS_TOPIC
    groups: str | None = None
    topics: str | None = None
    objectives: tuple[Objective, ...] = ()


def list_watched_clusters(file: KoffYaml, properties: Mapping[str, str]) -> list[WatchedCluster]:
    """The clusters of the file. `properties`, of the environment or of options, override those in it."""

    def build(values: Mapping[str, Any]) -> WatchedCluster:
        return WatchedCluster(
            name=values["name"] or "",
            conf=ClusterConf(values["brokers"], {**values["properties"], **properties}),
            offsets_topic=values["offsets_topic"],
            groups=_find_expression(values, "groups"),
            topics=_find_expression(values, "topics"),
            objectives=tuple(Objective(**each) for each in values["objectives"]),
        )

    return file.map_clusters(build)


def _find_expression(values: Mapping[str, Any], name: str) -> str | None:
    rules: tuple[Rule, ...] = values[name]
    if len(rules) > 1 or not all(rule.includes for rule in rules):
        raise ConfigError(f"for koff pipeline, {name} is one regular expression, and no exclude:")
    return rules[0].pattern.pattern if rules else None
