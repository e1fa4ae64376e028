"""The bearer tokens that clients may send."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from koff.errors import ConfigError

MIN_LENGTH = 16
_HASHED = "sha256:"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The SHA-256 of each token, by the name that the file gives it."""

    hashes: Mapping[str, bytes] = field(repr=False)

    def find_name(self, token: str) -> str | None:
        """The name of the token, None if it is none of them. Takes equally long for each token."""
        hashed = _hash(token)
        found = [name for name, known in self.hashes.items() if hmac.compare_digest(known, hashed)]
        return found[0] if found else None


def parse_tokens(path: Path, text: str) -> Tokens:
    """The tokens in the text of the file `path`: `NAME TOKEN` or `NAME sha256:HEX` in each line.

    Raises `ConfigError`, which never quotes a line.
    """
    hashes: dict[str, bytes] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        words, where = line.split(), f"{path}, line {number}"
        if len(words) != 2:
            raise ConfigError(f"{where}: a line is NAME TOKEN or NAME {_HASHED}HEX")
        name, token = words
        if name in hashes:
            raise ConfigError(f"{where}: a token with this name is already there")
        hashes[name] = (
            _read_hash(token.removeprefix(_HASHED), where) if token.startswith(_HASHED) else _hash(token)
        )
        if len(token) < MIN_LENGTH:
            raise ConfigError(f"{where}: a token has at least {MIN_LENGTH} characters")
    if not hashes:
        raise ConfigError(f"{path} has no token: a line is NAME TOKEN")
    return Tokens(hashes)


def _read_hash(text: str, where: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != hashlib.sha256().digest_size:
        raise ConfigError(f"{where}: {_HASHED} is followed by 64 hexadecimal digits")
    return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
