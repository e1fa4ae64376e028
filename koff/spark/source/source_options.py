"""Parses the options of a source. Spark passes texts, and ignores the case of the options' names.

In this module `options` maps names in lower case to values. Each function raises `ConfigError`.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from koff.client.cluster_conf import OffsetSpec
from koff.errors import ConfigError
from koff.spark.rows.decoding import RecordFilter


def check_options(source: str, given: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    """The options by name in lower case. Raises `ConfigError` if one of them is not known."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(name for name in options.keys() - known if not name.startswith("property."))
    if unknown:
        raise ConfigError(
            f"the source {source} has no option {unknown[0]!r}; its options are {', '.join(sorted(known))}"
        )
    return options


def parse_filter(options: Mapping[str, str]) -> RecordFilter:
    """The filter of the options `group`, `topic`, `from`, `until` and `commitsTo`."""
    since_ms, until_ms = (
        parse_time_ms(options[name], name) if name in options else None for name in ("from", "until")
    )
    for name in ("group", "topic", "commitsto"):
        try:
            re.compile(options.get(name, ""))
        except re.error as error:
            raise ConfigError(
                f"option {name}: {options[name]!r} is not a regular expression: {error}"
            ) from error
    return RecordFilter(
        options.get("group"), options.get("topic"), since_ms, until_ms, options.get("commitsto")
    )


def parse_time_ms(text: str, name: str) -> int:
    """Milliseconds since the epoch, from that number, or from ISO 8601 (UTC if it has no time zone)."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"option {name}: {text!r} is not a time: write 2026-11-21T14:00:00Z, or milliseconds since 1970"
        ) from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_offset(options: Mapping[str, str], name: str, default: OffsetSpec | int) -> OffsetSpec | int:
    """Where to start or end: earliest, latest, or a time in milliseconds."""
    text = options.get(name)
    if text is None:
        return default
    return OffsetSpec(text) if text in ("earliest", "latest") else parse_time_ms(text, name)


def parse_number(options: Mapping[str, str], name: str, default: int) -> int:
    """A whole number above zero."""
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"option {name}: {text!r} is not a whole number above zero")
    return int(text)


def parse_flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false, in any case."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name}: {text!r} is neither true nor false")
    return text == "true"
