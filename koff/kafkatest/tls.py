"""A self-signed certificate for loopback, made with the JDK's keytool."""

# ruff: noqa: S603 - it runs keytool alone

import subprocess
from pathlib import Path

from koff.kafkatest.java import KafkaTestError, java_command
from koff.kafkatest.settings import KEYSTORE_PASSWORD


def make_keystore(keystore: Path, ca_pem: Path) -> None:
    """Writes a PKCS12 keystore for a server on 127.0.0.1, and the PEM certificate that its clients trust."""
    store = ("-alias", "koff", "-keystore", str(keystore), "-storepass", KEYSTORE_PASSWORD)
    _run_keytool(
        *("-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1"),
        *("-dname", "CN=localhost", "-validity", "30"),
        *("-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc:c=ca:true"),
    )
    _run_keytool("-exportcert", *store, "-rfc", "-file", str(ca_pem))


def _run_keytool(*args: str) -> None:
    result = subprocess.run([java_command("keytool"), *args], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        # keytool prints its errors to standard output.
        raise KafkaTestError(f"keytool {args[0]} failed: {result.stdout.strip() or result.stderr.strip()}")
