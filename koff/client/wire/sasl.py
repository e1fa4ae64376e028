"""The client's side of each SASL mechanism, without any I/O.

An exchange is a generator: it yields the next message to send, and the caller sends it the server's response.
It returns once the log-in is complete and the server is authenticated, as far as the mechanism allows. It
raises `Refused` if the server refuses the log-in or fails its own authentication.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping

from koff.errors import KoffError

Exchange = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS, _MAX_ITERATIONS = 4_096, 1_000_000
"""With fewer iterations, a false broker gets a proof from which it can compute the password cheaply; Kafka's
clients have the same minimum (ScramMechanism.minIterations). With many more, a false broker could keep this
client busy for minutes."""
MECHANISMS = ("PLAIN", *_HASHES, "OAUTHBEARER")


class Refused(KoffError):
    """The log-in failed. The text names the reason and holds no secret."""


def plain_exchange(username: str, password: str) -> Exchange:
    """RFC 4616: one message. The server's response is empty."""
    yield b"\0" + username.encode() + b"\0" + password.encode()


def oauthbearer_exchange(token: str, extensions: Mapping[str, str] | None = None) -> Exchange:
    """RFC 7628, with extensions as in KIP-342: one message.

    A response that is not empty is the server's refusal.
    """
    pairs = "".join(f"{name}={value}\x01" for name, value in (extensions or {}).items())
    refusal = yield f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
    if refusal:
        yield b"\x01"  # RFC 7628: the client has to acknowledge the refusal
        raise Refused("the server does not accept the bearer token")


def scram_exchange(mechanism: str, username: str, password: str, *, nonce: str | None = None) -> Exchange:
    """RFC 5802 without channel binding. Like Kafka's own client, it does not apply SASLprep.

    `nonce` is for tests; by default each exchange makes a new random nonce.
    """
    algorithm = _HASHES[mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    # Client-first message; the server's response holds its nonce, the salt and the iteration count.
    first = (yield b"n,," + bare.encode()).decode("utf-8", "replace")
    attributes = _parse_attributes(first)
    try:
        salt, rounds = base64.b64decode(attributes["s"], validate=True), int(attributes["i"])
    except (KeyError, ValueError, binascii.Error):
        raise Refused(f"invalid first SCRAM message of the server: {_error_text(attributes)}") from None
    if not attributes.get("r", "").startswith(nonce):
        raise Refused("the server's SCRAM nonce does not begin with koff's nonce")
    if not _MIN_ITERATIONS <= rounds <= _MAX_ITERATIONS:
        raise Refused(
            f"the server requires {rounds} SCRAM iterations: "
            f"koff accepts {_MIN_ITERATIONS} to {_MAX_ITERATIONS}"
        )
    # Client-final message: the proof that the client knows the password.
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, rounds)
    final = f"c=biws,r={attributes['r']}"  # biws: "n,,", no channel binding
    signed = f"{bare},{first},{final}".encode()
    key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    response = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    # Server-final message: the server's proof that it knows the password too.
    attributes = _parse_attributes(response.decode("utf-8", "replace"))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if "e" in attributes:
        raise Refused(_error_text(attributes))
    if not hmac.compare_digest(attributes.get("v", "").encode(), base64.b64encode(expected)):
        raise Refused("the server does not know the password: its SCRAM signature is wrong")


def _parse_attributes(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _error_text(attributes: dict[str, str]) -> str:
    return attributes.get("e", "the salt or the iteration count is missing or invalid")
