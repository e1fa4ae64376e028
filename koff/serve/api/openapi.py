"""The OpenAPI description of the API, and a page for people, both from the table of endpoints."""

import html
from collections.abc import Iterator
from typing import Any

from koff.serve.api.endpoints import ENDPOINTS, ApiEndpoint
from koff.serve.api.problems import CONTENT_TYPE
from koff.version import VERSION

_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "parameter": {"type": "string", "description": "The parameter that is wrong."},
        "allowed": {"type": "string", "description": "The values that the parameter may have."},
        "known": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The names there are, if few.",
        },
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": False,
}
_ERRORS = {
    400: "A parameter is wrong.",
    404: "There is no cluster, topic or group of that name.",
    503: "koff makes no progress, or does not know what was requested.",
}


def build_openapi() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "koff",
            "version": VERSION,
            "description": "Lag of Kafka's consumer groups. What is not known, or not current, is null.",
        },
        "paths": {endpoint.path: {"get": _describe(endpoint)} for endpoint in ENDPOINTS},
        "components": {"schemas": {"Problem": _PROBLEM}},
    }


def _describe(endpoint: ApiEndpoint) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in endpoint.names
    ]
    problem = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    errors = {status: text for status, text in _ERRORS.items() if status != 404 or endpoint.has_names}
    return {
        "operationId": endpoint.operation_id,
        "summary": endpoint.summary,
        "parameters": [*in_path, *(parameter.describe() for parameter in endpoint.parameters)],
        "responses": {
            "200": {
                "description": endpoint.summary,
                "content": {"application/json": {"schema": endpoint.schema}},
            },
            **{str(status): {"description": text, "content": problem} for status, text in errors.items()},
        },
    }


def build_page() -> str:
    """The page at /api. It loads nothing from elsewhere."""
    return "".join(_render_page())


def _render_page() -> Iterator[str]:
    yield (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>koff API</title>'
        "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0}code{font-size:1.05em}</style>"
        "<h1>koff API</h1><p>JSON. A number that is not known, or not current, is null. Errors are problem "
        'details (RFC 9457). <a href="/api/openapi.json">OpenAPI</a>.</p>\n'
    )
    for endpoint in ENDPOINTS:
        path = f"<code>{html.escape(endpoint.path)}</code>"
        head = path if endpoint.names or endpoint.required else f'<a href="{endpoint.path}">{path}</a>'
        yield f"<h2>{head}</h2><p>{html.escape(endpoint.summary)}</p>\n"
        if endpoint.parameters:
            yield "<table><tr><th>parameter<th>meaning<th>allowed<th>default\n"
            for each in endpoint.parameters:
                default = "" if each.default is None else str(each.default)
                several = " May be given several times." if each.is_list else ""
                cells = (
                    f"<code>{each.name}</code>",
                    html.escape(each.text + several),
                    html.escape(each.allowed),
                )
                yield f"<tr><td>{'<td>'.join((*cells, default))}\n"
            yield "</table>\n"
    yield "<p>The paths of Burrow under <code>/v3/kafka</code> are also served.</p></html>\n"
