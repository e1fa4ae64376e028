"""Certificates for tests, and files that name them."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

import trustme

PASSWORD = "open sesame"
PASSWORD_HASH = "$2b$04$bUU7otXDw9Z0HXShLMt32.HaCyByosqlnoq0E2dWGwDUl3C3ZDtXy"
"""Of the least cost, so that tests are quick."""


@cache
def get_authority() -> trustme.CA:
    """The authority that signs the server's certificates and those of clients."""
    return trustme.CA()


def write_server_files(folder: Path, ca: trustme.CA | None = None) -> str:
    """A new certificate for 127.0.0.1. Returns the lines of a web configuration file that name it."""
    issued = (ca or get_authority()).issue_cert("127.0.0.1", "localhost", "::1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    return "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"


def require_clients(folder: Path, ca: trustme.CA | None = None) -> str:
    """More lines: clients need a certificate of the authority."""
    (ca or get_authority()).cert_pem.write_to_path(folder / "ca.pem")
    return "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n"


def build_client_context(
    identity: str = "", *, ca: trustme.CA | None = None, of: trustme.CA | None = None
) -> ssl.SSLContext:
    """A client that trusts the authority, with a certificate for `identity` that `of` has signed."""
    context = ssl.create_default_context()
    (ca or get_authority()).configure_trust(context)
    if identity:
        (of or get_authority()).issue_cert(identity).configure_cert(context)
    return context
