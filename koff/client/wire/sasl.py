"""SASL, the client's side of each mechanism, without any I/O.

An exchange is a generator: it yields what to send, is sent what the server answered, and returns once
the server has proven itself as far as the mechanism lets it. It raises `Refused` when it has not.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator

from koff.errors import KoffError

Exchange = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_HASHES, "OAUTHBEARER")


class Refused(KoffError):
    """The log-in failed; the text says why and holds no secret."""


def plain(username: str, password: str) -> Exchange:
    """RFC 4616. The server's answer says nothing."""
    yield b"\0" + username.encode() + b"\0" + password.encode()


def oauthbearer(token: str) -> Exchange:
    """RFC 7628. An answer that is not empty is the server's refusal, which we have to acknowledge."""
    refusal = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if refusal:
        yield b"\x01"
        raise Refused("the server does not accept the bearer token")


def scram(mechanism: str, username: str, password: str, *, nonce: str | None = None) -> Exchange:
    """RFC 5802 without channel binding; like Kafka's own client it does not apply SASLprep."""
    algorithm = _HASHES[mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = (yield b"n,," + bare.encode()).decode("utf-8", "replace")
    given = _attributes(first)
    try:
        salt, rounds = base64.b64decode(given["s"], validate=True), int(given["i"])
    except (KeyError, ValueError, binascii.Error):
        raise Refused(f"the server's first SCRAM message is none: {_error(given)}") from None
    if not given.get("r", "").startswith(nonce) or rounds < 1:
        raise Refused("the server's SCRAM nonce does not follow from ours")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, rounds)
    final = f"c=biws,r={given['r']}"
    signed = f"{bare},{first},{final}".encode()
    key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    verdict = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    answer = _attributes(verdict.decode("utf-8", "replace"))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if "e" in answer:
        raise Refused(_error(answer))
    if not hmac.compare_digest(answer.get("v", "").encode(), base64.b64encode(expected)):
        raise Refused("the server does not know the password: its SCRAM signature is wrong")


def _attributes(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _error(answer: dict[str, str]) -> str:
    return answer.get("e", "it makes no sense")
