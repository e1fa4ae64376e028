"""`koff.yaml`: the clusters to watch, checked as a whole; errors name line and key.

clusters:
  - name: europe
    brokers: kafka-1:9092,kafka-2:9092
    properties:
      security.protocol: sasl_ssl
      sasl.password: ${EUROPE_PASSWORD}
    groups: ^payments      # only groups that match, anywhere in the name
    topics: ^orders        # only commits to topics that match
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
class Watched:
    """A cluster to watch. `name` "": its id. `groups`, `topics`: expressions that names have to match."""

    name: str
    conf: ClusterConf
    offsets_topic: str = OFFSETS_TOPIC
    groups: str | None = None
    topics: str | None = None


def read_clusters(path: Path, environment: Mapping[str, str]) -> list[Watched]:
    """The clusters that the file names. Raises `ConfigError` with everything that is wrong with it.

    `${NAME}` in a value is the environment's; no message holds what it stands for.
    """
    try:
        import yaml
    except ImportError as failure:
        raise ConfigError("--config needs PyYAML: pip install 'koff[spark]'") from failure
    try:
        text = path.read_text()
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(f"cannot read {path}: {failure}") from failure
    except yaml.YAMLError as failure:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(failure).split())}") from failure
    reading = _KoffYaml(str(path), environment)
    found = reading.clusters(document)
    if reading.wrong:
        raise ConfigError("; ".join(reading.wrong))
    return found


class _KoffYaml:
    """Goes over the document; what is wrong is noted, and the rest is read all the same."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.wrong: list[str] = []
        self._path, self._environment = path, environment

    def clusters(self, document: yaml.Node | None) -> list[Watched]:
        top = self._mapping(document, "the file", {"clusters"})
        each = self._items(top.get("clusters"), document)
        found = [self._cluster(node, f"clusters[{number}]") for number, node in enumerate(each)]
        names: dict[str, int] = {}
        for node, watched in zip(each, found, strict=True):
            if watched.name and watched.name in names:
                self._note(node, f"two clusters are called {watched.name!r}")
            names[watched.name] = 1
        return found

    def _cluster(self, node: Any, where: str) -> Watched:
        keys = {"name", "brokers", "properties", "groups", "topics", "offsets_topic"}
        values = self._mapping(node, where, keys)
        for key in ("name", "brokers"):
            if key not in values and values is not _NOTHING:
                self._note(node, f"{where} has no {key}")
        text = {
            key: self._text(value, f"{where}.{key}") for key, value in values.items() if key != "properties"
        }
        for key in ("groups", "topics"):
            self._expression(values.get(key), text.get(key), f"{where}.{key}")
        given = self._mapping(values.get("properties"), f"{where}.properties", None)
        properties = {key: self._text(value, f"{where}.properties.{key}") for key, value in given.items()}
        return Watched(
            name=text.get("name", ""),
            conf=ClusterConf(text.get("brokers", ""), properties),
            offsets_topic=text.get("offsets_topic", OFFSETS_TOPIC),
            groups=text.get("groups"),
            topics=text.get("topics"),
        )

    def _mapping(self, node: Any, where: str, keys: set[str] | None) -> Mapping[str, Any]:
        if node is None and keys is None:
            return _NOTHING
        if node is None or node.id != "mapping":
            self._note(node, f"{where} is no mapping (key: value)")
            return _NOTHING
        found: dict[str, Any] = {}
        for key, value in node.value:
            if key.value in found:
                self._note(key, f"{where} says {key.value} twice")
            elif keys is not None and key.value not in keys:
                self._note(key, f"{where} knows no {key.value}: there are {', '.join(sorted(keys))}")
            else:
                found[key.value] = value
        return found

    def _items(self, node: Any, document: Any) -> list[Any]:
        if node is None or node.id != "sequence" or not node.value:
            self._note(node or document, "clusters is no list of clusters (- name: ...)")
            return []
        return list(node.value)

    def _text(self, node: Any, where: str) -> str:
        if node.id != "scalar" or not node.value:
            self._note(node, f"{where} is no text")
            return ""
        return _VARIABLE.sub(self._variable(node, where), str(node.value))

    def _variable(self, node: Any, where: str) -> Callable[[re.Match[str]], str]:
        def value(found: re.Match[str]) -> str:
            if found[1] not in self._environment:
                self._note(node, f"{where}: there is no {found[1]} in the environment")
            return self._environment.get(found[1], "")

        return value

    def _expression(self, node: Any, text: str | None, where: str) -> None:
        try:
            re.compile(text or "")
        except re.error as failure:
            self._note(node, f"{where} is not a regular expression: {failure}")

    def _note(self, node: Any, what: str) -> None:
        line = f", line {node.start_mark.line + 1}" if node is not None else ""
        self.wrong.append(f"{self._path}{line}: {what}")


_NOTHING: Mapping[str, Any] = {}
