"""The HTTP server: `/metrics`, `/healthz`, `/readyz`. A scrape asks Kafka nothing: it shows what is known."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from koff.errors import ConfigError
from koff.serve.exposition import Exposition
from koff.serve.own_metrics import own_registry
from koff.serve.view import View

log = structlog.get_logger(component="serve")

_INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>koff</title>
<h1>koff</h1><ul><li><a href="/metrics">/metrics</a> for Prometheus
<li><a href="/readyz">/readyz</a> whether the numbers can be believed
<li><a href="/healthz">/healthz</a> whether the process works</ul></html>
"""


@dataclass(frozen=True, slots=True)
class ServeConf:
    """Where to listen: `host:port`, `[v6]:port` or `:port` (every address); port 0 takes a free one."""

    listen: str = "127.0.0.1:9850"

    def address(self) -> tuple[str, int]:
        """Host and port, or `ConfigError`."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(
                f"--listen {self.listen!r} is not HOST:PORT, for example 127.0.0.1:9850 or :9850"
            )
        return host.strip("[]"), int(port)


class Server:
    """Serves a view from threads of its own. A context manager: listens on entry, lets go on exit."""

    def __init__(self, view: View, conf: ServeConf | None = None) -> None:
        self._conf = conf or ServeConf()
        host, port = self._conf.address()
        handler = type(
            "Handler", (_Handler,), {"view": view, "exposition": Exposition(view), "own": own_registry(view)}
        )
        kind = type(
            "HTTPServer",
            (_HTTPServer,),
            {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET},
        )
        try:
            self._server: ThreadingHTTPServer = kind((host, port), handler)
        except OSError as failure:
            raise ConfigError(
                f"cannot listen on {self._conf.listen}: {failure.strerror or failure}; say --listen"
            ) from failure
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="koff-http", daemon=True
        )

    @property
    def url(self) -> str:
        """The address that it listens on."""
        host, port = self._server.server_address[:2]
        text = str(host)
        return f"http://{f'[{text}]' if ':' in text else text}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    """One request. Bound to a view by subclassing."""

    view: View
    exposition: Exposition
    own: CollectorRegistry
    protocol_version = "HTTP/1.1"
    server_version = "koff"
    sys_version = ""
    timeout = 30
    wbufsize = 1 << 16  # small writes wait for each other's acknowledgements, 40 ms a scrape
    disable_nagle_algorithm = True
    rendering = threading.Lock()  # two scrapes at once would only take twice the memory

    def do_GET(self) -> None:
        """Routes."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            self._text(200, "ok\n")
        elif path == "/readyz":
            readiness = self.view.readiness()
            self._text(200 if readiness.ready else 503, readiness.text + "\n")
        elif path == "/":
            self._text(200, _INDEX, "text/html; charset=utf-8")
        else:
            self._text(404, "not found; there are /metrics, /readyz and /healthz\n")

    do_HEAD = do_GET

    def _metrics(self) -> None:
        encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
        zipped = "gzip" in self.headers.get("Accept-Encoding", "")
        with self.rendering:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Transfer-Encoding", "chunked")
            if zipped:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if self.command == "HEAD":
                return
            body = self._body(encoder(self.own))
            for chunk in _gzip(body) if zipped else body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

    def _body(self, own: bytes) -> Iterator[bytes]:
        for chunk in self.exposition.chunks():
            yield chunk.encode()
        yield own

    def _text(self, status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # the base class's name
        """A request is worth no line at info."""
        log.debug("request", client=self.client_address[0], line=format % args)


def _gzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compressed lightly: on the wire between neighbours, time matters more than bytes."""
    press = zlib.compressobj(1, zlib.DEFLATED, 31)
    for chunk in chunks:
        if pressed := press.compress(chunk):
            yield pressed
    yield press.flush()
