"""The address that the server listens on, as users write it. Imports nothing: `koff health` reads it, too."""

from __future__ import annotations

import re

from koff.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:9850"


def parse_listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `:port`. Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ConfigError(f"{text!r} is not HOST:PORT, for example 127.0.0.1:9850 or :9850")
    return host.strip("[]"), int(port)
