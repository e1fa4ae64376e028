"""A provider of bearer tokens on loopback, as OpenID Connect has it."""

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from koff.client.wire import oidc


class Provider(ThreadingHTTPServer):
    """A token endpoint on loopback. It notes the requests.

    When `answers` are used up, it gives `always`, or what `make` returns, with `status`.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.always = make_answer("token")
        self.make: Callable[[], bytes] = lambda: self.always
        self.status = 200
        self.url = f"http://127.0.0.1:{self.server_address[1]}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.headers["Authorization"], urllib.parse.parse_qs(body)))
        server = self.server
        status, answer = server.answers.pop(0) if server.answers else (server.status, server.make())
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Type", "application/json")  # librdkafka insists on it
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Nothing: standard error is for failures."""


def make_answer(token: str, life_s: float = 3600) -> bytes:
    return json.dumps({"access_token": token, "expires_in": life_s, "token_type": "Bearer"}).encode()


@contextmanager
def providing_tokens() -> Iterator[Provider]:
    """A provider that runs until the end of the block."""
    with Provider() as provider:
        thread = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            provider.shutdown()
            thread.join()
            oidc._find_source.cache_clear()
