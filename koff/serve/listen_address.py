"""The address that the server listens on, as users write it. `koff health` reads it, too: imports little."""

import os
import re

from koff.errors import ConfigError

DEFAULT_LISTEN = os.environ.get("KOFF_DEFAULT_LISTEN") or "127.0.0.1:9850"
"""koff's image sets the variable. Any address that a user gives, also in koff.yaml, comes before it."""
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(%\w+)?\]|[^\s:/\[\]]*):(?P<port>[0-9]{1,5})")


def parse_listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `:port`. Raises `ConfigError`."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535 or not _is_host(found["host"]):
        raise ConfigError(f"{text!r} is not HOST:PORT, for example 127.0.0.1:9850 or :9850")
    return found["host"].strip("[]"), int(found["port"])


def _is_host(host: str) -> bool:
    """Whether it can be an address or a name: what has digits and points only must be an IPv4 address."""
    numbers = host.split(".")
    if re.fullmatch("[0-9.]+", host):
        return len(numbers) == 4 and all(number and int(number) <= 255 for number in numbers)
    return True
