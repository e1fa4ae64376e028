"""librdkafka properties, gathered from the places where users put them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from koff.errors import ConfigError

PROPERTY_PREFIX = "KOFF_PROPERTY_"


def gather_properties(
    *, pairs: Iterable[str] = (), file: str | None = None, environment: Mapping[str, str]
) -> dict[str, str]:
    """librdkafka properties: a file's, over them the environment's (`KOFF_PROPERTY_SASL_PASSWORD` is
    `sasl.password`), over them `key=value` pairs. Raises `ConfigError`; no message holds a value.
    """
    properties = _read_file(file) if file else {}
    for name, value in environment.items():
        if name.startswith(PROPERTY_PREFIX):
            properties[name.removeprefix(PROPERTY_PREFIX).lower().replace("_", ".")] = value
    for pair in pairs:
        properties.update([_split(pair, "--property")])
    return properties


def _read_file(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(f"cannot read the property file {path}: {failure}") from failure
    return dict(
        _split(line, f"{path}, line {number}")
        for number, line in enumerate(map(str.strip, lines), 1)
        if line and not line.startswith(("#", "!"))
    )


def _split(pair: str, where: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{where}: a property is key=value, for example security.protocol=ssl")
    return key.strip(), value.strip()
