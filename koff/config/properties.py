"""librdkafka properties, collected from the command line, the environment and a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from koff.errors import ConfigError

PROPERTY_PREFIX = "KOFF_PROPERTY_"


def gather_properties(
    *, pairs: Iterable[str] = (), file: str | None = None, environment: Mapping[str, str]
) -> dict[str, str]:
    """librdkafka properties by name.

    `pairs` (`key=value`) override the environment (`KOFF_PROPERTY_SASL_PASSWORD` is `sasl.password`), and the
    environment overrides the file. Raises `ConfigError`. No error text contains a value: it may be a secret.
    """
    properties = _read_file(file) if file else {}
    for name, value in environment.items():
        if name.startswith(PROPERTY_PREFIX):
            properties[name.removeprefix(PROPERTY_PREFIX).lower().replace("_", ".")] = value
    for pair in pairs:
        properties.update([_split_pair(pair, "--property")])
    return properties


def _read_file(path: str) -> dict[str, str]:
    """The pairs of a property file. Lines that begin with # or ! are comments, as in Java's files."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the property file {path}: {error}") from error
    return dict(
        _split_pair(line, f"{path}, line {number}")
        for number, line in enumerate(map(str.strip, lines), 1)
        if line and not line.startswith(("#", "!"))
    )


def _split_pair(pair: str, where: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key.strip():
        # The text must not quote the pair: `--property hunter2` may be a password without its key.
        raise ConfigError(f"{where}: a property is key=value, for example security.protocol=ssl")
    return key.strip(), value.strip()
