"""Web servers on loopback that note what they get, and respond as a test says."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar


class HttpReceiver(ThreadingHTTPServer):
    """Gives each request to `respond`, in a thread of its own. `ended` is set when the server stops."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.ended = threading.Event()

    def respond(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Sends the response to a request with this body."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    server: HttpReceiver

    def do_POST(self) -> None:
        self.server.respond(self, self.rfile.read(int(self.headers["Content-Length"] or 0)))

    do_GET = do_POST

    def handle(self) -> None:
        with suppress(OSError):  # the client has given up
            super().handle()

    def log_message(self, *_: object) -> None:
        """Nothing: standard error is for failures."""


def send(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Sends a response."""
    request.send_response(status)
    for name, value in {"Content_Length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


Some = TypeVar("Some", bound=HttpReceiver)


@contextmanager
def run_receiver(receiver: Some) -> Iterator[Some]:
    """The server runs until the end of the block."""
    with receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.ended.set()
            receiver.shutdown()
            thread.join()
