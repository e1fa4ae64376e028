"""What leaves the core: requests, of which the open ones are kept with their deadlines, and events."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from koff.monitor.moment import Moment
from koff.monitor.requests import Command, Read, Request, Result, StopReading, TopicPartition
from koff.tracker import Tracker

_Kind = TypeVar("_Kind", bound=Request)
NAMED = 20
"""So many groups are named in an event."""
LOST_S = 2.0
"""When there is no response for so long, that is an event: a change of leaders is shorter."""


class Shared(NamedTuple):
    """What duties share. `steady_ms` gives a time by the tracker's clock: the wall clock when koff began."""

    tracker: Tracker
    outbox: "Outbox"
    steady_ms: Callable[[Moment], int]


class Requester(Protocol):
    """A duty that sends requests, and takes their results and failures."""

    def receive(self, given: Any, pending: "Pending[Any]", now: Moment) -> None:
        """Takes a result of a request."""

    def give_up(self, pending: "Pending[Any]", why: str, now: Moment) -> None:
        """The request failed, or had no final result in time."""


class Duty(Requester, Protocol):
    """Something that koff requests again and again."""

    @property
    def due_s(self) -> float:
        """When `request` has something to do (`Moment.at_s`); infinite if that is unknown."""

    def request(self, now: Moment) -> None:
        """Sends the requests that are due."""


@dataclass(slots=True)
class Pending(Generic[_Kind]):
    """A request, when it was sent, and until when its result is waited for.

    `waiting` are the partitions of the request that have no result yet, `without_groups` those of a
    `FetchGroups` whose coordinator has returned no group. `resets` says how often koff had forgotten each
    partition of an internal topic when the request was sent.
    """

    request: _Kind
    requester: Requester
    requested: Moment
    deadline_s: float
    waiting: set[Any] = field(default_factory=set)
    resets: Mapping[TopicPartition, int] = field(default_factory=dict)
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
    counts the requests to the cluster that were sent, by what metrics call them.
    """

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._ids = itertools.count(1)
        self._open: dict[int, Pending[Any]] = {}
        self._requests: list[Command] = []
        self._events: list[Event] = []
        self._failure: tuple[float, str] | None = None
        self._cause: tuple[float, str] | None = None
        self._responded_s = float("-inf")
        self._unreachable: tuple[float, str] | None = None
        self._failing_s: float | None = None
        self._is_lost = False

    def next_id(self) -> int:
        """An id for the next request."""
        return next(self._ids)

    def send(
        self,
        request: Request,
        requester: Requester,
        now: Moment,
        timeout_s: float,
        resets: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Sends a request. Without a final result within `timeout_s`, it is given up."""
        waiting = set(getattr(request, "partitions", ()))
        self._open[request.id] = Pending(request, requester, now, now.at_s + timeout_s, waiting, resets or {})
        self._requests.append(request)
        if request.metric:
            self.sent[request.metric] += 1

    def command(self, request: Read | StopReading) -> None:
        """Sends a request that has no single result."""
        self._requests.append(request)

    def take_requests(self) -> list[Command]:
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

    def note_failure(self, why: str, requested: Moment, *, names_cause: bool = False) -> None:
        """Notes that a request failed which was sent at `requested`.

        `names_cause`: any broker could have responded, so that it says best why none can be reached.
        """
        if self._failure is None or requested.at_s >= self._failure[0]:
            self._failure = requested.at_s, why
        if names_cause:
            self._cause = requested.at_s, why

    def note_outcome(self, pending: Pending[Any], failure: str) -> bool:
        """Notes whether the cluster has responded to a request, or why not.

        Returns whether it is unknown now if the other brokers respond.
        """
        request = pending.request
        if request.metric and failure:
            self.note_failure(failure, pending.requested, names_cause=request.is_to_any_broker)
            return self.failure is not None and not request.is_to_any_broker
        if request.metric:
            self.note_response(pending.requested)
        return False

    def note_unreachable(self, why: str, now: Moment) -> None:
        """Notes that no broker can be reached."""
        self._unreachable = now.at_s, why

    def note_response(self, requested: Moment) -> None:
        """Notes that the cluster responded to a request sent at `requested`."""
        self._responded_s = max(self._responded_s, requested.at_s)

    @property
    def failure(self) -> str | None:
        """Why no broker can be reached, else the newest error; None if a later request had a response."""
        for noted in (self._cause, self._unreachable, self._failure):
            if noted is not None and noted[0] > self._responded_s:
                return noted[1]
        return None

    @property
    def _has_none_responded(self) -> bool:
        return self._cause is not None and self._cause[0] > self._responded_s

    def report_reach(self, now: Moment) -> None:
        """Adds an event if requests have failed for `LOST_S` and none had a response, or if that is over.

        One broker of several that does not respond is no loss: a request that any broker could have responded
        to must have failed, too.
        """
        failure = self.failure
        if failure is None:
            if self._is_lost:
                self.note(now, "brokers back")
            self._failing_s, self._is_lost = None, False
        elif self._failing_s is None:
            self._failing_s = now.at_s
        elif not self._is_lost and now.at_s >= self._failing_s + LOST_S and self._has_none_responded:
            self._is_lost = True
            self.note(now, "brokers lost", warn=True, why=failure)

    def find(self, given: Result) -> Pending[Any] | None:
        """The request of a result; None if it was given up, or never sent. A final result closes it."""
        return self.close(given.id) if given.final else self.get(given.id)

    def get(self, request_id: int) -> Pending[Any] | None:
        """The open request of that id."""
        return self._open.get(request_id)

    def close(self, request_id: int) -> Pending[Any] | None:
        """Removes and returns the open request of that id."""
        return self._open.pop(request_id, None)

    def has(self, kind: type[Request]) -> bool:
        """Whether a request of that kind is open."""
        return any(isinstance(pending.request, kind) for pending in self._open.values())

    def list_open(self, kind: type[_Kind]) -> Iterator[Pending[_Kind]]:
        """The open requests of that kind."""
        return (pending for pending in list(self._open.values()) if isinstance(pending.request, kind))

    def list_waiting(self, kind: type[Request]) -> set[int]:
        """The partitions of open requests of that kind that have no result yet."""
        waiting: set[int] = set()
        return waiting.union(*(pending.waiting for pending in self.list_open(kind)))

    def remove_late(self, now: Moment) -> list[Pending[Any]]:
        """Removes and returns the requests whose deadline has passed."""
        late = [request_id for request_id, pending in self._open.items() if now.at_s >= pending.deadline_s]
        return [self._open.pop(request_id) for request_id in late]

    def oldest_open_id(self) -> float:
        """The lowest id of an open request; infinite without one."""
        return min(self._open, default=float("inf"))

    def next_deadline_s(self) -> float:
        """When the next deadline passes; infinite without an open request."""
        return min((pending.deadline_s for pending in self._open.values()), default=float("inf"))
