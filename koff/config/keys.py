"""The keys of `koff.yaml`: what each may be, its default, and what it does. And the JSON schema of a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koff.client.addresses import check_addresses
from koff.client.secret_file import read_secret
from koff.client.topic_names import find_topic_fault
from koff.config.label_names import parse_group_labels
from koff.errors import ConfigError
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import Rule, compile_expression

MOST, LONGEST_S = 1_000_000_000, 86_400.0
"""The largest whole number, and the longest interval."""
_SHORT_NUMBER = re.compile(r"[0-9]{1,10}")
"""Python refuses to convert a text of thousands of digits."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value may be. `parse` raises ValueError, whose text follows the key: "must be ..."."""

    parse: Callable[[str], Any]
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of `koff.yaml`. Without a `kind`, its value maps names to texts.

    With `many`, it is one value or a list of values, and becomes a tuple. With `fields`, it is a list of
    mappings that have these keys. If it is `required`, it must be there.
    """

    name: str
    kind: Kind | None
    text: str
    default: Any = None
    many: bool = False
    required: bool = False
    fields: tuple[ConfigKey, ...] = ()

    def build_schema(self) -> dict[str, Any]:
        """The JSON schema of the value."""
        if self.fields:
            return {"type": "array", "items": _build_object(self.fields), "description": self.text}
        mapping = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
        schema = dict(mapping if self.kind is None else self.kind.schema)
        if self.many:
            schema = {"anyOf": [schema, {"type": "array", "minItems": 1, "items": schema}]}
        schema["description"] = self.text
        default = list(self.default) if self.many and self.default else self.default
        return schema if default is None else {**schema, "default": default}


def _parse_addresses(text: str) -> str:
    try:
        check_addresses(text)
    except ConfigError as error:
        raise ValueError(f"is wrong: {error}") from None
    return text


def _parse_listen(text: str) -> str:
    from koff.serve.listening import ServeConf  # not at the top: most commands need no server

    try:
        ServeConf(text).parse_address()
    except ConfigError:
        raise ValueError("must be HOST:PORT, for example 127.0.0.1:9850 or :9850") from None
    return text


def _parse_zookeeper(text: str) -> str:
    try:
        check_addresses(text.partition("/")[0])
    except ConfigError:
        raise ValueError("must be HOST:PORT[,...][/CHROOT]") from None
    return text


def _parse_topic(text: str) -> str:
    if fault := find_topic_fault(text):
        raise ValueError(f"is wrong: {fault}")
    return text


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _parse_families(text: str) -> str:
    from koff.serve.metrics.conf import check_families

    check_families(text.split(","))
    return text


def _parse_url(text: str) -> str:
    from koff.serve.events.webhook import check_url

    return _check(check_url, text)


def _parse_template(text: str) -> str:
    from koff.serve.events.webhook import check_template

    return _check(check_template, text)


def _check(check: Callable[[str], None], text: str) -> str:
    """The text, or that of `file:PATH`, once it is checked."""
    try:
        text = read_secret(text, "it names a file")
        check(text)
    except ConfigError as error:
        raise ValueError(f"is wrong: {error}") from None
    return text


def _parse_event_kind(text: str) -> str:
    from koff.serve.events.event import KINDS

    if text not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return text


def _parse_shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not slash or not all(_SHORT_NUMBER.fullmatch(part) for part in (number, count)):
        raise ValueError("must be I/N, for example 0/3")
    if not int(number) < int(count):
        raise ValueError("must be I/N with I from 0 to N - 1")
    return int(number), int(count)


def choice(*names: str) -> Kind:
    """One of these texts."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return text

    return Kind(parse, {"enum": list(names)})


def number(least: float, most: float) -> Kind:
    """A number from `least` to `most`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise ValueError(f"must be a number from {least:g} to {most:g}")
        return value

    return Kind(parse, {"type": "number", "minimum": least, "maximum": most})


def count(least: int) -> Kind:
    """A whole number from `least` to `MOST`."""

    def parse(text: str) -> int:
        if not _SHORT_NUMBER.fullmatch(text) or not least <= int(text) <= MOST:
            raise ValueError(f"must be a whole number from {least} to {MOST}")
        return int(text)

    return Kind(parse, {"type": "integer", "minimum": least, "maximum": MOST})


LISTEN = Kind(_parse_listen, {"type": "string", "minLength": 1})
ZOOKEEPER = Kind(_parse_zookeeper, {"type": "string", "minLength": 1})
TOPIC = Kind(_parse_topic, {"type": "string", "minLength": 1})
SHARD = Kind(_parse_shard, {"type": "string", "pattern": "^[0-9]+/[0-9]+$"})
TEXT = Kind(str, {"type": "string", "minLength": 1})
ADDRESSES = Kind(_parse_addresses, {"type": "string", "minLength": 1})
FAMILIES = Kind(_parse_families, {"type": "string", "minLength": 1})
RULE = Kind(Rule.parse, {"type": "string", "minLength": 1})
GROUP_LABELS = Kind(parse_group_labels, {"type": "string", "format": "regex"})
EXPRESSION = Kind(compile_expression, {"type": "string", "format": "regex"})
URL = Kind(_parse_url, {"type": "string", "minLength": 1})
EVENT_KIND = Kind(_parse_event_kind, {"type": "string", "minLength": 1})
TEMPLATE = Kind(_parse_template, {"type": "string", "minLength": 1})
BOOLEAN = Kind(_parse_boolean, {"type": "boolean"})
FILE = FOLDER = Kind(Path, {"type": "string", "minLength": 1})

OBJECTIVE_KEYS = (
    ConfigKey("groups", EXPRESSION, "The groups in whose name this is found.", required=True),
    ConfigKey("topics", EXPRESSION, "Only the topics in whose name this is found."),
    ConfigKey("seconds", number(1, 365 * 86_400), "The lag in seconds that is accepted.", required=True),
)
"""The keys of each element of `objectives`."""
WEBHOOK_KEYS = (
    ConfigKey(
        "url",
        URL,
        "Where to send events: http(s)://HOST[:PORT]/PATH. Or file:PATH, a file that has it.",
        required=True,
    ),
    ConfigKey("min_severity", choice("info", "warning", "error"), "The least severity to send.", "warning"),
    ConfigKey("kinds", EVENT_KIND, "Only these kinds of events.", many=True),
    ConfigKey("groups", RULE, "Only groups that these rules include, and events without a group.", many=True),
    ConfigKey("headers", None, "Headers of the request. A value file:PATH is read from a file."),
    ConfigKey("timeout", number(0.1, 3600), "Seconds for a request.", 5.0),
    ConfigKey("retries", count(0), "How often a request that failed is sent again.", 8),
    ConfigKey("template", TEMPLATE, "The body: JSON with $events or $text.", '{"events": $events}'),
)
"""The keys of each element of `webhooks`."""
CLUSTER_KEYS = (
    ConfigKey(
        "name",
        TEXT,
        "The name of the cluster: the value of the label `cluster`, and in tables.",
        required=True,
    ),
    ConfigKey("brokers", ADDRESSES, "Brokers to connect to first: HOST:PORT[,...].", required=True),
)
"""The keys that each cluster needs. They identify it, so that they have no default for several clusters."""
DEFAULTS_KEYS = (
    ConfigKey(
        "properties",
        None,
        "Properties of librdkafka, for TLS and SASL. A value file:PATH is read from a file.",
    ),
    ConfigKey(
        "groups",
        RULE,
        "Only groups in whose name this regular expression is found. koff monitor takes a list, too, also "
        "with exclude:REGEX: the first that matches decides.",
        many=True,
    ),
    ConfigKey("topics", RULE, "The same for the topics that groups commit to.", many=True),
    ConfigKey(
        "offsets_topic", TOPIC, "The topic to read: another one if it is a mirrored copy.", OFFSETS_TOPIC
    ),
    ConfigKey(
        "labels", None, "Labels that all series of the cluster get, besides `cluster`. Only koff monitor."
    ),
    ConfigKey(
        "group_labels",
        GROUP_LABELS,
        "Labels for series of a group, from its name: the first of these regular expressions that is found "
        "in it, as in ^(?P<team>[^.]+). Only koff monitor.",
        many=True,
    ),
    ConfigKey(
        "expected_groups",
        TEXT,
        "Names of groups that must be there: koff says when one is absent. Only koff monitor.",
        many=True,
    ),
    ConfigKey(
        "objectives",
        None,
        "The lag in seconds that owners of groups accept: the first that fits decides. Only koff monitor.",
        fields=OBJECTIVE_KEYS,
    ),
    ConfigKey(
        "start",
        choice("snapshot", "replay", "resume"),
        "How to start; by default resume with a state_dir, else snapshot. Only koff monitor.",
    ),
    ConfigKey(
        "source",
        choice("auto", "log", "coordinators"),
        "Where commits come from. Only koff monitor.",
        "auto",
    ),
    ConfigKey(
        "end_offset_interval",
        number(0.1, LONGEST_S),
        "Seconds between two samples of the end offsets. Only koff monitor.",
        5.0,
    ),
    ConfigKey(
        "shard",
        SHARD,
        "I/N: only every N-th partition of the offsets topic, from I on (0 to N - 1). Only koff monitor.",
    ),
    ConfigKey("group", TEXT, "Only the group of that name, and only its partition. Only koff monitor."),
    ConfigKey(
        "watch_topics",
        choice("read", "all"),
        "Sample the offsets of topics that groups read, or of all topics. Only koff monitor.",
        "read",
    ),
    ConfigKey(
        "log_sizes",
        BOOLEAN,
        "Read the sizes of logs from the brokers, every minute. Only koff monitor.",
        False,
    ),
    ConfigKey(
        "zookeeper", ZOOKEEPER, "A ZooKeeper with groups: HOST:PORT[,...][/CHROOT]. Only koff monitor."
    ),
)
"""The keys that each cluster may have, and that `defaults` may have for all clusters."""
TOP_KEYS = (
    ConfigKey("listen", LISTEN, "The address to serve on. Only koff monitor.", "127.0.0.1:9850"),
    ConfigKey(
        "web_config_file",
        FILE,
        "A web configuration file of Prometheus: TLS, users, headers. Only koff monitor.",
    ),
    ConfigKey("tokens_file", FILE, "Bearer tokens: NAME TOKEN in each line. Only koff monitor."),
    ConfigKey(
        "tokens_for",
        choice("api", "all"),
        "The paths that need a token: those of the API, or all. Only koff monitor.",
        "api",
    ),
    ConfigKey(
        "state_dir",
        FOLDER,
        "The folder for saved state, with one folder for each cluster. Only koff monitor.",
    ),
    ConfigKey(
        "wait",
        BOOLEAN,
        "Keep trying if the only cluster cannot be reached at the start. Only koff monitor.",
        False,
    ),
    ConfigKey(
        "families",
        FAMILIES,
        "The metric families to serve: names of docs/metrics.md, default, or all. Only koff monitor.",
        ("default",),
        many=True,
    ),
    ConfigKey(
        "granularity",
        choice("partition", "topic", "group"),
        "The finest series to serve: of each partition, of the topics of a group, or of groups. Only koff "
        "monitor.",
        "partition",
    ),
    ConfigKey(
        "max_series",
        count(1),
        "Serve so many series of groups and topics of each cluster at most: those with the largest lags. "
        "Only koff monitor.",
    ),
    ConfigKey(
        "compat",
        choice("kminion", "kafka_exporter"),
        "Serve also the families of these exporters, under their names. Only koff monitor.",
        many=True,
    ),
    ConfigKey("webhooks", None, "Where to send events. Only koff monitor.", fields=WEBHOOK_KEYS),
    ConfigKey("log_level", choice("debug", "info", "warning", "error"), "The lowest level to log.", "info"),
    ConfigKey("log_format", choice("auto", "text", "json"), "The format of the log.", "auto"),
)
"""The keys of the whole process, beside `clusters` and `defaults`."""


def build_schema() -> dict[str, Any]:
    """The JSON schema of `koff.yaml`."""
    cluster = _build_object(CLUSTER_KEYS + DEFAULTS_KEYS)
    schema = _build_object(TOP_KEYS, "clusters")
    schema["properties"] |= {
        "clusters": {"type": "array", "minItems": 1, "items": cluster},
        "defaults": {**_build_object(DEFAULTS_KEYS), "description": "Values for all clusters."},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "koff.yaml", **schema}


def _build_object(keys: tuple[ConfigKey, ...], *also: str) -> dict[str, Any]:
    """The schema of a mapping with these keys; `also` are further keys that it needs."""
    required = [*also, *(key.name for key in keys if key.required)]
    needs = {"required": required} if required else {}
    properties = {key.name: key.build_schema() for key in keys}
    return {"type": "object", "additionalProperties": False, **needs, "properties": properties}
