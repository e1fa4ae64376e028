"""Reads `koff.yaml`. The whole file is checked; each error names the file, the line and the key.

clusters:
  - name: europe
    brokers: kafka-1:9092,kafka-2:9092
    properties:
      security.protocol: sasl_ssl
      sasl.username: koff
      sasl.password: ${EUROPE_PASSWORD}    # or file:/run/secrets/europe
    groups: ^payments
    labels: {region: eu}
defaults:                                  # for all clusters that do not say otherwise
  offsets_topic: __consumer_offsets
listen: :9850

`koff.config.keys` has all keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.client.secret_file import read_secret
from koff.config.keys import CLUSTER_KEYS, DEFAULTS_KEYS, TOP_KEYS, ConfigKey, Kind
from koff.config.label_names import find_clash, find_label_error
from koff.errors import ConfigError
from koff.records.text import escape_name
from koff.serve.config_files import compose_yaml, read_text
from koff.serve.events.webhook import find_header_fault

if TYPE_CHECKING:
    import yaml

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRET_TEXTS = ("properties", "headers")
"""Keys whose values may be secrets, and may name files."""
_OF_ONE_CLUSTER = ("name", "brokers", "group", "zookeeper")
_NULL = "tag:yaml.org,2002:null"
_MAX_ERRORS = 100


class ConfigFileError(ConfigError):
    """A configuration file with errors. `errors` has a line for each."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(map(escape_name, errors))
        super().__init__("; ".join(self.errors))


@dataclass(frozen=True, slots=True)
class KoffYaml:
    """What a file says: the values of keys that are in it, converted. `clusters` have the `defaults` too.

    `places` says where each cluster is in the file: its path, its line and its number.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    clusters: tuple[Mapping[str, Any], ...] = ()
    places: tuple[str, ...] = ()

    @contextmanager
    def name_place(self, index: int) -> Iterator[None]:
        """Puts the place of a cluster in front of an error that is raised inside."""
        try:
            yield
        except ConfigError as error:
            if not self.places:  # options name the cluster
                raise
            raise ConfigFileError([f"{self.places[index]}: {error}"]) from None


def override(file: KoffYaml, given: Mapping[str, Any]) -> KoffYaml:
    """The file with the values of options, by key. They are for all clusters. Raises `ConfigError`.

    Values that can be right for one cluster only are an error if the file has several.
    """
    of_process = {key.name for key in TOP_KEYS}
    own = {name: value for name, value in given.items() if name not in of_process}
    if len(file.clusters) > 1 and (wrong := [name for name in own if name in _OF_ONE_CLUSTER]):
        names = ", ".join(f"--{'cluster-name' if name == 'name' else name}" for name in wrong)
        raise ConfigError(
            f"{names} (or its variable) is for one cluster, and the file has {len(file.clusters)}: "
            "put it into the file"
        )
    settings = {name: value for name, value in given.items() if name in of_process}
    return replace(
        file,
        settings={**file.settings, **settings},
        clusters=tuple({**cluster, **own} for cluster in file.clusters or ({},)),
    )


def read_koff_yaml(path: Path, environment: Mapping[str, str]) -> KoffYaml:
    """What the file says. Raises one `ConfigFileError` with every error in it.

    `${NAME}` in a value stands for the environment variable NAME. No error text contains the value of a
    property or of a variable in `properties`: it may be a secret.
    """
    try:
        # The nodes and not the values: a node knows its line.
        document = compose_yaml(path, read_text(path))
    except ConfigError as error:
        raise ConfigFileError([str(error)]) from None
    parser = _Parser(str(path), environment)
    parsed = parser.parse_file(document)
    parser.raise_errors()
    return parsed


class _Parser:
    """Parses the document. It notes each error in `errors`, by line, and continues with the rest."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.errors: list[tuple[int, str]] = []
        self._path, self._environment = path, environment

    def parse_file(self, document: yaml.Node | None) -> KoffYaml:
        """What the file says; of no use to the caller if `errors` is not empty."""
        nodes = self._parse_mapping(document, "the file")
        defaults_node, clusters_node = nodes.pop("defaults", None), nodes.pop("clusters", None)
        settings = self._parse_keys(nodes, "", TOP_KEYS, also=("clusters", "defaults"), parent="the file")
        defaults: Mapping[str, Any] = {}
        if defaults_node is not None:
            named, defaults = self._parse_object(defaults_node, "defaults", DEFAULTS_KEYS)
            self._check_labels(named, "defaults", defaults)
        clusters, places = [], []
        if clusters_node is None or clusters_node.id != "sequence" or not clusters_node.value:
            # Without this, a file that is wrong as a whole would have two errors.
            if not self.errors:
                where = clusters_node or document
                self._note_error(where, "clusters must be a list of clusters (- name: ...)")
        else:
            for index, node in enumerate(clusters_node.value):
                clusters.append(self._parse_cluster(node, f"clusters[{index}]", defaults))
                places.append(f"{self._find_place(node)}: clusters[{index}]")
            self._check_names(clusters_node.value, clusters)
        return KoffYaml(settings, tuple(clusters), tuple(places))

    def raise_errors(self) -> None:
        """Raises a `ConfigFileError` with the errors so far, by line, if there are any."""
        if self.errors:
            raise ConfigFileError([text for _, text in sorted(self.errors, key=itemgetter(0))])

    def _parse_list(
        self, listed: Any, where: str, fields: Sequence[ConfigKey]
    ) -> tuple[Mapping[str, Any], ...]:
        if listed.id != "sequence":
            self._note_error(listed, f"{where} must be a list (- {fields[0].name}: ...)")
            return ()
        return tuple(
            self._parse_object(node, f"{where}[{index}]", fields)[1]
            for index, node in enumerate(listed.value)
        )

    def _parse_cluster(self, node: Any, where: str, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
        nodes, values = self._parse_object(node, where, CLUSTER_KEYS + DEFAULTS_KEYS)
        merged = {
            name: {**defaults[name], **values.get(name, {})}
            for name in ("properties", "labels")
            if name in defaults
        }
        cluster = {**defaults, **values, **merged}
        self._check_labels(nodes, where, cluster)
        return cluster

    def _parse_object(
        self, node: Any, where: str, keys: Sequence[ConfigKey]
    ) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """The nodes of a mapping with these keys, and their values. The required keys must be there."""
        count = len(self.errors)
        nodes = self._parse_mapping(node, where)
        if len(self.errors) == count:  # else it is not known which keys there are
            for key in keys:
                if key.required and key.name not in nodes:
                    self._note_error(node, f"{where} has no {key.name}")
        return nodes, self._parse_keys(nodes, f"{where}.", keys)

    def _check_labels(self, nodes: Mapping[str, Any], where: str, values: Mapping[str, Any]) -> None:
        node = nodes.get("group_labels", nodes.get("labels"))
        clash = find_clash(values.get("labels", {}), values.get("group_labels", ()))
        if node is not None and clash is not None:  # else it is an error of `defaults`
            self._note_error(node, f"{where}: labels and group_labels both set the label {clash}")

    def _check_names(self, nodes: Sequence[Any], clusters: Sequence[Mapping[str, Any]]) -> None:
        names = set[str]()
        for node, cluster in zip(nodes, clusters, strict=True):
            name = cluster.get("name", "")
            if name and name in names:
                self._note_error(node, f"two clusters have the name {name!r}")
            names.add(name)

    def _parse_keys(
        self,
        nodes: Mapping[str, Any],
        prefix: str,
        keys: Sequence[ConfigKey],
        *,
        also: Sequence[str] = (),
        parent: str | None = None,
    ) -> dict[str, Any]:
        """The values of the keys that are there. `also` are keys that the caller parses."""
        known = {key.name: key for key in keys}
        values: dict[str, Any] = {}
        for name, node in nodes.items():
            key = known.get(name)
            if key is None:
                listed = ", ".join(sorted([*known, *also]))
                where = parent or prefix.removesuffix(".")
                self._note_error(node, f"{where} has the unknown key {name}: use {listed}")
            elif key.fields:
                values[name] = self._parse_list(node, prefix + name, key.fields)
            elif key.kind is None:
                values[name] = self._parse_texts(node, prefix + name, key)
            elif key.many and node.id == "sequence":
                if not node.value:
                    self._note_error(node, f"{prefix}{name} is an empty list: leave the key out")
                parsed = (self._parse_value(each, prefix + name, key.kind) for each in node.value)
                values[name] = tuple(value for value in parsed if value is not None)
            elif (value := self._parse_value(node, prefix + name, key.kind)) is not None:
                values[name] = (value,) if key.many else value
        return values

    def _parse_value(self, node: Any, where: str, kind: Kind) -> Any:
        """The value. None after an error."""
        text = self._parse_text(node, where)
        try:
            return None if text is None else kind.parse(text)
        except ValueError as error:
            self._note_error(node, f"{where} {error}")
            return None

    def _parse_texts(self, node: Any, where: str, key: ConfigKey) -> dict[str, str]:
        """A mapping of names to texts: properties or labels."""
        texts: dict[str, str] = {}
        for name, value in self._parse_mapping(node, where).items():
            if key.name == "labels" and (why := find_label_error(name)):
                self._note_error(value, f"{where}.{name}: {why}")
            elif (text := self._parse_text(value, f"{where}.{name}")) is not None:
                try:
                    texts[name] = read_secret(text, f"{where}.{name}") if key.name in _SECRET_TEXTS else text
                except ConfigError as error:
                    self._note_error(value, str(error))
                    continue
                if key.name == "headers" and (why := find_header_fault(name, texts[name])):
                    self._note_error(value, f"{where}.{name} {why}")
        return texts

    def _parse_mapping(self, node: Any, where: str) -> dict[str, Any]:
        """The nodes of the values by key."""
        if node is None or node.id != "mapping":
            self._note_error(node, f"{where} must be a mapping (key: value)")
            return {}
        nodes: dict[str, Any] = {}
        for key, value in node.value:
            if key.id != "scalar" or not _is_plain(key.value):
                self._note_error(key, f"{where} has a key that is not a text")
            elif key.value in nodes:
                self._note_error(key, f"{where} has the key {key.value} twice")
            else:
                nodes[key.value] = value
        return nodes

    def _parse_text(self, node: Any, where: str) -> str | None:
        """The text, with variables replaced. None after an error."""
        count = len(self.errors)
        if node.id != "scalar" or not node.value or node.tag == _NULL:
            self._note_error(node, f"{where} must be a text that is not empty")
            return None
        text = _VARIABLE.sub(self._variable_reader(node, where), str(node.value))
        if not _is_plain(text):
            self._note_error(node, f"{where} has a character that no text may have")
        return text if len(self.errors) == count else None

    def _variable_reader(self, node: Any, where: str) -> Callable[[re.Match[str]], str]:
        """A function that replaces a match of `${NAME}` by the value of the variable."""

        def read_variable(match: re.Match[str]) -> str:
            if match[1] not in self._environment:
                self._note_error(node, f"{where}: set the environment variable {match[1]}")
            return self._environment.get(match[1], "")

        return read_variable

    def _note_error(self, node: Any, text: str) -> None:
        line = 0 if node is None else node.start_mark.line + 1
        self.errors.append((line, f"{self._find_place(node)}: {text}"))
        if len(self.errors) == _MAX_ERRORS:  # with aliases, a short file can have any number of errors
            self.raise_errors()

    def _find_place(self, node: Any) -> str:
        return self._path if node is None else f"{self._path}, line {node.start_mark.line + 1}"


def _is_plain(text: str) -> bool:
    """Whether a program can pass the text on: without NUL, and without halves of characters."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
