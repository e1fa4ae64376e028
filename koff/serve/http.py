"""The HTTP server: starlette on uvicorn, in a thread of its own with an event loop of its own.

- The event loop never waits: one thread takes views, one renders bodies, and one responds to the API.
- Signals stay with the main thread.
- uvicorn and starlette are imported when a server is created: most commands of koff have none.
"""

import asyncio
import threading
from typing import Self

from koff.logs import get_logger
from koff.serve.accepted import Format
from koff.serve.access import Access
from koff.serve.api.responder import ApiRequest, ApiResponse, Responder
from koff.serve.events.watcher import Events
from koff.serve.listening import ServeConf, open_sockets
from koff.serve.metrics.conf import MetricsConf
from koff.serve.passwords import Passwords
from koff.serve.rendering import Body, Renderer
from koff.serve.shared_calls import SharedCalls
from koff.view.cluster_view import Views, ViewSource

log = get_logger("serve")


class Server:
    """Serves the views of `source`, and `events` if there are any. A context manager.

    The address is bound at creation, requests are handled from entry to exit. Raises `ConfigError` if koff
    cannot listen on the address.
    """

    def __init__(
        self,
        source: ViewSource,
        conf: ServeConf | None = None,
        metrics: MetricsConf | None = None,
        events: Events | None = None,
    ) -> None:
        from koff.serve.app import build_app
        from koff.serve.authentication import Authenticated
        from koff.serve.uvicorn_server import GuardedServer

        conf = conf or ServeConf()
        self._access, self._passwords = Access(conf.access), Passwords()
        self._sockets = open_sockets(conf)
        host, port = self._sockets[0].getsockname()[:2]
        has_tls = self._access.rules.tls is not None
        self.url = f"http{'s' if has_tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"
        self._views = SharedCalls[str, Views](lambda _: source.take_views(), "koff-views")
        self._events = None if events is None else events.log
        renderer = Renderer(source, metrics, None if events is None else events.webhooks.counts)
        self._bodies = SharedCalls[Format, Body](renderer.render, "koff-render")
        self._api = SharedCalls[ApiRequest, ApiResponse](Responder(source).respond, "koff-api")
        instance = "" if events is None else events.notices.instance
        app = build_app(source, self._views, self._bodies, self._api, self._events, instance)
        self._uvicorn = GuardedServer(
            Authenticated(app, self._access, self._passwords), self._access.take_tls if has_tls else None
        )
        self._thread = threading.Thread(target=self._run, name="koff-http", daemon=True)

    def __enter__(self) -> Self:
        self._access.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._events is not None:
            self._events.close()
        self._uvicorn.should_exit = True
        self._thread.join()
        self._views.stop()
        self._bodies.stop()
        self._passwords.stop()
        self._access.stop()
        self._api.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._uvicorn.serve(self._sockets))
        except Exception:
            log.exception("the HTTP server has failed")
