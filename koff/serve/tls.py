"""The TLS context of the server, and which client certificates it accepts."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from koff.errors import ConfigError
from koff.serve.web_config import TlsConf

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # any certificate or none is accepted, so koff need not request it
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")
"""These accept a certificate that nobody has signed. Python's ssl verifies what it requires."""
_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""OpenSSL's names for the cipher suites of TLS 1.2."""
_CIPHERS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""The cipher suites of TLS 1.3. Neither Go nor Python lets a server choose among them."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A context for connections of clients, and the names that a client's certificate may have."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str] = frozenset()

    def accepts(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with that certificate may connect. It is as `SSLSocket.getpeercert` returns it."""
        if not self.allowed_sans:
            return True
        names = (certificate or {}).get("subjectAltName", ())
        return not self.allowed_sans.isdisjoint(filter(None, (_format_san(*name) for name in names)))


def build_server_tls(conf: TlsConf) -> ServerTls:
    """Reads the certificates. Raises `ConfigError`, which names the key and never quotes a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _find_version("min_version", conf.min_version or "TLS12")
    context.maximum_version = _find_version("max_version", conf.max_version or "TLS13")
    if context.minimum_version > context.maximum_version:
        raise ConfigError("tls_server_config: min_version is above max_version")
    _choose_ciphers(context, conf.cipher_suites)
    if not conf.prefers_own_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    # Always give a password: otherwise OpenSSL asks at the terminal for the password of an encrypted key.
    _load(
        lambda: context.load_cert_chain(conf.cert_file, conf.key_file, ""),
        "cert_file and key_file",
        conf.cert_file,
        conf.key_file,
    )
    _require_clients(context, conf)
    return ServerTls(context, frozenset(conf.client_allowed_sans))


def _format_san(kind: str, value: Any) -> str:
    if kind != "IP Address":
        return str(value)
    try:
        return str(ip_address(value.strip()))  # Python writes ::1 as 0:0:0:0:0:0:0:1
    except ValueError:  # Python writes an address of a wrong length as <invalid>
        return ""


def _require_clients(context: ssl.SSLContext, conf: TlsConf) -> None:
    """Sets what certificates clients need."""
    kind, ca_file = conf.client_auth_type, conf.client_ca_file
    if kind in _UNVERIFIED:
        raise ConfigError(
            f"tls_server_config.client_auth_type: koff does not support {kind}, which accepts any; "
            "use RequireAndVerifyClientCert"
        )
    if kind not in _CLIENT_AUTH:
        raise ConfigError(
            f"tls_server_config.client_auth_type must be one of {', '.join(filter(None, _CLIENT_AUTH))}"
        )
    context.verify_mode = _CLIENT_AUTH[kind]
    if context.verify_mode != ssl.CERT_NONE and ca_file is None:
        # Go would accept what any authority of the system has signed.
        raise ConfigError(f"tls_server_config: {kind} needs client_ca_file")
    if context.verify_mode == ssl.CERT_NONE and ca_file is not None:
        raise ConfigError(
            "tls_server_config: client_ca_file needs client_auth_type RequireAndVerifyClientCert or "
            "VerifyClientCertIfGiven"
        )
    if conf.client_allowed_sans and context.verify_mode != ssl.CERT_REQUIRED:
        raise ConfigError(
            "tls_server_config: client_allowed_sans needs client_auth_type RequireAndVerifyClientCert"
        )
    if ca_file is not None:
        _load(lambda: context.load_verify_locations(ca_file), "client_ca_file", ca_file)


def _find_version(key: str, name: str) -> ssl.TLSVersion:
    if name not in _VERSIONS:
        raise ConfigError(
            f"tls_server_config.{key} must be one of {', '.join(_VERSIONS)}: older ones are not safe"
        )
    return _VERSIONS[name]


def _choose_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in _CIPHERS and name not in _CIPHERS_13]:
        raise ConfigError(f"tls_server_config.cipher_suites has the unknown name {unknown[0]}")
    chosen = [_CIPHERS[name] for name in names if name in _CIPHERS]
    if chosen:
        context.set_ciphers(":".join(chosen))
    elif names:  # no suite of TLS 1.2 is allowed
        if context.maximum_version < ssl.TLSVersion.TLSv1_3:
            raise ConfigError("tls_server_config.cipher_suites has no suite for max_version TLS12")
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _load(load: Any, keys: str, *paths: Path) -> None:
    try:
        for path in paths:
            path.open("rb").close()  # ssl does not say which file cannot be read
    except OSError as error:
        raise ConfigError(f"tls_server_config: cannot read {error.filename}: {error.strerror}") from None
    try:
        load()
    except OSError as error:  # ssl.SSLError is an OSError
        why = getattr(error, "reason", None) or error.strerror or "it holds no certificate"
        raise ConfigError(
            f"tls_server_config: cannot use {keys}: {str(why).replace('_', ' ').lower()}"
        ) from None
