"""The HTTP server: starlette on uvicorn, in a thread of its own with an event loop of its own.

- The event loop never waits: one thread takes views, and another renders bodies, one at a time.
- Signals stay with the main thread.
- uvicorn and starlette are imported when a server is created: most commands of koff have none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import structlog

from koff.serve.accepted import Format
from koff.serve.listening import BACKLOG, ServeConf, open_sockets
from koff.serve.rendering import Body, Renderer
from koff.serve.shared_calls import SharedCalls
from koff.serve.view import ClusterView, ViewSource

if TYPE_CHECKING:
    from uvicorn import Server as UvicornServer

log = structlog.get_logger(component="serve")

_KEEP_ALIVE_S = 65
"""Longer than the usual interval of Prometheus, so that it need not connect for each scrape."""
_HEADER_BYTES = 16 << 10
_STOP_S = 1
"""So long may responses still be read once the server is stopped."""


class Server:
    """Serves the views of `source`. A context manager.

    The address is bound at creation, requests are handled from entry to exit. Raises `ConfigError` if koff
    cannot listen on the address.
    """

    def __init__(self, source: ViewSource, conf: ServeConf | None = None) -> None:
        self._sockets = open_sockets(conf or ServeConf())
        host, port = self._sockets[0].getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._views = SharedCalls[str, ClusterView](lambda _: source.take_view(), "koff-views")
        self._bodies = SharedCalls[Format, Body](Renderer(source).render, "koff-render")
        self._uvicorn = _build_uvicorn(source, self._views, self._bodies)
        self._thread = threading.Thread(target=self._run, name="koff-http", daemon=True)

    def __enter__(self) -> Self:
        for starting in (self._views, self._bodies, self._thread):
            starting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()
        self._views.stop()
        self._bodies.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the HTTP server has failed")

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_log_loop_error)
        try:
            await self._uvicorn.serve(self._sockets)
        finally:
            for connection in list(self._uvicorn.server_state.connections):
                connection.transport.abort()  # of a client that does not read
            await asyncio.sleep(0)


def _build_uvicorn(
    source: ViewSource, views: SharedCalls[str, ClusterView], bodies: SharedCalls[Format, Body]
) -> UvicornServer:
    import uvicorn

    from koff.serve.app import build_app
    from koff.serve.protocol import GuardedProtocol

    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _ToStructlog) for handler in logger.handlers):
            logger.addHandler(_ToStructlog())
            logger.propagate = False
    return uvicorn.Server(
        uvicorn.Config(
            build_app(source, views, bodies),
            loop="asyncio",
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            workers=1,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("Server", "koff")],
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            h11_max_incomplete_event_size=_HEADER_BYTES,
        )
    )


class _ToStructlog(logging.Handler):
    """Passes what uvicorn and asyncio log to koff's log: faults as errors, all else at debug.

    Most of it is about clients, and these must not fill the log.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Logs the record."""
        error = record.exc_info[1] if record.exc_info else None
        with suppress(OSError):  # the disk that the log is written to may be full
            if isinstance(error, Exception):
                log.error("a request failed", why=record.getMessage().strip(), exc_info=error)
            else:
                log.debug("HTTP server", why=record.getMessage().strip())


def _log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an error that no coroutine has caught. A client that goes away is usual."""
    error = context.get("exception")
    if error is None or isinstance(error, ConnectionError):
        log.debug("HTTP server", why=context.get("message"), error=repr(error))
    else:
        log.error("the HTTP server has a fault", why=context.get("message"), exc_info=error)
