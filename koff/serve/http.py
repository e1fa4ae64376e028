"""The HTTP server: `/metrics`, `/healthz`, `/readyz`. No request of a client causes a request to Kafka."""

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
from koff.serve.own_metrics import build_own_registry
from koff.serve.view import View

log = structlog.get_logger(component="serve")

_INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>koff</title>
<h1>koff</h1><ul><li><a href="/metrics">/metrics</a> for Prometheus
<li><a href="/readyz">/readyz</a> whether the numbers may be trusted
<li><a href="/healthz">/healthz</a> whether the process runs</ul></html>
"""


@dataclass(frozen=True, slots=True)
class ServeConf:
    """The address to listen on: `host:port`, `[v6]:port` or `:port` (all IPv4 addresses). 0: a free port."""

    listen: str = "127.0.0.1:9850"

    def parse_address(self) -> tuple[str, int]:
        """Host and port. Raises `ConfigError`."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(
                f"--listen {self.listen!r} is not HOST:PORT, for example 127.0.0.1:9850 or :9850"
            )
        return host.strip("[]"), int(port)


class Server:
    """Serves a view from threads of its own. A context manager.

    The address is bound at creation, requests are handled from entry to exit. Raises `ConfigError` if koff
    cannot listen on the address.
    """

    def __init__(self, view: View, conf: ServeConf | None = None) -> None:
        self._conf = conf or ServeConf()
        host, port = self._conf.parse_address()
        # http.server creates a handler for each connection, without arguments of koff's: the class has them.
        handler = type(
            "Handler",
            (_Handler,),
            {"view": view, "exposition": Exposition(view), "own": build_own_registry(view)},
        )
        server = type(
            "HTTPServer",
            (_HTTPServer,),
            {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET},
        )
        try:
            self._server: ThreadingHTTPServer = server((host, port), handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._conf.listen}: {error.strerror or error}; "
                f"choose another address with --listen"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="koff-http", daemon=True
        )

    @property
    def url(self) -> str:
        """The URL of the server, with the port that it listens on."""
        host, port = self._server.server_address[:2]
        address = str(host)
        return f"http://{f'[{address}]' if ':' in address else address}:{port}"

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
    """Handles the requests of one connection. A subclass sets `view`, `exposition` and `own`."""

    view: View
    exposition: Exposition
    own: CollectorRegistry
    protocol_version = "HTTP/1.1"
    server_version = "koff"
    sys_version = ""
    timeout = 30  # seconds for each read or write: a client that does nothing must not keep its thread
    wbufsize = 1 << 16  # unbuffered small writes wait for delayed acknowledgements: 40 ms a scrape
    disable_nagle_algorithm = True
    # One render at a time: two would take twice the memory and be no faster. It also guards `exposition`.
    rendering = threading.Lock()

    def do_GET(self) -> None:
        """Responds to a request by its path."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send_metrics()
        elif path == "/healthz":
            self._send_text(200, "ok\n")
        elif path == "/readyz":
            readiness = self.view.readiness()
            self._send_text(200 if readiness.ready else 503, readiness.text + "\n")
        elif path == "/":
            self._send_text(200, _INDEX, "text/html; charset=utf-8")
        else:
            self._send_text(404, "not found: the paths are /metrics, /readyz and /healthz\n")

    do_HEAD = do_GET

    def _send_metrics(self) -> None:
        encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
        gzipped = "gzip" in self.headers.get("Accept-Encoding", "")
        # The lock is held while the body is sent: `render_chunks` renders as it goes, and is not thread-safe.
        with self.rendering:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Transfer-Encoding", "chunked")
            if gzipped:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if self.command == "HEAD":
                return
            body = self._render_body(encoder(self.own))
            for chunk in _compress(body) if gzipped else body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

    def _render_body(self, own: bytes) -> Iterator[bytes]:
        for chunk in self.exposition.render_chunks():
            yield chunk.encode()
        yield own  # last: an OpenMetrics body ends with `# EOF`, which prometheus_client writes

    def _send_text(self, status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # the base class names it `format`
        """Logs a request at debug: Prometheus sends one every few seconds."""
        log.debug("request handled", client=self.client_address[0], line=format % args)


def _compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks in gzip format, at the fastest level: near Prometheus, time matters more than bytes."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: 15 window bits and a gzip header
    for chunk in chunks:
        if compressed := compressor.compress(chunk):  # an empty chunk would end the response
            yield compressed
    yield compressor.flush()
