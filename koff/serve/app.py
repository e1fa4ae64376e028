"""The paths that are served, as a starlette application. No request of a client causes a request to Kafka."""

import asyncio
from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from koff.logs import get_logger
from koff.serve.accepted import Format, accepts_gzip, choose_format
from koff.serve.api.responder import PREFIXES, ApiRequest, ApiResponse
from koff.serve.events.event_log import EventLog
from koff.serve.events.first_koff import INSTANCE_HEADER
from koff.serve.events.stream import build_event_routes, wait_until_gone
from koff.serve.page.files import build_page_routes
from koff.serve.rendering import Body
from koff.serve.shared_calls import SharedCalls
from koff.view.cluster_view import NoProgress, Readiness, Views, ViewSource

log = get_logger("serve")

_NOT_FOUND = "not found: the paths are /, /metrics, /api, /readyz and /healthz\n"


def build_app(
    source: ViewSource,
    views: SharedCalls[str, Views],
    bodies: SharedCalls[Format, Body],
    api: SharedCalls[ApiRequest, ApiResponse],
    events: EventLog | None,
    instance: str = "",
) -> ASGIApp:
    """The application. `views` take views of the source, `bodies` render them, `api` responds to the rest.

    `instance` names the process.
    """

    async def send_metrics(request: Request) -> Response:
        form = choose_format(request.headers.getlist("accept"))
        is_gzipped = accepts_gzip(request.headers.getlist("accept-encoding"))
        headers = {"Content-Type": form.content_type, "Vary": "Accept, Accept-Encoding"}
        if is_gzipped:
            headers["Content-Encoding"] = "gzip"
        if request.method == "HEAD":
            await views.get("")
            return _Pieces(iter(()), headers)
        # Rendered before the first byte is sent: an error gives no response, never half of one.
        body = await bodies.get(form)
        headers["Content-Length"] = str(len(body.gzipped) if is_gzipped else body.plain_size)
        return _Pieces(body.split() if is_gzipped else body.inflate(), headers)

    async def send_readiness(request: Request) -> Response:
        readiness = _find_readiness(await views.get(""), request.query_params.get("cluster"))
        status = 200 if readiness.ready else 503
        return PlainTextResponse(f"{readiness.text}\n", status, {INSTANCE_HEADER: instance})

    async def send_health(_: Request) -> Response:
        stall = source.find_stall()
        return PlainTextResponse(f"{stall or 'ok'}\n", 200 if stall is None else 503)

    app = Starlette(
        routes=[
            Route("/metrics", send_metrics),
            Route("/readyz", send_readiness),
            Route("/healthz", send_health),
            *build_page_routes(),
            *([] if events is None else build_event_routes(events)),
            *build_api_routes(source, api),  # the last: they respond to every other path below /api
        ],
        exception_handlers={NoProgress: _explain, HTTPException: _refuse},
    )
    app.router.redirect_slashes = False  # a redirect would repeat the header Host of the client
    return _Logged(app)


def _find_readiness(views: Views, cluster: str | None) -> Readiness:
    """That of the cluster with this name, or of the process."""
    if cluster is None:
        return views.readiness
    found = (view.readiness for view in views.clusters if view.cluster == cluster)
    return next(found, Readiness(False, "not ready: koff does not see a cluster of that name"))


async def _explain(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 503)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = _NOT_FOUND if error.status_code == 404 else f"{error.detail}\n"
    return PlainTextResponse(text, error.status_code, headers=error.headers)


class _Pieces(Response):
    """A response of many pieces. Other requests have their turn after each."""

    def __init__(self, pieces: Iterator[bytes], headers: dict[str, str]) -> None:
        super().__init__(None)
        self._pieces = pieces
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response. Ends early if the client goes away."""
        is_gone = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)
                if is_gone.done():
                    return
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            is_gone.cancel()


class _Logged:
    """Logs each request at debug: Prometheus sends one every few seconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_log(message: Message) -> None:
            if message["type"] == "http.response.start":
                client = (scope.get("client") or ("",))[0]
                details = {"method": scope["method"], "path": scope["path"], "status": message["status"]}
                log.debug("request handled", client=client, **details)
            await send(message)

        await self._app(scope, receive, send_and_log)


def build_api_routes(source: ViewSource, calls: SharedCalls[ApiRequest, ApiResponse]) -> list[BaseRoute]:
    """The routes. `calls` call `Responder.respond`.

    Routes of other paths below /api must come before these.
    """

    async def send_health(_: Request) -> Response:
        # Burrow's health check, which must not wait for other requests
        stall = source.find_stall()
        return PlainTextResponse(stall or "GOOD", 200 if stall is None else 503)

    return [Route("/burrow/admin", send_health), ApiRoute(calls)]


class ApiRoute(BaseRoute):
    """All paths at and below `PREFIXES`.

    Paths are matched by the responder, as they were sent: starlette decodes "%2F" first.
    """

    def __init__(self, calls: SharedCalls[ApiRequest, ApiResponse]) -> None:
        self._calls = calls

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = _find_path(scope) if scope["type"] == "http" else b""
        is_mine = any(path == prefix or path.startswith(prefix + b"/") for prefix in _PREFIXES)
        return (Match.FULL if is_mine else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        is_gzipped = accepts_gzip(request.headers.getlist("accept-encoding"))
        found = await self._calls.get(
            ApiRequest(request.method, _find_path(scope), scope["query_string"], is_gzipped)
        )
        body = b"" if request.method == "HEAD" else found.body
        await Response(body, found.status, dict(found.headers))(scope, receive, send)


_PREFIXES = tuple(prefix.encode() for prefix in PREFIXES)


def _find_path(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    return path
