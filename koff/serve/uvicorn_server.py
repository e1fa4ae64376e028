"""uvicorn's server, set up for koff: its log is koff's log, and its connections are guarded."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from koff.logs import get_logger
from koff.serve.listening import BACKLOG
from koff.serve.protocol import GuardedProtocol
from koff.serve.tls import ServerTls
from koff.serve.tls_protocol import GuardedTlsProtocol

log = get_logger("serve")

_KEEP_ALIVE_S = 65
"""Longer than the usual interval of Prometheus, so that it need not connect for each scrape."""
_HEAD_BYTES = 16 << 10
_STOP_S = 1
"""So long may responses still be read once the server is stopped."""
_ACCEPTED_AT_ONCE = 8
"""So many connections are accepted in one turn of the event loop.

A request that came with its connection is read two turns later. Fewer connections than a client may have must
be accepted until then: otherwise the limit would close a connection whose request has already arrived.
"""


class GuardedServer(uvicorn.Server):
    """Serves an application on sockets that listen, until `should_exit` is set."""

    def __init__(self, app: ASGIApp, find_tls: Callable[[], ServerTls] | None = None) -> None:
        """`find_tls` returns the TLS context for a connection that is made now; None is plain HTTP."""
        _pass_on_logs()
        protocol: Any = partial(GuardedTlsProtocol, find_tls=find_tls) if find_tls else GuardedProtocol
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=protocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                workers=1,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("Server", "koff")],
                backlog=_ACCEPTED_AT_ONCE,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_STOP_S,
                h11_max_incomplete_event_size=_HEAD_BYTES,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves, and closes the sockets and all connections at the end."""
        asyncio.get_running_loop().set_exception_handler(_log_loop_error)
        try:
            await super().serve(sockets)
        finally:
            # Older versions of uvicorn leave them open if the server is stopped while it starts.
            for listening in sockets or ():
                listening.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()  # of a client that does not read
            await asyncio.sleep(0)  # for the calls that abort has scheduled

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept connections."""
        await super().startup(sockets)
        # asyncio has one number for what the kernel may queue and for what is accepted at once.
        for listening in sockets or ():
            listening.listen(BACKLOG)


class _ToStructlog(logging.Handler):
    """Passes what uvicorn and asyncio log to koff's log: faults as errors, all else at debug.

    Most of it is about clients, and these must not fill the log.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            log.error("a request failed", why=record.getMessage().strip(), exc_info=error)
        else:
            log.debug("HTTP server", why=record.getMessage().strip())


def _pass_on_logs() -> None:
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _ToStructlog) for handler in logger.handlers):
            logger.addHandler(_ToStructlog())
            logger.propagate = False


def _log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an error that no coroutine has caught. A client that goes away is usual."""
    error = context.get("exception")
    if error is None or isinstance(error, ConnectionError):
        log.debug("HTTP server", why=context.get("message"), error=repr(error))
    else:
        log.error("the HTTP server has a fault", why=context.get("message"), exc_info=error)
