"""`GET /api/v1/events`: server-sent events, or the newest events as a JSON list.

A stream reads the event log at the pace of its client, and keeps no queue: what the client is too slow for is
dropped by the event log, and the client is told how many events it missed.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from fnmatch import translate
from typing import NamedTuple, Self

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from koff.serve.api.problems import CONTENT_TYPE, Problem
from koff.serve.events.event import KINDS, ClusterEvent, Severity
from koff.serve.events.event_log import EventLog, KeptEvent

KEEP_ALIVE_S = 15.0
CLIENT_STREAMS, ALL_STREAMS = 8, 32
"""So many streams a client (an IP address) may have, and all clients. Each is a connection."""
_AT_ONCE = 100
"""So many events are looked at before other requests have their turn."""
_MOST_LISTED, _LISTED = 10_000, 100
_MOST_PATTERNS, _PATTERN_CHARACTERS = 10, 300
"""So many patterns may a client give, each so long: the event loop searches with them."""
_PARAMETERS = ("cluster", "group", "kind", "min_severity", "since", "limit")
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "Vary": "Accept",
    "X-Accel-Buffering": "no",
}


class WrongParameter(ValueError):
    """A parameter that is wrong. The text is for the client."""


class Filter(NamedTuple):
    """Which events a client gets: all that fit."""

    clusters: frozenset[str]
    groups: tuple[re.Pattern[str], ...]
    kinds: frozenset[str]
    min_severity: Severity

    @classmethod
    def parse(cls, request: Request) -> Self:
        """The filter of a request. Raises `WrongParameter`."""
        query = request.query_params
        if unknown := sorted(set(query) - set(_PARAMETERS)):
            raise WrongParameter(f"{unknown[0]!r} is no parameter: use {', '.join(_PARAMETERS)}")
        kinds = frozenset(kind for kinds in query.getlist("kind") for kind in kinds.split(","))
        if wrong := sorted(kinds.difference(KINDS)):
            raise WrongParameter(f"kind {wrong[0]!r} is not one of {', '.join(KINDS)}")
        try:
            severity = Severity.parse(query.get("min_severity", "info"))
        except ValueError as error:
            raise WrongParameter(f"min_severity {error}") from None
        patterns = query.getlist("group")
        if len(patterns) > _MOST_PATTERNS or any(len(each) > _PATTERN_CHARACTERS for each in patterns):
            raise WrongParameter(
                f"group may be given {_MOST_PATTERNS} times, with {_PATTERN_CHARACTERS} characters each"
            )
        # Not a regular expression of the client: it could take for ever.
        groups = tuple(re.compile(translate(pattern)) for pattern in patterns)
        return cls(frozenset(query.getlist("cluster")), groups, kinds, severity)

    def fits(self, event: ClusterEvent) -> bool:
        return (
            event.reaches(self.min_severity)
            and (not self.clusters or event.cluster in self.clusters)
            and (not self.kinds or event.kind in self.kinds)
            and (not self.groups or any(p.match(event.group or "") for p in self.groups))
        )


def build_event_routes(events: EventLog) -> list[Route]:
    streams: dict[str, int] = {}

    async def send_events(request: Request) -> Response:
        try:
            chosen, after = Filter.parse(request), _parse_since(request, events)
            if _prefers_json(request):
                return await _list_events(request, events, chosen, after)
        except WrongParameter as error:
            return _explain(400, str(error))
        if events.is_closed:
            return _explain(503, "koff stops")
        client = request.client.host if request.client else ""
        if streams.get(client, 0) >= CLIENT_STREAMS or sum(streams.values()) >= ALL_STREAMS:
            return _explain(503, "too many streams of events")
        return _Stream(events, chosen, after, streams, client)

    return [Route("/api/v1/events", send_events)]


def _parse_since(request: Request, events: EventLog) -> int | None:
    """The number after which events are to be sent; -1 if it is of another process; None if not given."""
    given = request.query_params.get("since") or request.headers.get("last-event-id")
    if not given:
        return None
    try:
        number = events.parse_id(given)
    except ValueError as error:
        raise WrongParameter(f"since (or Last-Event-ID) {given[:50]!r} {error}") from None
    return -1 if number is None else number


def _prefers_json(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/event-stream" not in accept


async def _list_events(request: Request, events: EventLog, chosen: Filter, after: int | None) -> Response:
    text = request.query_params.get("limit", str(_LISTED))
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not 1 <= int(text) <= _MOST_LISTED:
        raise WrongParameter(f"limit must be a whole number from 1 to {_MOST_LISTED}")
    limit, page = int(text), events.read(max(0, after or 0), _MOST_LISTED)
    fitting: list[KeptEvent] = []
    for first in range(0, len(page.events), _AT_ONCE):
        fitting += (kept for kept in page.events[first : first + _AT_ONCE] if chosen.fits(kept.event))
        await asyncio.sleep(0)
    listed = fitting[:limit] if after is not None else fitting[-limit:]
    missed = _count_missed(after, page.missed)
    body = f'{{"events":[{",".join(kept.text for kept in listed)}],"missed":{json.dumps(missed)}}}'
    return Response(
        body, media_type="application/json", headers={"Vary": "Accept", "Cache-Control": "no-store"}
    )


def _count_missed(after: int | None, missed: int) -> int | None:
    """How many events the client has missed. None: events of another process, nobody knows how many."""
    if after is None:
        return 0
    return None if after < 0 else missed


def _explain(status: int, text: str) -> Response:
    return JSONResponse(Problem(status, text).build(), status, media_type=CONTENT_TYPE)


class _Stream(Response):
    """A response that lasts until the client goes away, or the event log is closed."""

    def __init__(
        self, events: EventLog, chosen: Filter, after: int | None, streams: dict[str, int], client: str
    ) -> None:
        super().__init__(None)
        self._events, self._chosen, self._after = events, chosen, after
        self._streams, self._client = streams, client
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream."""
        scope["state"]["is_stream"] = True  # for `koff.serve.protocol`
        self._streams[self._client] = self._streams.get(self._client, 0) + 1
        sending = asyncio.ensure_future(self._send(send, is_head=scope["method"] == "HEAD"))
        gone = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            gone.cancel()
            self._streams[self._client] -= 1
            if not self._streams[self._client]:
                del self._streams[self._client]

    async def _send(self, send: Send, *, is_head: bool) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if not is_head:
            async for text in self._write():
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self) -> AsyncIterator[str]:
        """The texts of the stream."""
        events, after = self._events, self._after
        number = events.last if after is None else max(0, after)
        yield "retry: 3000\n\n"
        if after == -1:
            yield _format_missed(None, events.format_id(0))
        while True:
            is_last, page = events.is_closed, events.read(number, _AT_ONCE)
            # Those before the first are missed by a client of another process anyway.
            if page.missed and not (after == -1 and number == 0):
                yield _format_missed(page.missed, events.format_id(number + page.missed))
            number += page.missed
            if page.events:
                number = page.events[-1].number
                if text := "".join(_format(kept) for kept in page.events if self._chosen.fits(kept.event)):
                    yield text
                await asyncio.sleep(0)
                continue
            if is_last:
                return
            await events.wait(number, KEEP_ALIVE_S)
            if events.last == number and not events.is_closed:
                # With the id, a client whose filter fits seldom can resume where it is.
                yield f": keep-alive\nid: {events.format_id(number)}\n\n"


def _format(kept: KeptEvent) -> str:
    return f"id: {kept.event.id}\nevent: {kept.event.kind}\ndata: {kept.text}\n\n"


def _format_missed(count: int | None, last_id: str) -> str:
    return f"id: {last_id}\nevent: missed\ndata: {json.dumps({'count': count})}\n\n"


async def wait_until_gone(receive: Receive) -> None:
    """Returns once the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
