"""Certificates for tests, and files that name them."""

import datetime
import ssl
from functools import cache
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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


def write_faulty_client(folder: Path) -> Path:
    """A certificate of the authority, and its key. Its only name is an IP address of five bytes."""
    ca, key = get_authority(), ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    names = x509.UnrecognizedExtension(
        x509.SubjectAlternativeName.oid, bytes((0x30, 7, 0x87, 5, 1, 2, 3, 4, 5))
    )
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    ca_key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "faulty")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "faulty.pem").write_bytes(key_pem + certificate.public_bytes(pem))
    return folder / "faulty.pem"


def replace_file(path: Path, text: str) -> None:
    """As Kubernetes does: koff, which looks all the time here, never reads half a file."""
    (path.parent / "changed").write_text(text)
    (path.parent / "changed").replace(path)
