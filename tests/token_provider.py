"""A provider of bearer tokens on loopback, as OpenID Connect has it."""

import json
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from koff.client.wire import oidc
from tests.http_receiver import HttpReceiver, run_receiver, send


class Provider(HttpReceiver):
    """A token endpoint on loopback. It notes the requests.

    When `answers` are used up, it gives `always`, or what `make` returns, with `status`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.always = make_answer("token")
        self.make: Callable[[], bytes] = lambda: self.always
        self.status = 200
        self.url = f"{self.address}/token"

    def respond(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.requests.append((request.headers["Authorization"], urllib.parse.parse_qs(body.decode())))
        status, answer = self.answers.pop(0) if self.answers else (self.status, self.make())
        more = {"Location": self.url} if status == 302 else {}
        send(request, status, answer, Content_Type="application/json", **more)  # librdkafka wants the type


def make_answer(token: str, life_s: float = 3600) -> bytes:
    return json.dumps({"access_token": token, "expires_in": life_s, "token_type": "Bearer"}).encode()


@contextmanager
def providing_tokens() -> Iterator[Provider]:
    """A provider that runs until the end of the block."""
    with run_receiver(Provider()) as provider:
        yield provider
    oidc._find_source.cache_clear()
