"""What a source was told, taken from Spark's options: texts, whose names Spark holds in any case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from koff.client import OffsetSpec
from koff.errors import ConfigError
from koff.spark.rows.decoding import Wanted


def check(source: str, given: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    """The options by name in lower case. Raises `ConfigError` for one that is not known."""
    told = {name.lower(): value for name, value in given.items()}
    unknown = sorted(name for name in told.keys() - known if not name.startswith("property."))
    if unknown:
        raise ConfigError(
            f"the source {source} knows no option {unknown[0]!r}: it has {', '.join(sorted(known))}"
        )
    return told


def wanted(told: Mapping[str, str]) -> Wanted:
    """Which records: `group`, `topic`, `from`, `until`, `commitsTo`."""
    since_ms, until_ms = (time_ms(told[name], name) if name in told else None for name in ("from", "until"))
    for name in ("group", "topic", "commitsto"):
        try:
            re.compile(told.get(name, ""))
        except re.error as failure:
            raise ConfigError(
                f"option {name}: {told[name]!r} is no regular expression: {failure}"
            ) from failure
    return Wanted(told.get("group"), told.get("topic"), since_ms, until_ms, told.get("commitsto"))


def time_ms(text: str, name: str) -> int:
    """Milliseconds since the epoch, or a time as ISO 8601 has it; UTC where it does not say."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as failure:
        raise ConfigError(
            f"option {name}: {text!r} is no time: write 2026-11-21T14:00:00Z, or milliseconds"
        ) from failure
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def place(told: Mapping[str, str], name: str, default: OffsetSpec | int) -> OffsetSpec | int:
    text = told.get(name)
    if text is None:
        return default
    return OffsetSpec(text) if text in ("earliest", "latest") else time_ms(text, name)


def number(told: Mapping[str, str], name: str, default: int) -> int:
    text = told.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"option {name}: {text!r} is no number above zero")
    return int(text)


def flag(told: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = told.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name}: {text!r} is neither true nor false")
    return text == "true"
