"""Reads the log-in of koff's own connections (TLS and SASL) from the user's librdkafka properties.

Property names and defaults are librdkafka's (its CONFIGURATION.md).
"""

import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from koff.client import msk_iam
from koff.client.cluster_conf import ClusterConf
from koff.client.property_names import check_names
from koff.client.wire import kerberos, oidc, sasl
from koff.errors import ConfigError

TokenSource = Callable[[], str]
"""Returns the bearer token for SASL/OAUTHBEARER. Called once for each connection."""

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""librdkafka's spellings of a boolean, in any case (rd_kafka_anyconf_set_prop0)."""
_CERTIFICATE = (
    "ssl.keystore.location",
    *(f"ssl.{name}.{kind}" for name in ("certificate", "key") for kind in ("pem", "location")),
)
_MOST_BYTES = "receive.message.max.bytes"
_REASONS = {"NO_CERTIFICATE_OR_CRL_FOUND": "the file has no certificate in PEM"}
"""What the reasons of OpenSSL mean for a file that is read."""
_ENDPOINT_CHECKS = {"https": True, "none": False}
_UNSUPPORTED = (
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
    "ssl.curves.list",
    "ssl.sigalgs.list",
)
"""TLS properties of librdkafka that Python's ssl has nothing for."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in. The repr shows no secret."""

    tls: bool = False
    mechanism: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: TokenSource | None = field(default=None, repr=False)

    def start_exchange(self, host: str) -> sasl.Exchange:
        """The client's side of the SASL exchange with the broker at `host`, before its first message."""
        if self.mechanism == "GSSAPI":
            return kerberos.kerberos_exchange(self.properties, host)
        if self.mechanism == "OAUTHBEARER":
            assert self.token is not None
            extensions = oidc.parse_extensions(self.properties.get("sasl.oauthbearer.extensions", ""))
            return sasl.oauthbearer_exchange(self.token(), extensions)
        username, password = self.properties["sasl.username"], self.properties["sasl.password"]
        if self.mechanism == "PLAIN":
            return sasl.plain_exchange(username, password)
        return sasl.scram_exchange(self.mechanism, username, password)


def check_properties(conf: ClusterConf, *, token: TokenSource | None = None) -> None:
    """Raises `ConfigError` for properties that connections refuse. Connects to nothing.

    What only producers and consumers of `koff.client` use is checked when these are made.
    """
    properties = conf.read_properties()
    check_names(properties)
    if not properties.get(_MOST_BYTES, "0").isdecimal():
        raise ConfigError(f"{_MOST_BYTES} is {properties[_MOST_BYTES]!r}: it must be a number")
    if read_credentials(conf, token=token).tls:
        build_tls_context(properties)


def read_credentials(conf: ClusterConf, *, token: TokenSource | None = None) -> Credentials:
    """The credentials in the properties.

    Raises `ConfigError` if they are unsupported or incomplete, or need a library that is not installed.
    """
    properties, protocol = conf.read_properties(), _security_protocol(conf.properties)
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol is {protocol!r}: it must be one of {', '.join(_PROTOCOLS)}")
    if protocol.endswith("ssl"):
        for name in _UNSUPPORTED:
            if properties.get(name):
                raise ConfigError(f"koff does not support {name}")
    if not protocol.startswith("sasl"):
        return Credentials(tls=protocol == "ssl")
    mechanism = _sasl_mechanism(properties)
    if mechanism == msk_iam.MECHANISM:
        msk_iam.check(conf.brokers)
        mechanism, token = "OAUTHBEARER", lambda: msk_iam.sign_token(conf.brokers)[0]
    elif mechanism == "OAUTHBEARER":
        token = token or oidc.find_token_source(properties)
    elif mechanism == "GSSAPI":
        kerberos.import_gssapi()
    elif mechanism not in sasl.MECHANISMS:
        raise ConfigError(f"koff does not support sasl.mechanism {mechanism}")
    else:
        for name in ("sasl.username", "sasl.password"):
            if not properties.get(name):
                raise ConfigError(f"SASL/{mechanism} needs {name}")
    return Credentials(
        tls=protocol == "sasl_ssl",
        mechanism=mechanism,
        properties=properties,
        token=token,
    )


def shows_certificate(conf: ClusterConf) -> bool:
    """Whether the client has a certificate of its own."""
    properties = conf.read_properties()
    return any(properties.get(name) for name in _CERTIFICATE)


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
    _load_certificate(context, properties)
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
    if revoked := properties.get("ssl.crl.location"):
        with _map_file_errors("ssl.crl.location"):
            context.load_verify_locations(cafile=revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_certificate(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """The client's certificate, if the properties name one: PEM files, PEM texts, or a PKCS12 keystore."""
    password = properties.get("ssl.key.password", "")
    if keystore := properties.get("ssl.keystore.location"):
        text, password = _read_keystore(keystore, properties.get("ssl.keystore.password", "")), ""
        files: tuple[AbstractContextManager[str], ...] = _as_file(text), _as_file("")
    else:
        files = _find_file(properties, "certificate"), _find_file(properties, "key")
    with files[0] as certificate_path, files[1] as key_path:
        if certificate_path:
            names = ", ".join(name for name in _CERTIFICATE if properties.get(name))
            with _map_file_errors(names, _find_fault(certificate_path, key_path, password)):
                # Without a key, it must be in the certificate's file. Always give a password: otherwise
                # OpenSSL asks at the terminal for the password of an encrypted key.
                context.load_cert_chain(certificate_path, key_path or None, password)
        elif key_path:
            raise ConfigError("there is a key and no certificate: set ssl.certificate.location, too")


def _find_fault(certificate_path: str, key_path: str, password: str) -> str:
    """What is wrong with a certificate and a key that cannot be loaded. OpenSSL says "PEM lib" of all."""
    try:
        certificate = Path(certificate_path).read_text(errors="replace")
        key = Path(key_path or certificate_path).read_text(errors="replace")
    except OSError:
        return ""  # the error names the file
    if "CERTIFICATE-----" not in certificate:
        return f"{certificate_path} has no certificate in PEM"
    if "PRIVATE KEY-----" not in key:
        more = "" if key_path else ", and ssl.key.location is not set"
        return f"{key_path or certificate_path} has no private key in PEM{more}"
    if "ENCRYPTED" in key:
        wrong = "not its password" if password else "not set"
        return f"the key is encrypted, and ssl.key.password is {wrong}"
    return "the key is not that of the certificate; is this an authority's certificate (ssl.ca.location)?"


def _find_file(properties: Mapping[str, str], name: str) -> AbstractContextManager[str]:
    text, location = properties.get(f"ssl.{name}.pem"), properties.get(f"ssl.{name}.location", "")
    return _as_file(text) if text else nullcontext(location)


def _read_keystore(location: str, password: str) -> str:
    """The key and the certificates of a PKCS12 keystore, as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError("ssl.keystore.location needs cryptography: pip install 'koff[pkcs12]'") from error
    with _map_file_errors("ssl.keystore.location"):
        data = Path(location).read_bytes()
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise ConfigError("cannot use ssl.keystore.location and ssl.keystore.password") from error
    if store.key is None or store.cert is None:
        raise ConfigError(f"the keystore {location} has no key with a certificate")
    pem = serialization.Encoding.PEM
    key = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = [store.cert, *store.additional_certs]
    return b"".join([key, *(each.certificate.public_bytes(pem) for each in chain)]).decode()


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The path of a file with that text, which only this user can read; "" without a text.

    Python reads certificates from files only.
    """
    if not text:
        yield ""
        return
    with tempfile.NamedTemporaryFile("w", prefix="koff-", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


@contextmanager
def _map_file_errors(names: str, guess: str = "") -> Iterator[None]:
    """Maps OSError to `ConfigError` with `names` and the reason, and never with a file's content.

    `guess` is a better reason than that of OpenSSL.
    """
    try:
        yield
    except OSError as error:  # ssl.SSLError is an OSError
        why = error.strerror or type(error).__name__
        if isinstance(error, ssl.SSLError):
            why = guess or _REASONS.get(getattr(error, "reason", None) or "", why)
        raise ConfigError(f"cannot use {names}: {why}") from error


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
