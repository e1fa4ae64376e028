"""librdkafka properties, collected from the command line, the environment and a file; secrets in files."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from koff.client.secret_file import FILE_PREFIX, read_secret
from koff.config.kinds import MASK
from koff.errors import ConfigError

PROPERTY_PREFIX = "KOFF_PROPERTY_"
PROPERTY_FILE = "KOFF_PROPERTY_FILE"
"""The variable of the option --property-file, and of no property."""
_SECRET = re.compile(r"password|secret|^ssl\.key\.pem$|^sasl\.(oauthbearer|jaas)\.config$")


def gather_properties(
    *, pairs: Iterable[str] = (), file: str | None = None, environment: Mapping[str, str]
) -> dict[str, str]:
    """librdkafka properties by name.

    `pairs` (`key=value`) override the environment (`KOFF_PROPERTY_SASL_PASSWORD` is `sasl.password`), and the
    environment overrides the file. A value `file:PATH` is the content of that file.

    Raises `ConfigError`, also for a secret in `pairs`, which are of the command line. No error text contains
    a value: it may be a secret.
    """
    properties = _read_file(file) if file else {}
    for name, value in environment.items():
        if name.startswith(PROPERTY_PREFIX) and name != PROPERTY_FILE:
            properties[name.removeprefix(PROPERTY_PREFIX).lower().replace("_", ".")] = value
    for pair in pairs:
        key, value = _split_pair(pair, "--property")
        if is_secret(key) and not value.startswith(FILE_PREFIX):
            variable = PROPERTY_PREFIX + key.upper().replace(".", "_")
            raise ConfigError(
                f"--property {key}: other users can read a command line; set the variable {variable}, "
                f"or write --property {key}=file:PATH"
            )
        properties[key] = value
    return {key: read_secret(value, key) for key, value in properties.items()}


def is_secret(name: str) -> bool:
    """Whether the value of that property must not be shown."""
    return bool(_SECRET.search(name))


def mask_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties, without the values that must not be shown."""
    return {name: MASK if is_secret(name) else str(value) for name, value in properties.items()}


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
