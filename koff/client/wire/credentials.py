"""How the user's librdkafka properties let a connection of our own in: TLS and SASL, or why not.

Property names and defaults are librdkafka's (its CONFIGURATION.md).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from koff.client.cluster import ClusterConf
from koff.client.wire import sasl
from koff.errors import ConfigError

TokenSource = Callable[[], str]
"""Gives the bearer token for SASL/OAUTHBEARER, anew for each connection."""

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_FOREIGN_TLS = (
    "ssl.keystore.location",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.crl.location",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "https.ca.location",
)
"""What librdkafka can and Python's ssl, or we, cannot."""


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a connection of ours can do what the properties ask for; true or false, with the `reason`."""

    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Access:
    """What it takes to be let in. Its repr shows no secret."""

    tls: bool = False
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = field(default=None, repr=False)

    def exchange(self) -> sasl.Exchange:
        """The client's side of the log-in, from its first message on."""
        if self.mechanism == "PLAIN":
            return sasl.plain(self.username, self.password)
        if self.mechanism == "OAUTHBEARER":
            assert self.token is not None
            return sasl.oauthbearer(self.token())
        return sasl.scram(self.mechanism, self.username, self.password)


def supports(conf: ClusterConf, *, token: TokenSource | None = None) -> Support:
    """Whether `Wire` can connect with these properties. If not, confluent-kafka's clients may."""
    given = conf.properties
    protocol = _protocol(given)
    if protocol not in _PROTOCOLS:
        return Support(f"security.protocol {protocol!r} is none that koff knows")
    if protocol.endswith("ssl"):
        foreign = next((name for name in _FOREIGN_TLS if given.get(name)), None)
        if foreign:
            return Support(f"{foreign} is for librdkafka alone")
    if not protocol.startswith("sasl"):
        return Support()
    mechanism = _mechanism(given)
    if mechanism == "OAUTHBEARER":
        return Support() if token else Support("SASL/OAUTHBEARER gets its tokens inside librdkafka")
    if mechanism not in sasl.MECHANISMS:
        return Support(f"SASL mechanism {mechanism} is for librdkafka alone")
    return Support()


def access(conf: ClusterConf, *, token: TokenSource | None = None) -> Access:
    """What the properties say. Raises `ConfigError` for what is not supported, or incomplete."""
    support = supports(conf, token=token)
    if not support:
        raise ConfigError(f"no connection of koff's own: {support.reason}")
    given, protocol = conf.properties, _protocol(conf.properties)
    if not protocol.startswith("sasl"):
        return Access(tls=protocol == "ssl")
    mechanism = _mechanism(given)
    if mechanism != "OAUTHBEARER":
        for name in ("sasl.username", "sasl.password"):
            if not given.get(name):
                raise ConfigError(f"SASL/{mechanism} needs {name}")
    return Access(
        tls=protocol == "sasl_ssl",
        mechanism=mechanism,
        username=given.get("sasl.username", ""),
        password=given.get("sasl.password", ""),
        token=token,
    )


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context that the `ssl.*` properties describe. Raises `ConfigError` naming a file that fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verify = properties.get("enable.ssl.certificate.verification", "true").lower() == "true"
    by_name = properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    context.check_hostname = verify and by_name
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    _trust(context, properties)
    certificate, key = properties.get("ssl.certificate.location"), properties.get("ssl.key.location")
    if certificate:
        with _reading("ssl.certificate.location, ssl.key.location and ssl.key.password"):
            # Without a password a key that has one would make OpenSSL ask the terminal.
            context.load_cert_chain(certificate, key or None, properties.get("ssl.key.password", ""))
    if properties.get("ssl.cipher.suites"):
        with _reading("ssl.cipher.suites"):
            context.set_ciphers(properties["ssl.cipher.suites"])
    return context


def addresses(brokers: str) -> Iterator[tuple[str, int]]:
    """The host and port of each of `bootstrap.servers`; a protocol before it and no port are allowed."""
    for given in brokers.split(","):
        address = given.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or (":" in host and not host.endswith("]")):
            host, port = address, "9092"
        if not port.isdecimal():
            raise ConfigError(f"{given.strip()!r} in --brokers is no host:port")
        yield host.strip("[]"), int(port)


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    location, pem = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    if location and location != "probe":
        folder = Path(location).is_dir()
        with _reading("ssl.ca.location"):
            context.load_verify_locations(**{"capath" if folder else "cafile": location})
    if pem:
        with _reading("ssl.ca.pem"):
            context.load_verify_locations(cadata=pem)
    elif not location or location == "probe":
        context.load_default_certs()


@contextmanager
def _reading(names: str) -> Iterator[None]:
    """Says which properties name what cannot be read, and why; never what stands in it."""
    try:
        yield
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"cannot use {names}: {error.strerror or type(error).__name__}") from error


def _protocol(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", "plaintext").lower()


def _mechanism(properties: Mapping[str, str]) -> str:
    return (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()
