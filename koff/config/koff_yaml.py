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

`koff.config.settings` has all keys.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from koff.client.secret_file import read_secret
from koff.config.kinds import Kind, Setting, Texts, list_initial
from koff.config.label_names import find_clash
from koff.config.settings import CLUSTER_SETTINGS, FILE_SETTINGS, NAMING_SETTINGS, PROCESS_SETTINGS
from koff.errors import ConfigError
from koff.records.text import escape_name
from koff.serve.config_files import compose_yaml, read_text

if TYPE_CHECKING:
    import yaml


import string

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NULL = "tag:yaml.org,2002:null"
_MAX_ERRORS = 100
_PROCESS, _CLUSTER = list_initial(PROCESS_SETTINGS), list_initial(NAMING_SETTINGS + CLUSTER_SETTINGS)


class ConfigFileError(ConfigError):
    """A configuration file with errors. `errors` has a line for each."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(map(escape_name, errors))
        super().__init__("; ".join(self.errors))


@dataclass(frozen=True, slots=True)
class KoffYaml:
    """What a file says: a value for each setting, converted. `clusters` have the `defaults` too.

    `places` says where each cluster and webhook is in the file, by its name there (`clusters[0]`): its path,
    its line and that name. `warnings` name what
    is no error and may be meant otherwise, with its line.
    """

    settings: Mapping[str, Any] = field(default_factory=_PROCESS.copy)
    clusters: tuple[Mapping[str, Any], ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def map_clusters(self, build: Callable[[Mapping[str, Any]], T]) -> list[T]:
        """What `build` returns for each cluster. The error that it raises gets the place of the cluster."""
        built = []
        for index, values in enumerate(self.clusters):
            with self.name_place(f"clusters[{index}]"):
                built.append(build(values))
        return built

    @contextmanager
    def name_place(self, name: str) -> Iterator[None]:
        """Puts the place of a cluster or a webhook in front of an error that is raised inside."""
        try:
            yield
        except ConfigError as error:
            if not self.places:  # options name the cluster
                raise
            raise ConfigFileError([f"{self.places[name]}: {error}"]) from None


def override(file: KoffYaml, given: Mapping[str, Any]) -> KoffYaml:
    """The file with the values of options, by setting. They are for all clusters. Raises `ConfigError`.

    Values that can be right for one cluster only are an error if the file has several.
    """
    if len(file.clusters) > 1:
        wrong = [
            each for each in NAMING_SETTINGS + CLUSTER_SETTINGS if each.one_cluster and each.name in given
        ]
        if names := ", ".join(str(each.option_name) for each in wrong):
            raise ConfigError(
                f"{names} (or its variable) is for one cluster, and the file has {len(file.clusters)}: "
                "put it into the file"
            )
    settings = {name: value for name, value in given.items() if name in _PROCESS}
    own = {name: value for name, value in given.items() if name not in _PROCESS}
    clusters = tuple({**cluster, **own} for cluster in file.clusters or (_CLUSTER,))
    return replace(file, settings={**file.settings, **settings}, clusters=clusters)


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
    """Parses the document. It notes each error in `errors`, by line, and continues with the rest.

    The value of a setting with an error is left out. `_nodes` has the node of each value by its place in the
    file, such as `clusters[0].labels`.
    """

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.errors: list[tuple[int, str]] = []
        self._path, self._environment = path, environment
        self._nodes: dict[str, Any] = {}
        self._warnings: list[str] = []

    def parse_file(self, document: "yaml.Node | None") -> KoffYaml:
        """What the file says; of no use to the caller if `errors` is not empty."""
        values = self._parse_object(document, "", FILE_SETTINGS)
        defaults, listed = values.pop("defaults", {}), values.pop("clusters", ())
        places = [f"clusters[{index}]" for index in range(len(listed))]
        clusters, webhooks = tuple(_merge(defaults, each) for each in listed), values.get("webhooks", ())
        by_place = dict(zip(places, clusters, strict=True)) | {"defaults": {**_CLUSTER, **defaults}}
        owned = {owner.get("webhook") for each in by_place.values() for owner in each["owners"]}
        for place, each in by_place.items():
            self._check_labels(place, each)
            self._check_owners(place, each["owners"], webhooks, owned)
        hooks = [f"webhooks[{index}]" for index in range(len(webhooks))]
        self._check_names(places, clusters, "two clusters have the name")
        self._check_names(hooks, webhooks, "two webhooks have the name")
        named = {place: f"{self._find_place(self._nodes[place])}: {place}" for place in (*places, *hooks)}
        return KoffYaml({**_PROCESS, **values}, clusters, named, tuple(self._warnings))

    def raise_errors(self) -> None:
        """Raises a `ConfigFileError` with the errors so far, by line, if there are any."""
        if self.errors:
            raise ConfigFileError([text for _, text in sorted(self.errors, key=itemgetter(0))])

    def _check_labels(self, place: str, values: Mapping[str, Any]) -> None:
        nodes = (self._nodes.get(f"{place}.{name}") for name in ("group_labels", "labels", "owners"))
        node, clash = next(filter(None, nodes), None), find_clash(values)
        if node is not None and clash is not None:  # else it is an error of `defaults`
            self._note_error(node, f"{place}: {clash}")

    def _check_names(self, places: Sequence[str], named: Sequence[Mapping[str, Any]], what: str) -> None:
        names = [each.get("name") for each in named]
        for index, (place, name) in enumerate(zip(places, names, strict=True)):
            if name is not None and name in names[:index]:
                self._note_error(self._nodes[place], f"{what} {name!r}")

    def _check_owners(
        self, place: str, owners: "Sequence[Values]", webhooks: "Sequence[Values]", owned: Collection[str]
    ) -> None:
        """Notes what is wrong with `owners`. `owned` are the webhooks that any owner of the file names."""
        if f"{place}.owners" not in self._nodes:  # it is an error of `defaults`
            return
        for number, why in find_owner_errors(owners, {each["name"] for each in webhooks if "name" in each}):
            where = f"{place}.owners[{number}]"
            self._note_error(self._nodes[where], f"{where}: {why}")
        for number in find_untold(owners, webhooks, owned):
            where = f"{place}.owners[{number}]"
            self._warnings.append(
                f"{self._find_place(self._nodes[where])}: {where} has no webhook, and each "
                "webhook is of other owners: nobody is told of events of its groups"
            )

    def _parse_object(self, node: Any, place: str, settings: Sequence[Setting]) -> dict[str, Any]:
        """The values of a mapping that may have these settings. The required ones must be there."""
        where, known, count = place or "the file", {each.name: each for each in settings}, len(self.errors)
        nodes, values = self._parse_mapping(node, where), {}
        if len(self.errors) == count:  # else it is not known which keys there are
            for each in settings:
                if each.required and each.name not in nodes:
                    self._note_error(node, f"{where} has no {each.name}")
        for name, found in nodes.items():
            if name not in known:
                self._note_error(found, f"{where} has the unknown key {name}: use {', '.join(sorted(known))}")
                continue
            value = self._parse_setting(found, f"{place}.{name}" if place else name, known[name])
            if value is not None:
                values[name] = value
        return values

    def _parse_setting(self, node: Any, place: str, setting: Setting) -> Any:
        """The value. None after an error."""
        self._nodes[place] = node
        kind = setting.kind
        if isinstance(kind, Texts):
            return self._parse_texts(node, place, kind, has_secrets=setting.mask is not None)
        if isinstance(kind, Kind) and not (setting.many and node.id == "sequence"):
            value = self._parse_value(node, place, kind)
            return (value,) if setting.many and value is not None else value
        if isinstance(kind, Kind):
            if not node.value:
                self._note_error(node, f"{place} is an empty list: leave the key out")
            parsed = (self._parse_value(each, place, kind) for each in node.value)
            return tuple(value for value in parsed if value is not None)
        if not setting.many:
            return self._parse_object(node, place, kind)
        if node.id != "sequence" or (setting.required and not node.value):
            self._note_error(node, f"{place} must be a list (- {kind[0].name}: ...)")
            return ()
        places = [f"{place}[{index}]" for index in range(len(node.value))]
        self._nodes |= zip(places, node.value, strict=True)
        return tuple(map(self._parse_object, node.value, places, repeat(kind)))

    def _parse_value(self, node: Any, place: str, kind: Kind) -> Any:
        """The value. None after an error."""
        if kind.joined and node.id == "sequence" and node.value:
            parts = [self._parse_text(each, place) for each in node.value]
            text = None if None in parts else ",".join(map(str, parts))
        else:
            text = self._parse_text(node, place)
        try:
            return None if text is None else kind.parse_value(text)
        except ValueError as error:
            self._note_error(node, f"{place} {error}")
            return None

    def _parse_texts(self, node: Any, place: str, kind: Texts, *, has_secrets: bool) -> dict[str, str]:
        """A mapping of names to texts."""
        texts: dict[str, str] = {}
        for name, value in self._parse_mapping(node, place).items():
            where = f"{place}.{name}"
            if (text := self._parse_text(value, where)) is None:
                continue
            try:
                texts[name] = read_secret(text, where) if has_secrets else text
            except ConfigError as error:
                self._note_error(value, str(error))
                continue
            if why := kind.find_fault(name, texts[name]):
                self._note_error(value, f"{where}{why}")
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
        given = str(node.value)
        for name in _VARIABLE.findall(given):
            if name not in self._environment:
                self._note_error(node, f"{where}: set the environment variable {name}")
        text = _VARIABLE.sub(lambda found: self._environment.get(found[1], ""), given)
        if not _is_plain(text):
            self._note_error(node, f"{where} has a character that no text may have")
        return text if len(self.errors) == count else None

    def _note_error(self, node: Any, text: str) -> None:
        line = 0 if node is None else node.start_mark.line + 1
        self.errors.append((line, f"{self._find_place(node)}: {text}"))
        if len(self.errors) == _MAX_ERRORS:  # with aliases, a short file can have any number of errors
            self.raise_errors()

    def _find_place(self, node: Any) -> str:
        return self._path if node is None else f"{self._path}, line {node.start_mark.line + 1}"


def _merge(defaults: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a cluster. Its properties and labels are added to those of `defaults`."""
    values = {**_CLUSTER, **defaults, **cluster}
    for name in ("properties", "labels"):
        values[name] = {**defaults.get(name, {}), **cluster.get(name, {})}
    return values


def _is_plain(text: str) -> bool:
    """Whether a program can pass the text on: without NUL, and without halves of characters."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


_NAMES = (*string.ascii_letters, *string.digits, *"._-", "a-group_of.many-0123456789")
"""An expression that is found in each of these names is taken to be found in every name."""

Values = Mapping[str, Any]


def find_owner_errors(owners: Sequence[Values], names: Collection[str]) -> Iterator[tuple[int, str]]:
    """The number of each owner that is wrong, and why. `names` are those of the webhooks."""
    before: dict[str, int] = {}
    for number, owner in enumerate(owners):
        webhook, pattern = owner.get("webhook"), owner.get("groups")
        if webhook is not None and webhook not in names:
            known = f"use {', '.join(sorted(names))}" if names else "give one of webhooks this name"
            yield number, f"no webhook has the name {webhook!r}: {known}"
        if pattern is None:  # an error of its own
            continue
        if (first := before.setdefault(pattern.pattern, number)) < number:
            yield number, f"it never decides: owners[{first}] has the same groups"
        elif number < len(owners) - 1 and finds_all(pattern):
            yield number, "its groups are all groups, so the owners after it never decide: put it last"


def finds_all(pattern: re.Pattern[str]) -> bool:
    """Whether the expression is found in any name. What has a negative assertion is said not to be."""
    is_negative = "(?!" in pattern.pattern or "(?<!" in pattern.pattern
    return not is_negative and all(map(pattern.search, _NAMES))


def find_untold(owners: Sequence[Values], webhooks: Sequence[Values], owned: Collection[str]) -> list[int]:
    """The numbers of the owners that no webhook tells of events: all webhooks are `owned` by other owners."""
    if not webhooks or any(each.get("name") not in owned for each in webhooks):
        return []
    return [number for number, owner in enumerate(owners) if "webhook" not in owner]
