"""The files of the page, and the routes that serve them."""

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koff.serve.accepted import accepts_gzip

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
INDEX = "index.html"
_HEADERS = {
    # The page loads nothing from elsewhere, and no other page may show it in a frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


def _list_files() -> list[str]:
    folders = ("", "uplot/")
    names = (f"{folder}{each.name}" for folder in folders for each in (files(__package__) / folder).iterdir())
    return sorted(name for name in names if PurePosixPath(name).suffix in _TYPES)


PATHS = {"/" if name == INDEX else f"/page/{name}": name for name in _list_files()}
"""The file of each path."""


def build_page_routes() -> list[Route]:
    """The page at `/`, and its files below `/page`."""
    return [Route(path, _build_sender(name)) for path, name in PATHS.items()]


def _build_sender(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Sends a file. A browser that has this version gets no body."""
    body = files(__package__).joinpath(name).read_bytes()
    packed = gzip.compress(body, mtime=0)
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'  # weak: the same of both bodies
    content_type = f"{_TYPES[PurePosixPath(name).suffix]}; charset=utf-8"
    headers = {**_HEADERS, "Content-Type": content_type, "ETag": tag}

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        if accepts_gzip(request.headers.getlist("accept-encoding")):
            return Response(packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(body, headers=headers)

    return send
