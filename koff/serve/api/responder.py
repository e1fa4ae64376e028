"""Responds to requests of the API: bytes in, bytes out. A worker thread calls it, not the event loop."""

import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from koff.logs import get_logger
from koff.serve.api import problems
from koff.serve.api.burrow import Burrow
from koff.serve.api.endpoints import find_endpoint
from koff.serve.api.openapi import build_openapi, build_page
from koff.serve.api.parameters import parse_query
from koff.serve.api.problems import Problem
from koff.view.cluster_view import NoProgress, ViewSource

log = get_logger("serve")

PREFIXES = ("/api", "/v3", "/burrow")
"""All paths that are these, or below them, are the API's."""
_METHODS = ("GET", "HEAD")
_ALLOW = ", ".join(_METHODS)
_MIN_GZIP_BYTES = 1024
_HTML, _JSON, _TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


_FIXED: dict[tuple[str, ...], tuple[Callable[[], Any], str]] = {
    ("api",): (build_page, _HTML),
    ("api", "openapi.json"): (build_openapi, _JSON),
}
"""What needs no views: what builds it, and its type."""


class ApiRequest(NamedTuple):
    """A request. `path` is as it was sent: a name in it may have an encoded slash."""

    method: str
    path: bytes
    query: bytes = b""
    accepts_gzip: bool = False


class ApiResponse(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Content(NamedTuple):
    """What is sent, before it is compressed. `value` is JSON, unless it is text."""

    status: int
    value: Any
    content_type: str = _JSON


class Responder:
    """Responds with what the views of a source say."""

    def __init__(self, source: ViewSource) -> None:
        self._source = source
        self._burrow = Burrow(source)

    def respond(self, request: ApiRequest) -> ApiResponse:
        """The response. A fault of koff is logged, and tells the client nothing."""
        # The path is split before it is decoded: "%2F" is a part of a name.
        segments = [unquote(part) for part in request.path.decode("latin-1").split("/")[1:]]
        is_burrow = segments[0] != "api"
        try:
            respond = self._respond_burrow if is_burrow else self._respond
            content = respond(request, segments)
        except NoProgress as error:
            content = self._refuse(Problem(503, str(error)), segments, is_burrow=is_burrow)
        except Problem as problem:
            content = self._refuse(problem, segments, is_burrow=is_burrow)
        except Exception as error:
            log.error("a request failed", path=request.path.decode("latin-1"), exc_info=error)
            fault = Problem(500, "a fault of koff: its log says more")
            content = self._refuse(fault, segments, is_burrow=is_burrow)
        return _encode(content, accepts_gzip=request.accepts_gzip)

    def _respond(self, request: ApiRequest, segments: list[str]) -> _Content:
        fixed = _FIXED.get(tuple(segments))
        found = None if fixed else find_endpoint(segments)
        if not (fixed or found):
            raise Problem(404, "there is no such path: /api lists all paths")
        if request.method not in _METHODS:
            raise Problem(405, f"allowed: {_ALLOW}")
        if found is None:
            build, content_type = _FIXED[tuple(segments)]
            return _Content(200, build(), content_type)
        endpoint, names = found
        query = parse_query(request.query, endpoint.parameters)
        names |= {name: query[name] for name in endpoint.required}
        return _Content(200, endpoint.respond(self._source.take_views(), names, query))

    def _respond_burrow(self, request: ApiRequest, segments: list[str]) -> _Content:
        status, value = self._burrow.respond(segments, is_read=request.method in _METHODS)
        return _Content(status, value, _TEXT if isinstance(value, str) else _JSON)

    def _refuse(self, problem: Problem, segments: list[str], *, is_burrow: bool) -> _Content:
        if is_burrow:
            return _Content(problem.status, self._burrow.build_error(problem.detail, segments))
        return _Content(problem.status, problem.build(), problems.CONTENT_TYPE)


def _encode(content: _Content, *, accepts_gzip: bool) -> ApiResponse:
    value = content.value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    # A lone surrogate has no UTF-8 form. `backslashreplace` writes it as JSON does.
    body = text.encode("utf-8", "backslashreplace")
    headers = {
        "Content-Type": content.content_type,
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if content.status == 405:
        headers["Allow"] = _ALLOW
    if content.content_type == _HTML:
        headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
    if accepts_gzip and len(body) >= _MIN_GZIP_BYTES:
        body = gzip.compress(body, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(body))
    return ApiResponse(content.status, headers, body)
