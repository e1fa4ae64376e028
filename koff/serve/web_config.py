"""Reads Prometheus' web configuration file: TLS, users with passwords, and headers of responses.

The format is that of exporter-toolkit (docs/web-configuration.md in its repository). What Python's ssl or
koff cannot do is an error: a setting about security must never be ignored.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError
from koff.serve.config_files import compose_yaml

if TYPE_CHECKING:
    import yaml

MAX_COST = 18
"""With a higher cost, the check of one password takes more than some ten seconds."""
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
"""The salt is 16 bytes, and so its last character one of four. bcrypt refuses other hashes at each check."""
_HEADERS: Mapping[str, Sequence[str]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""The headers that the format allows, with the values that are allowed; () means any."""
_TLS_TEXTS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version", "max_version")
_TLS_LISTS = ("cipher_suites", "client_allowed_sans")
_NOT_SUPPORTED = {
    "cert": "use cert_file",
    "key": "use key_file",
    "client_ca": "use client_ca_file",
    "curve_preferences": "Python's ssl cannot set them; leave it out",
    "rate_limit": "koff limits connections instead; leave it out",
}


@dataclass(frozen=True, slots=True)
class TlsConf:
    """How to serve TLS. An empty text means that the file does not say it."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: str = ""
    min_version: str = ""
    max_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    client_allowed_sans: tuple[str, ...] = ()
    prefers_own_ciphers: bool = True

    def list_files(self) -> list[Path]:
        """The files that are read."""
        files = (self.cert_file, self.key_file, self.client_ca_file)
        return [path for path in files if path is not None]


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file says. `users` maps names to bcrypt hashes. Without `tls`, the server speaks HTTP."""

    tls: TlsConf | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


def parse_web_config(path: Path, text: str) -> WebConfig:
    """What the text of the file `path` says. Raises `ConfigError` with the line; it never quotes a hash."""
    return _WebConfigParser(path).parse_file(compose_yaml(path, text))


class _WebConfigParser:
    def __init__(self, path: Path) -> None:
        self._path = path

    def parse_file(self, document: "yaml.Node | None") -> WebConfig:
        nodes = self._parse_mapping(document, "the file")
        known = ("tls_server_config", "http_server_config", "basic_auth_users")
        self._check_keys(nodes, "the file", known)
        tls, http, users = (self._parse_mapping(nodes.get(name), name) for name in known)
        return WebConfig(self._parse_tls(tls), self._parse_users(users), self._parse_http(http))

    def _parse_tls(self, nodes: Mapping[str, Any]) -> TlsConf | None:
        if not nodes:
            return None
        name = "tls_server_config"
        self._check_keys(nodes, name, (*_TLS_TEXTS, *_TLS_LISTS, "prefer_server_cipher_suites"))
        texts = {key: self._parse_text(nodes[key], f"{name}.{key}") for key in _TLS_TEXTS if key in nodes}
        files = {
            key: self._path.parent / texts.pop(key)
            for key in list(texts)
            if key.endswith("_file") and texts[key]
        }
        for key in ("cert_file", "key_file"):
            if key not in files:
                raise ConfigError(f"{self._path}: {name} needs {key}")
        lists = {key: self._parse_list(nodes[key], f"{name}.{key}") for key in _TLS_LISTS if key in nodes}
        prefers = nodes.get("prefer_server_cipher_suites")
        is_preferred = prefers is None or self._parse_boolean(prefers, f"{name}.prefer_server_cipher_suites")
        return TlsConf(**files, **texts, **lists, prefers_own_ciphers=is_preferred)  # type: ignore[arg-type]  # by name

    def _parse_http(self, nodes: Mapping[str, Any]) -> dict[str, str]:
        self._check_keys(nodes, "http_server_config", ("http2", "headers"))
        if "http2" in nodes:  # koff speaks HTTP/1.1 only, as TLS lets client and server agree on
            self._parse_boolean(nodes["http2"], "http_server_config.http2")
        headers = {}
        for name, node in self._parse_mapping(nodes.get("headers"), "http_server_config.headers").items():
            value = self._parse_text(node, f"header {name}")
            if name not in _HEADERS:
                raise self._make_error(node, f"header {name} is not one of {', '.join(_HEADERS)}")
            if _HEADERS[name] and value not in _HEADERS[name]:
                raise self._make_error(node, f"header {name} must be {' or '.join(_HEADERS[name])}")
            if not value.isprintable() or not value.isascii():
                raise self._make_error(node, f"header {name} has a character that no header may have")
            if value:
                headers[name] = value
        return headers

    def _parse_users(self, nodes: Mapping[str, Any]) -> dict[str, str]:
        users = {}
        for name, node in nodes.items():
            users[name] = self._parse_text(node, f"basic_auth_users.{name}")
            found = _BCRYPT.fullmatch(users[name])
            if found is None:
                raise self._make_error(
                    node, f"basic_auth_users.{name} is no bcrypt hash: make one with htpasswd -nBC 10 {name}"
                )
            if not 4 <= int(found[1]) <= MAX_COST:
                raise self._make_error(
                    node, f"basic_auth_users.{name} has the cost {found[1]}: use a cost from 4 to {MAX_COST}"
                )
            if ":" in name:
                raise self._make_error(node, f"basic_auth_users.{name}: a name of a user has no colon")
        return users

    def _check_keys(self, nodes: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
        for name, node in nodes.items():
            if name not in known:
                why = _NOT_SUPPORTED.get(name)
                raise self._make_error(
                    node,
                    f"koff does not support {name}: {why}"
                    if why
                    else f"{where} has the unknown key {name}: use {', '.join(sorted(known))}",
                )

    def _parse_mapping(self, node: Any, where: str) -> dict[str, Any]:
        """The nodes of the values by key."""
        if node is None or (node.id == "scalar" and node.value in ("", "null", "~")):
            return {}
        if node.id != "mapping":
            raise self._make_error(node, f"{where} must be a mapping (key: value)")
        nodes: dict[str, Any] = {}
        for key, value in node.value:
            if key.id != "scalar":
                raise self._make_error(key, f"{where} has a key that is not a text")
            if key.value in nodes:
                raise self._make_error(key, f"{where} has the key {key.value} twice")
            nodes[key.value] = value
        return nodes

    def _parse_list(self, node: Any, where: str) -> tuple[str, ...]:
        if node.id != "sequence":
            raise self._make_error(node, f"{where} must be a list")
        return tuple(self._parse_text(each, where) for each in node.value)

    def _parse_text(self, node: Any, where: str) -> str:
        if node.id != "scalar" or "\0" in node.value:
            raise self._make_error(node, f"{where} must be a text")
        return str(node.value)

    def _parse_boolean(self, node: Any, where: str) -> bool:
        text = self._parse_text(node, where).lower()
        if text not in ("true", "false"):
            raise self._make_error(node, f"{where} must be true or false")
        return text == "true"

    def _make_error(self, node: Any, text: str) -> ConfigError:
        return ConfigError(f"{self._path}, line {node.start_mark.line + 1}: {text}")
