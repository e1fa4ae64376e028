"""SASL/GSSAPI (Kerberos), by the library gssapi: the extra `koff[kerberos]`. RFC 4752."""

import hashlib
from collections.abc import Mapping
from typing import Any

from koff.client.wire.sasl import Exchange, Refused
from koff.errors import ConfigError

_NO_LAYER = 1
"""The security layer that is only authentication: TLS protects the rest."""


def import_gssapi() -> Any:
    """The library. Raises `ConfigError` if it is not installed."""
    try:
        import gssapi
    except (ImportError, OSError) as error:  # OSError: the system's library of Kerberos is not there
        raise ConfigError("SASL/GSSAPI (Kerberos) needs gssapi: pip install 'koff[kerberos]'") from error
    return gssapi


def kerberos_exchange(properties: Mapping[str, str], host: str) -> Exchange:
    """The log-in to the broker at `host`, by librdkafka's properties.

    With `sasl.kerberos.keytab`, the ticket is fetched with it, and again before it expires; otherwise it is
    that of the system's credential cache.
    """
    gssapi = import_gssapi()
    service = _get(properties, "service.name") or "kafka"
    try:
        name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        credentials = _find_credentials(gssapi, properties)
        context = gssapi.SecurityContext(name=name, creds=credentials, usage="initiate")
        message = context.step() or b""
        while not context.complete:
            message = context.step((yield message)) or b""
        # The broker offers security layers, and the most bytes that it takes of one message.
        offered = context.unwrap((yield message)).message
        if not offered[:1] or not offered[0] & _NO_LAYER:
            raise Refused("the broker offers no log-in without a SASL security layer")
        yield context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
    except gssapi.exceptions.GSSError as error:
        used = (f"{name} {value}" for name in ("principal", "keytab") if (value := _get(properties, name)))
        raise Refused(f"Kerberos: {_describe(error)} ({', '.join((f'service {service}', *used))})") from None


def _find_credentials(gssapi: Any, properties: Mapping[str, str]) -> Any:
    principal, keytab = _get(properties, "principal"), _get(properties, "keytab")
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    if not keytab:
        return gssapi.Credentials(name=name, usage="initiate")
    if not principal:
        raise ConfigError("sasl.kerberos.keytab needs sasl.kerberos.principal")
    # One cache for all connections of the process: the library renews the ticket in it.
    cache = hashlib.sha256(f"{principal}\0{keytab}".encode()).hexdigest()[:16]
    store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:koff-{cache}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)


def _get(properties: Mapping[str, str], name: str) -> str | None:
    return properties.get(f"sasl.kerberos.{name}")


def _describe(error: Any) -> str:
    """The library's text: that of Kerberos, which says more, in place of GSSAPI's own."""
    texts = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return "; ".join(texts) or str(error)
