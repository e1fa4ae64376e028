"""`koff.yaml`: the clusters to watch. The whole file is checked; each error names the line and the key.

clusters:
  - name: europe
    brokers: kafka-1:9092,kafka-2:9092
    properties:
      security.protocol: sasl_ssl
      sasl.password: ${EUROPE_PASSWORD}
    groups: ^payments      # only groups whose name matches (anywhere in the name)
    topics: ^orders        # only commits to topics whose name matches
    offsets_topic: __consumer_offsets
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.client import ClusterConf
from koff.errors import ConfigError
from koff.records.topics import OFFSETS_TOPIC

if TYPE_CHECKING:
    import yaml

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """A cluster to watch.

    An empty `name` means the cluster's id. `groups` and `topics` are regular expressions that a name must
    match; None matches every name.
    """

    name: str
    conf: ClusterConf
    offsets_topic: str = OFFSETS_TOPIC
    groups: str | None = None
    topics: str | None = None


def read_clusters(path: Path, environment: Mapping[str, str]) -> list[WatchedCluster]:
    """The clusters in the file. Raises one `ConfigError` that lists every error in it.

    `${NAME}` in a value stands for the environment variable NAME. No error text contains the value of a
    property or of a variable in `properties`: it may be a secret.
    """
    try:
        import yaml  # not at the top: only --config needs PyYAML
    except ImportError as error:
        raise ConfigError("--config needs PyYAML: pip install 'koff[spark]'") from error
    try:
        text = path.read_text()
        # The nodes and not the values: a node knows its line.
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        # The error's text quotes the file, where passwords may be: name only the place.
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigError(
            f"{path}{line}: the file is not YAML; put values with special characters into quotes"
        ) from None
    parser = _KoffYaml(str(path), environment)
    clusters = parser.parse_clusters(document)
    if parser.errors:
        raise ConfigError("; ".join(parser.errors))
    return clusters


class _KoffYaml:
    """Parses the document. It notes each error in `errors` and continues with the rest of the file."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.errors: list[str] = []
        self._path, self._environment = path, environment

    def parse_clusters(self, document: yaml.Node | None) -> list[WatchedCluster]:
        """The clusters; of no use to the caller if `errors` is not empty."""
        top = self._parse_mapping(document, "the file", {"clusters"})
        nodes = self._parse_items(top.get("clusters"), document)
        clusters = [self._parse_cluster(node, f"clusters[{index}]") for index, node in enumerate(nodes)]
        names = set[str]()
        for node, cluster in zip(nodes, clusters, strict=True):
            if cluster.name and cluster.name in names:
                self._note_error(node, f"two clusters have the name {cluster.name!r}")
            names.add(cluster.name)
        return clusters

    def _parse_cluster(self, node: Any, where: str) -> WatchedCluster:
        # Keys: all of them known, and the required ones present
        keys = {"name", "brokers", "properties", "groups", "topics", "offsets_topic"}
        values = self._parse_mapping(node, where, keys)
        for key in ("name", "brokers"):
            if key not in values and values is not _EMPTY:  # _EMPTY: the node's error is noted already
                self._note_error(node, f"{where} has no {key}")
        # Values: texts, of which two are regular expressions, and the mapping of properties
        text = {
            key: self._parse_text(value, f"{where}.{key}")
            for key, value in values.items()
            if key != "properties"
        }
        for key in ("groups", "topics"):
            self._check_expression(values.get(key), text.get(key), f"{where}.{key}")
        nodes = self._parse_mapping(values.get("properties"), f"{where}.properties", None)
        properties = {
            key: self._parse_text(value, f"{where}.properties.{key}") for key, value in nodes.items()
        }
        return WatchedCluster(
            name=text.get("name", ""),
            conf=ClusterConf(text.get("brokers", ""), properties),
            offsets_topic=text.get("offsets_topic", OFFSETS_TOPIC),
            groups=text.get("groups"),
            topics=text.get("topics"),
        )

    def _parse_mapping(self, node: Any, where: str, keys: set[str] | None) -> Mapping[str, Any]:
        """The values by key. With `keys` None, every key is allowed and the mapping may be absent."""
        if node is None and keys is None:
            return _EMPTY
        if node is None or node.id != "mapping":
            self._note_error(node, f"{where} must be a mapping (key: value)")
            return _EMPTY
        values: dict[str, Any] = {}
        for key, value in node.value:
            if key.id != "scalar":
                self._note_error(key, f"{where} has a key that is not a text")
            elif key.value in values:
                self._note_error(key, f"{where} has the key {key.value} twice")
            elif keys is not None and key.value not in keys:
                self._note_error(
                    key, f"{where} has the unknown key {key.value}: use {', '.join(sorted(keys))}"
                )
            else:
                values[key.value] = value
        return values

    def _parse_items(self, node: Any, document: Any) -> list[Any]:
        if node is None or node.id != "sequence" or not node.value:
            self._note_error(node or document, "clusters must be a list of clusters (- name: ...)")
            return []
        return list(node.value)

    def _parse_text(self, node: Any, where: str) -> str:
        if node.id != "scalar" or not node.value:
            self._note_error(node, f"{where} must be a text that is not empty")
            return ""
        return _VARIABLE.sub(self._variable_reader(node, where), str(node.value))

    def _variable_reader(self, node: Any, where: str) -> Callable[[re.Match[str]], str]:
        """A function that replaces a match of `${NAME}` by the value of the variable."""

        def read_variable(match: re.Match[str]) -> str:
            if match[1] not in self._environment:
                self._note_error(node, f"{where}: set the environment variable {match[1]}")
            return self._environment.get(match[1], "")

        return read_variable

    def _check_expression(self, node: Any, text: str | None, where: str) -> None:
        try:
            re.compile(text or "")
        except re.error as error:
            self._note_error(node, f"{where} is not a regular expression: {error}")

    def _note_error(self, node: Any, text: str) -> None:
        line = f", line {node.start_mark.line + 1}" if node is not None else ""
        self.errors.append(f"{self._path}{line}: {text}")


_EMPTY: Mapping[str, Any] = {}
"""The result for a mapping that is absent or wrong. Compared by identity."""
