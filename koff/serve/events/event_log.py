"""The newest events: in order, each with an id, for those who read them at their own pace."""

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from koff.serve.events.event import ClusterEvent, format_time

MOST_EVENTS, MOST_BYTES = 10_000, 16 << 20
"""So many events are kept at most, and so many bytes of them as JSON."""
_ID = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event with its number, and as JSON."""

    number: int
    event: ClusterEvent
    text: str


class Page(NamedTuple):
    """Events after a number. `missed` are the events between that were dropped. `last` is the last number."""

    events: list[KeptEvent]
    missed: int
    last: int


class EventLog:
    """The newest events. Any thread may call any method. No method waits for a reader.

    An id is the start of the log in ms since 1970, and the number of the event: `1795225081984-17`.
    """

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._lock = threading.Lock()  # guards all below
        self._kept: deque[KeptEvent] = deque()
        self._bytes = 0
        self._last = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._is_closed = False

    def add(self, events: Sequence[ClusterEvent], now_ms: int) -> list[ClusterEvent]:
        """Adds events. Returns them with their ids and this time."""
        time = format_time(now_ms)
        with self._lock:
            added = []
            for given in events:
                self._last += 1
                event = replace(given, id=self.format_id(self._last), time=time)
                kept = KeptEvent(self._last, event, json.dumps(event.to_json(), separators=(",", ":")))
                self._kept.append(kept)
                self._bytes += len(kept.text)
                added.append(event)
            while self._kept and (len(self._kept) > MOST_EVENTS or self._bytes > MOST_BYTES):
                self._bytes -= len(self._kept.popleft().text)
        if added:
            self._wake()
        return added

    def read(self, after: int, most: int) -> Page:
        """The oldest `most` events that are newer than the number."""
        with self._lock:
            first = self._last - len(self._kept) + 1
            missed = max(0, first - after - 1)
            skipped = max(0, after + 1 - first)
            return Page(list(islice(self._kept, skipped, skipped + most)), missed, self._last)

    @property
    def last(self) -> int:
        """The number of the newest event, 0 without one."""
        return self._last

    def format_id(self, number: int) -> str:
        """The id of the event with that number."""
        return f"{self._start_ms}-{number}"

    def parse_id(self, text: str) -> int | None:
        """The number of the event with that id; None if it is of another process. Raises `ValueError`."""
        found = _ID.fullmatch(text)
        if found is None:
            raise ValueError("is not the id of an event")
        number = int(found[2])
        return number if int(found[1]) == self._start_ms and number <= self._last else None

    # --- Readers in an event loop -------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether readers are to end."""
        return self._is_closed

    async def wait(self, after: int, timeout_s: float) -> None:
        """Returns once there is an event that is newer than the number, `close` was called, or it is late."""
        added = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._last > after or self._is_closed:
                return
            self._waiting.add(added)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(added[1].wait(), timeout_s)
        finally:
            with self._lock:
                self._waiting.discard(added)

    def close(self) -> None:
        """Tells readers to end."""
        with self._lock:
            self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting: Iterable[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = list(self._waiting)
        for loop, added in waiting:
            with suppress(RuntimeError):  # the event loop was closed meanwhile
                loop.call_soon_threadsafe(added.set)
