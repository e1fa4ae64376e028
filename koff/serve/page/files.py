"""The files of the page, and the routes that serve them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_FILES = (
    "index.html",
    "koff.css",
    *("koff.js", "address.js", "api.js", "clusters.js", "columns.js", "dom.js", "group.js", "groups.js"),
    *("keys.js", "loading.js", "order.js", "partitions.js", "plot.js", "stories.js", "topics.js", "words.js"),
    *("uplot/uPlot.iife.min.js", "uplot/uPlot.min.css"),
)
INDEX = "index.html"
_HEADERS = {
    # The page loads nothing from elsewhere, and no other page may show it in a frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


PATHS = {"/" if name == INDEX else f"/page/{name}": name for name in _FILES}
"""The file of each path."""


def build_page_routes() -> list[Route]:
    """The page at `/`, and its files below `/page`."""
    return [Route(path, _build_sender(name)) for path, name in PATHS.items()]


def _build_sender(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Sends a file. A browser that has this version gets no body."""
    body = files(__package__).joinpath(name).read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    content_type = f"{_TYPES[PurePosixPath(name).suffix]}; charset=utf-8"
    headers = {**_HEADERS, "Content-Type": content_type, "ETag": tag}

    async def send(request: Request) -> Response:
        is_known = request.headers.get("if-none-match") == tag
        return Response(None, 304, headers) if is_known else Response(body, headers=headers)

    return send
