"""Certificates of clients: PEM files, PEM texts and PKCS12 keystores, and lists of revoked certificates."""

from __future__ import annotations

import datetime
import re
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from koff.client.cluster_conf import ClusterConf
from koff.client.wire.connection import Connection
from koff.client.wire.credentials import build_tls_context
from koff.errors import ConfigError, LogInRefused

PASSWORD = "hush"
PEM = serialization.Encoding.PEM
NOW = datetime.datetime.now(datetime.UTC)
A_DAY = datetime.timedelta(days=1)


class Identity:
    """A key, with a certificate that it has signed itself."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = (
            x509.CertificateBuilder(self.name, self.name, self.key.public_key(), 1, NOW - A_DAY, NOW + A_DAY)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.certificate_pem = self.certificate.public_bytes(PEM).decode()

    def key_pem(self, password: str = "") -> str:
        encryption = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption).decode()

    def keystore(self) -> bytes:
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, None, encryption)

    def revoke(self, *serials: int) -> str:
        builder = x509.CertificateRevocationListBuilder(self.name, NOW - A_DAY, NOW + A_DAY)
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder(serial, NOW - A_DAY).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(PEM).decode()


@pytest.fixture(scope="module")
def client() -> Identity:
    return Identity("client")


@pytest.fixture(scope="module")
def server() -> Identity:
    return Identity("broker")


def shake_hands(properties: dict[str, str], server: Identity, client: Identity, folder: Path) -> None:
    """A handshake in memory. Both sides demand a certificate that they know. Raises `ssl.SSLError`."""
    chain = folder / "server.pem"
    chain.write_text(server.key_pem() + server.certificate_pem)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(chain)
    accepting.load_verify_locations(cadata=client.certificate_pem)
    accepting.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = build_tls_context({"ssl.ca.pem": server.certificate_pem, **properties})
    sides = [
        context.wrap_bio(to_client, to_server, server_hostname="broker"),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides


@pytest.mark.parametrize("kind", ["files", "texts", "text and file", "encrypted key", "keystore"])
def test_a_client_shows_its_certificate(
    kind: str, client: Identity, server: Identity, tmp_path: Path
) -> None:
    certificate, key, keystore = (tmp_path / name for name in ("client.pem", "key.pem", "client.p12"))
    certificate.write_text(client.certificate_pem)
    key.write_text(client.key_pem(PASSWORD if kind == "encrypted key" else ""))
    keystore.write_bytes(client.keystore())
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    texts = {"ssl.certificate.pem": client.certificate_pem, "ssl.key.pem": client.key_pem()}
    properties = {
        "files": files,
        "texts": texts,
        "text and file": {**files, "ssl.certificate.pem": client.certificate_pem},
        "encrypted key": {**files, "ssl.key.password": PASSWORD},
        "keystore": {"ssl.keystore.location": str(keystore), "ssl.keystore.password": PASSWORD},
    }[kind]
    shake_hands(properties, server, client, tmp_path)


def test_a_server_demands_the_certificate(client: Identity, server: Identity, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands({}, server, client, tmp_path)


def test_a_certificate_that_was_revoked_is_refused(
    client: Identity, server: Identity, tmp_path: Path
) -> None:
    revoked = tmp_path / "revoked.pem"
    own = {"ssl.certificate.pem": client.certificate_pem, "ssl.key.pem": client.key_pem()}
    properties = {**own, "ssl.crl.location": str(revoked)}
    revoked.write_text(server.revoke())
    shake_hands(properties, server, client, tmp_path)
    revoked.write_text(server.revoke(server.certificate.serial_number))
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake_hands(properties, server, client, tmp_path)


@pytest.mark.parametrize(
    ("written", "password"), [(None, PASSWORD), (b"nonsense", PASSWORD), ("keystore", "wrong")]
)
def test_a_keystore_that_cannot_be_used_is_named_and_nothing_of_it_is_shown(
    written: bytes | str | None, password: str, client: Identity, tmp_path: Path
) -> None:
    path = tmp_path / "client.p12"
    if written is not None:
        path.write_bytes(written if isinstance(written, bytes) else client.keystore())
    properties = {"ssl.keystore.location": str(path), "ssl.keystore.password": password}
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location") as refused:
        build_tls_context(properties)
    assert password not in str(refused.value)


@pytest.mark.parametrize(
    ("certificate", "key", "password", "why"),
    [
        ("own", "encrypted", "", "the key is encrypted, and ssl.key.password is not set"),
        ("own", "encrypted", "wrong", "the key is encrypted, and ssl.key.password is not its password"),
        (
            "authority",
            "plain",
            "",
            "the key is not that of the certificate; is this an authority's certificate",
        ),
        ("own", "own", "", "own has no private key in PEM"),
        ("own", "", "", "own has no private key in PEM, and ssl.key.location is not set"),
        ("junk", "plain", "", "junk has no certificate in PEM"),
    ],
)
def test_the_error_says_which_of_certificate_key_and_password_is_wrong(
    certificate: str, key: str, password: str, why: str, client: Identity, server: Identity, tmp_path: Path
) -> None:
    files = {
        "own": client.certificate_pem,
        "authority": server.certificate_pem,
        "plain": client.key_pem(),
        "encrypted": client.key_pem(PASSWORD),
        "junk": "no PEM",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    properties = {"ssl.certificate.location": str(tmp_path / certificate), "ssl.key.password": password}
    if key:
        properties["ssl.key.location"] = str(tmp_path / key)
    with pytest.raises(ConfigError, match=f"^cannot use ssl.certificate.location.*{re.escape(why)}"):
        build_tls_context(properties)


def test_a_key_without_a_certificate_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a key and no certificate"):
        build_tls_context({"ssl.key.location": str(tmp_path / "key")})


@pytest.mark.parametrize("has_certificate", [True, False])
def test_a_broker_that_hangs_up_refuses_the_certificate_or_requires_one(
    has_certificate: bool, client: Identity, server: Identity, tmp_path: Path
) -> None:
    """The alert may be lost: then the client sees only the end of the connection."""
    chain = tmp_path / "server.pem"
    chain.write_text(server.key_pem() + server.certificate_pem)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(chain)
    properties = {"security.protocol": "ssl", "ssl.ca.pem": server.certificate_pem}
    properties["ssl.endpoint.identification.algorithm"] = "none"
    if has_certificate:
        properties |= {"ssl.certificate.pem": client.certificate_pem, "ssl.key.pem": client.key_pem()}

    def hang_up(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        accepting.wrap_socket(accepted, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=hang_up, args=(listening,))
        thread.start()
        port = listening.getsockname()[1]
        conf = ClusterConf(f"127.0.0.1:{port}", properties)
        why = "refuses the client's certificate" if has_certificate else "requires a certificate"
        with pytest.raises(LogInRefused, match=f"perhaps it {why}"):
            Connection.connect(conf, "127.0.0.1", port)
        thread.join(60)
