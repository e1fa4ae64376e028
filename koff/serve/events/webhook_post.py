"""One request to a webhook. Follows no redirect."""

import http.client
import socket
import ssl
import threading
from contextlib import closing, suppress
from typing import Literal
from urllib.parse import urlsplit

from koff.serve.events.templates import WebhookRequest
from koff.serve.events.webhook_conf import WebhookConf
from koff.version import VERSION

Result = Literal["ok", "failed", "refused"]
RESULTS: tuple[Result, ...] = ("ok", "failed", "refused")
_TRY_AGAIN = frozenset({408, 429})


def build_tls(conf: WebhookConf) -> ssl.SSLContext | None:
    """What connections to the webhook need; None without TLS."""
    return ssl.create_default_context() if conf.url.startswith("https:") else None


def post(conf: WebhookConf, request: WebhookRequest, tls: ssl.SSLContext | None) -> tuple[Result, str]:
    """Sends the request. Returns what came of it, and why it was no success."""
    own = {"Content-Type": request.content_type, "User-Agent": f"koff/{VERSION}"}
    given = {name.lower() for name in conf.headers}
    headers = {name: value for name, value in own.items() if name.lower() not in given}
    try:
        with closing(prepare_connection(conf.url, conf.timeout_s, tls)) as connection:
            connection.connect()
            # A receiver that sends a byte now and then must not have more time than one that hangs.
            limit = threading.Timer(conf.timeout_s, _shut_down, [connection])
            limit.daemon = True
            limit.start()
            try:
                all_headers = {**headers, **conf.headers, "Connection": "close"}
                connection.request("POST", _build_path(conf, request), request.body, all_headers)
                status = connection.getresponse().status
            finally:
                limit.cancel()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return "failed", f"{type(error).__name__}: {error}"
    if 200 <= status < 300:
        return "ok", ""
    is_final = 300 <= status < 500 and status not in _TRY_AGAIN
    return "refused" if is_final else "failed", f"HTTP status {status}"


def _build_path(conf: WebhookConf, request: WebhookRequest) -> str:
    parts = urlsplit(conf.url)
    path = f"{parts.path}{request.path}" or "/"
    return path + (f"{'&' if '?' in path else '?'}{parts.query}" if parts.query else "")


def prepare_connection(url: str, timeout_s: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection to the host of the address, that is not open yet. Without `tls`, it is plain HTTP."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if tls is None:
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)


def _shut_down(connection: http.client.HTTPConnection) -> None:
    """Ends all waits of the connection."""
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
