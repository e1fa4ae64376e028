"""Addresses of brokers, as users write them: HOST:PORT[,HOST:PORT...]."""

import re
from collections.abc import Iterator
from ipaddress import IPv6Address

from koff.errors import ConfigError

_PROTOCOLS = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
_ADDRESS = re.compile(r"(\w+://)?[\w.:%\[\]-]+", re.ASCII)
"""The characters of a broker's address: a name, an IPv4 or IPv6 address, and maybe a protocol and a port."""
_EXAMPLE = "write HOST:PORT[,HOST:PORT...], for example localhost:9092"


def check_addresses(brokers: str) -> None:
    """Raises `ConfigError` if there is no address, or one that librdkafka would skip or read as another."""
    for protocol in re.findall(r"([^\s,]*)://", brokers):
        if protocol.lower() not in _PROTOCOLS:
            raise ConfigError(f"{protocol}:// is not a protocol of Kafka: {_EXAMPLE}")
    for entry in brokers.split(","):
        address = entry.strip()
        if address and not _ADDRESS.fullmatch(address):
            raise ConfigError(f"{address!r} is not an address: {_EXAMPLE}")
    addresses = list(parse_addresses(brokers))
    if not addresses:
        raise ConfigError(f"there is no address: {_EXAMPLE}")
    for host, port in addresses:
        if not host:
            raise ConfigError(f"':{port}' has no host: {_EXAMPLE}")


def parse_addresses(brokers: str) -> Iterator[tuple[str, int]]:
    """The host and port of each address in `bootstrap.servers`.

    An address may have a protocol in front ("SSL://"), and needs no port (then 9092). Raises `ConfigError`.
    """
    for entry in brokers.split(","):
        address = entry.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or _is_ipv6_address(address):
            host, port = address, "9092"
        is_port = re.fullmatch("[0-9]{1,5}", port) is not None and 0 < int(port) < 65_536
        if not is_port or (set(host) & set(":[]") and not _is_ipv6_address(host)):
            raise ConfigError(f"{entry.strip()!r} is not an address: {_EXAMPLE}")
        yield host.strip("[]"), int(port)


def _is_ipv6_address(text: str) -> bool:
    """Whether that is an IPv6 address, in brackets or without."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
