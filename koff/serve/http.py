"""The HTTP server: `/metrics`, `/healthz`, `/readyz`. No request of a client causes a request to Kafka."""

from __future__ import annotations

import socket
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

import structlog
from prometheus_client.exposition import choose_encoder

from koff.errors import ConfigError
from koff.serve.exposition import Exposition
from koff.serve.own_metrics import Encode, OwnMetrics
from koff.serve.view import ClusterView, NoProgress, ViewSource

log = structlog.get_logger(component="serve")

_INFLATED_BYTES = 1 << 18
"""So much of a body is inflated at once for a client that does not accept gzip."""

_INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>koff</title>
<h1>koff</h1><ul><li><a href="/metrics">/metrics</a> for Prometheus
<li><a href="/readyz">/readyz</a> whether the numbers may be trusted
<li><a href="/healthz">/healthz</a> whether the process makes progress</ul></html>
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
    """Serves the views of `source` from threads of its own. A context manager.

    The address is bound at creation, requests are handled from entry to exit. Raises `ConfigError` if koff
    cannot listen on the address.
    """

    def __init__(self, source: ViewSource, conf: ServeConf | None = None) -> None:
        self._conf = conf or ServeConf()
        host, port = self._conf.parse_address()
        # http.server creates a handler for each connection, without arguments of koff's: the class has them.
        handler = type("Handler", (_Handler,), {"source": source, "renderer": _Renderer()})
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

    def server_bind(self) -> None:
        """Binds the address, without asking DNS for its name as the base class does: that may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs the error of a request. A client that goes away is usual."""
        if isinstance(sys.exception(), OSError):
            log.debug("client has gone", client=client_address[0])
        else:
            log.exception("a request failed", client=client_address[0])


class _Renderer:
    """Renders views. Any thread may call it.

    One render at a time: two would take twice the memory and be no faster. Bodies are kept compressed, a
    tenth of their size, so that nobody waits while one is sent to a slow client.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exposition = Exposition()
        self._own = OwnMetrics()

    def render(self, view: ClusterView, encode: Encode) -> list[bytes]:
        """All metrics of the view, in pieces of gzip format."""
        with self._lock:
            return list(_compress(self._render_chunks(view, encode)))

    def _render_chunks(self, view: ClusterView, encode: Encode) -> Iterator[bytes]:
        for chunk in self._exposition.render_chunks(view):
            yield chunk.encode()
        # Last: an OpenMetrics body ends with `# EOF`, which prometheus_client writes.
        yield self._own.render(view, encode)


class _Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection. A subclass sets `source` and `renderer`."""

    source: ViewSource
    renderer: _Renderer
    protocol_version = "HTTP/1.1"
    server_version = "koff"
    sys_version = ""
    timeout = 30  # seconds for each read or write: a client that does nothing must not keep its thread
    wbufsize = 1 << 16  # unbuffered small writes wait for delayed acknowledgements: 40 ms a scrape
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Responds to a request by its path."""
        path = self.path.partition("?")[0]
        if path in ("/metrics", "/readyz"):
            try:
                view = self.source.take_view()
            except NoProgress as error:
                self._send_text(503, f"{error}\n")
                return
            if path == "/metrics":
                self._send_metrics(view)
            else:
                self._send_text(200 if view.readiness.ready else 503, f"{view.readiness.text}\n")
        elif path == "/healthz":
            stall = self.source.find_stall()
            self._send_text(200 if stall is None else 503, f"{stall or 'ok'}\n")
        elif path == "/":
            self._send_text(200, _INDEX, "text/html; charset=utf-8")
        else:
            self._send_text(404, "not found: the paths are /metrics, /readyz and /healthz\n")

    do_HEAD = do_GET

    def _send_metrics(self, view: ClusterView) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        gzipped = "gzip" in self.headers.get("Accept-Encoding", "")
        # Rendered before the first byte is sent: an error gives no response, never half of one.
        is_head = self.command == "HEAD"
        pieces = [] if is_head else self.renderer.render(view, encode)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        if gzipped:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if is_head:
            return
        for chunk in pieces if gzipped else _inflate(pieces):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

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


def _inflate(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The text of pieces in gzip format, a part of it at a time."""
    decompressor = zlib.decompressobj(31)
    for piece in pieces:
        rest = piece
        while rest:
            if chunk := decompressor.decompress(rest, _INFLATED_BYTES):
                yield chunk
            rest = decompressor.unconsumed_tail
    if chunk := decompressor.flush():
        yield chunk
