"""Reads the log-in of koff's own connections (TLS and SASL) from the user's librdkafka properties.

Property names and defaults are librdkafka's (its CONFIGURATION.md).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from koff.client import msk_iam
from koff.client.cluster import ClusterConf
from koff.client.wire import oidc, sasl
from koff.errors import ConfigError

TokenSource = Callable[[], str]
"""Returns the bearer token for SASL/OAUTHBEARER. Called once for each connection."""

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""librdkafka's spellings of a boolean, in any case (rd_kafka_anyconf_set_prop0)."""
_ENDPOINT_CHECKS = {"https": True, "none": False}
_LIBRDKAFKA_ONLY = (
    "ssl.keystore.location",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.crl.location",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
    "ssl.curves.list",
    "ssl.sigalgs.list",
)
"""TLS properties that librdkafka supports, but Python's ssl or koff does not."""


@dataclass(frozen=True, slots=True)
class SupportCheck:
    """Whether koff's own connections support the properties; if not, `reason` is why not."""

    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in. The repr shows no secret."""

    tls: bool = False
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = field(default=None, repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)

    def start_exchange(self) -> sasl.Exchange:
        """The client's side of the SASL exchange, before its first message."""
        if self.mechanism == "PLAIN":
            return sasl.plain_exchange(self.username, self.password)
        if self.mechanism == "OAUTHBEARER":
            assert self.token is not None
            return sasl.oauthbearer_exchange(self.token(), self.extensions)
        return sasl.scram_exchange(self.mechanism, self.username, self.password)


def check_support(conf: ClusterConf, *, token: TokenSource | None = None) -> SupportCheck:
    """Whether `Connection` supports these properties. confluent-kafka's clients may support them anyway."""
    if find_spec("kio") is None:
        return SupportCheck("kio is not installed (pip install kio)")
    properties = conf.properties
    protocol = _security_protocol(properties)
    if protocol not in _PROTOCOLS:
        return SupportCheck(f"koff does not know security.protocol {protocol!r}")
    if protocol.endswith("ssl"):
        unsupported = next((name for name in _LIBRDKAFKA_ONLY if properties.get(name)), None)
        if unsupported:
            return SupportCheck(f"only librdkafka supports {unsupported}")
    if not protocol.startswith("sasl"):
        return SupportCheck()
    mechanism = _sasl_mechanism(properties)
    if mechanism == "OAUTHBEARER" and not token:
        return SupportCheck(oidc.find_unsupported(properties))
    if mechanism == msk_iam.MECHANISM:
        return SupportCheck()
    if mechanism not in sasl.MECHANISMS:
        return SupportCheck(f"only librdkafka supports the SASL mechanism {mechanism}")
    return SupportCheck()


def read_credentials(conf: ClusterConf, *, token: TokenSource | None = None) -> Credentials:
    """The credentials in the properties. Raises `ConfigError` if they are unsupported or incomplete."""
    support = check_support(conf, token=token)
    if not support:
        raise ConfigError(f"koff cannot open connections of its own: {support.reason}")
    properties, protocol = conf.read_properties(), _security_protocol(conf.properties)
    if not protocol.startswith("sasl"):
        return Credentials(tls=protocol == "ssl")
    mechanism = _sasl_mechanism(properties)
    if mechanism == msk_iam.MECHANISM:
        mechanism, token = "OAUTHBEARER", lambda: msk_iam.sign_token(conf.brokers)[0]
    elif mechanism == "OAUTHBEARER":
        token = token or partial(oidc.fetch_token, properties)
    else:
        for name in ("sasl.username", "sasl.password"):
            if not properties.get(name):
                raise ConfigError(f"SASL/{mechanism} needs {name}")
    return Credentials(
        tls=protocol == "sasl_ssl",
        mechanism=mechanism,
        username=properties.get("sasl.username", ""),
        password=properties.get("sasl.password", ""),
        token=token,
        extensions=oidc.parse_extensions(properties.get("sasl.oauthbearer.extensions", "")),
    )


def build_tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context for the `ssl.*` properties. Raises `ConfigError` naming the property that fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verify = _read_choice(properties, "enable.ssl.certificate.verification", _BOOLEANS, default="true")
    by_name = _read_choice(
        properties, "ssl.endpoint.identification.algorithm", _ENDPOINT_CHECKS, default="https"
    )
    context.check_hostname = verify and by_name  # before `verify_mode`: Python refuses the other order
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    _load_ca(context, properties)
    certificate, key = properties.get("ssl.certificate.location"), properties.get("ssl.key.location")
    if certificate:
        with _map_file_errors("ssl.certificate.location, ssl.key.location and ssl.key.password"):
            # Without `ssl.key.location`, the key must be in the certificate's file. Always give a password:
            # otherwise OpenSSL asks at the terminal for the password of an encrypted key.
            context.load_cert_chain(certificate, key or None, properties.get("ssl.key.password", ""))
    if properties.get("ssl.cipher.suites"):
        with _map_file_errors("ssl.cipher.suites"):
            context.set_ciphers(properties["ssl.cipher.suites"])
    return context


def _load_ca(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    location, pem = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    # "probe" makes librdkafka look for the system's certificates.
    if location and location != "probe":
        is_folder = Path(location).is_dir()
        with _map_file_errors("ssl.ca.location"):
            context.load_verify_locations(**{"capath" if is_folder else "cafile": location})
    if pem:
        with _map_file_errors("ssl.ca.pem"):
            context.load_verify_locations(cadata=pem)
    elif not location or location == "probe":
        context.load_default_certs()


@contextmanager
def _map_file_errors(names: str) -> Iterator[None]:
    """Maps OSError to `ConfigError` with `names` and the reason, and never with a file's content."""
    try:
        yield
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"cannot use {names}: {error.strerror or type(error).__name__}") from error


def _read_choice(
    properties: Mapping[str, str], name: str, choices: Mapping[str, bool], *, default: str
) -> bool:
    """The property's value as a boolean. Raises `ConfigError` for any value that is not in `choices`.

    An unknown value must be an error: it must never switch a check off.
    """
    value = str(properties.get(name, default))
    meaning = choices.get(value.lower())
    if meaning is None:
        raise ConfigError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")
    return meaning


def _security_protocol(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", "plaintext").lower()


def _sasl_mechanism(properties: Mapping[str, str]) -> str:
    # Both spellings are librdkafka's; GSSAPI (Kerberos) is its default.
    return (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()
