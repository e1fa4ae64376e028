"""What leaves the core: requests, of which the open ones are kept with their deadlines, and events."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from koff.monitor.requests import (
    Answered,
    FetchGroups,
    FetchOffsets,
    FetchShareLags,
    Moment,
    OffsetKind,
    Read,
    Request,
    StopReading,
    TopicPartition,
)

_Kind = TypeVar("_Kind")
LOST_S = 2.0
"""When nothing is answered for so long, that is an event: a change of leaders is shorter."""


@dataclass(slots=True)
class Ask(Generic[_Kind]):
    """A request, when it was sent, and until when its result is waited for.

    `waiting` are the partitions of a `FetchOffsets` that have no result yet, `answered` those of a
    `FetchGroups` or a `FetchShareLags` that have one, `without_groups` those of a `FetchGroups` whose
    coordinator has returned no group. `resets` says how often koff had forgotten each partition of an
    internal topic when the request was sent.
    """

    request: _Kind
    asked: Moment
    deadline_s: float
    waiting: set[TopicPartition] = field(default_factory=set)
    resets: Mapping[TopicPartition, int] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    without_groups: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changed and that people want to know: for the log, and for the API's stream."""

    at: Moment
    text: str
    details: Mapping[str, Any]
    is_warning: bool = False


class Outbox:
    """Requests and events. An id is never used twice: a late result of a given-up request finds nothing.

    `skipped` counts inputs and records that could not be used, by kind of input and type of error. `sent`
    counts the requests that were sent, by kind.
    """

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._ids = itertools.count(1)
        self._open: dict[int, Ask[Answered]] = {}
        self._requests: list[Request] = []
        self._events: list[Event] = []
        self._failure: tuple[float, str] | None = None
        self._cause: tuple[float, str] | None = None
        self._answered_s = float("-inf")
        self._unreachable: tuple[float, str] | None = None
        self._failing_s: float | None = None
        self._is_lost = False

    def next_id(self) -> int:
        """An id for the next request."""
        return next(self._ids)

    def send(
        self,
        request: Answered,
        now: Moment,
        timeout_s: float,
        resets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Sends a request. Without a final result within `timeout_s`, it is given up."""
        waiting = set(request.partitions) if isinstance(request, FetchOffsets) else set()
        self._open[request.id] = Ask(request, now, now.at_s + timeout_s, waiting, resets or {})
        self._requests.append(request)
        self.sent[type(request).__name__] += 1

    def command(self, request: Read | StopReading) -> None:
        """Sends a request that has no single result."""
        self._requests.append(request)

    def take_requests(self) -> list[Request]:
        """The requests since the last call."""
        requests, self._requests = self._requests, []
        return requests

    def take_events(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def note(self, now: Moment, text: str, *, warn: bool = False, **details: Any) -> None:
        """Adds an event."""
        self._events.append(Event(now, text, details, warn))

    def skip(self, what: str, error: Exception, now: Moment) -> None:
        """Counts an input or a record that cannot be used; the first of its kind is an event."""
        kind = f"{what}: {type(error).__name__}"
        if not self.skipped[kind]:
            self.note(now, "an input cannot be used", warn=True, why=f"{kind}: {error}")
        self.skipped[kind] += 1

    def note_failure(self, why: str, asked: Moment, *, names_cause: bool = False) -> None:
        """Notes that a request failed which was sent at `asked`.

        `names_cause`: any broker could have answered it, so that it says best why none can be reached.
        """
        if self._failure is None or asked.at_s >= self._failure[0]:
            self._failure = asked.at_s, why
        if names_cause:
            self._cause = asked.at_s, why

    def note_unreachable(self, why: str, now: Moment) -> None:
        """Notes that no broker can be reached."""
        self._unreachable = now.at_s, why

    def note_answer(self, asked: Moment) -> None:
        """Notes that the cluster answered a request sent at `asked`."""
        self._answered_s = max(self._answered_s, asked.at_s)

    @property
    def failure(self) -> str | None:
        """Why no broker can be reached, else the newest error; None if a later request was answered."""
        for noted in (self._cause, self._unreachable, self._failure):
            if noted is not None and noted[0] > self._answered_s:
                return noted[1]
        return None

    def report_reach(self, now: Moment) -> None:
        """Adds an event if requests have failed for `LOST_S` and none was answered, or if that is over."""
        failure = self.failure
        if failure is None:
            if self._is_lost:
                self.note(now, "brokers back")
            self._failing_s, self._is_lost = None, False
        elif self._failing_s is None:
            self._failing_s = now.at_s
        elif not self._is_lost and now.at_s >= self._failing_s + LOST_S:
            self._is_lost = True
            self.note(now, "brokers lost", warn=True, why=failure)

    def get(self, request_id: int) -> Ask[Answered] | None:
        """The open request of that id; None if it was given up, or never sent."""
        return self._open.get(request_id)

    def close(self, request_id: int) -> Ask[Answered] | None:
        """Removes and returns the open request of that id."""
        return self._open.pop(request_id, None)

    def has(self, kind: type[Answered]) -> bool:
        """Whether a request of that kind is open."""
        return any(isinstance(ask.request, kind) for ask in self._open.values())

    def of_kind(self, kind: type[_Kind]) -> Iterator[Ask[_Kind]]:
        """The open requests of that kind."""
        for ask in list(self._open.values()):
            if isinstance(ask.request, kind):
                yield ask  # type: ignore[misc]  # its request was just checked

    def waiting_for(self, kind: OffsetKind) -> set[TopicPartition]:
        """The partitions whose offset of that kind is being fetched."""
        waiting: set[TopicPartition] = set()
        return waiting.union(*(ask.waiting for ask in self.of_kind(FetchOffsets) if ask.request.kind == kind))

    def being_fetched(self, kind: type[FetchGroups] | type[FetchShareLags]) -> set[int]:
        """The partitions of the offsets topic that open requests of that kind have no result for yet."""
        fetching: set[int] = set()
        return fetching.union(*(ask.request.partitions - ask.answered for ask in self.of_kind(kind)))

    def waiting_since_reset(
        self, kind: OffsetKind, resets: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """As `waiting_for`, without partitions of which all was forgotten since the request was sent."""
        return {
            at
            for ask in self.of_kind(FetchOffsets)
            if ask.request.kind == kind
            for at in ask.waiting
            if at in resets and ask.resets.get(at) == resets[at]
        }

    def remove_late(self, now: Moment) -> list[Ask[Answered]]:
        """Removes and returns the requests whose deadline has passed."""
        late = [request_id for request_id, ask in self._open.items() if now.at_s >= ask.deadline_s]
        return [self._open.pop(request_id) for request_id in late]

    def oldest_open_id(self) -> float:
        """The lowest id of an open request; infinite without one."""
        return min(self._open, default=float("inf"))

    def next_deadline_s(self) -> float:
        """When the next deadline passes; infinite without an open request."""
        return min((ask.deadline_s for ask in self._open.values()), default=float("inf"))
