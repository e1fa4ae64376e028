"""A proxy before koff that serves it below a path, without streams, and cleans the paths of requests."""

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import quote, unquote
from urllib.request import urlopen

PREFIX = "/koff"


@contextmanager
def run_proxy(target: str) -> Iterator[str]:
    """The URL of the page of `target` behind the proxy, until the block ends."""

    class Handler(_Handler):
        koff = target

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}{PREFIX}/"
        finally:
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    koff = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        path = _clean(path)
        if not path.startswith(PREFIX) or self.headers["Accept"] == "text/event-stream":
            self.send_error(404)
            return
        try:
            response = urlopen(f"{self.koff}{path.removeprefix(PREFIX)}?{query}")
        except HTTPError as error:
            response = error
        with response:
            body = response.read()
            self.send_response(response.status)
            self.send_header("Content-Type", response.headers["Content-Type"])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _clean(path: str) -> str:
    """The path as nginx passes it on: decoded, one slash of several, dots resolved, encoded again."""
    decoded = re.sub("/+", "/", unquote(path))
    end = "/" if decoded.endswith("/") else ""
    return quote(posixpath.normpath(decoded).rstrip("/") + end)
