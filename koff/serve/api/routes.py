"""The routes of the API for starlette. Requests are responded to in a worker thread."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from koff.serve.accepted import accepts_gzip
from koff.serve.api.responder import PREFIXES, ApiRequest, ApiResponse
from koff.serve.shared_calls import SharedCalls
from koff.view.cluster_view import ViewSource


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
    """The path as the client sent it."""
    path: bytes = scope["raw_path"]
    return path
