"""What waits for one webhook: throttled, held back in quiet hours, and told again. No I/O, clock or threads.

Times are in seconds: `now_s` is monotonic, `at_s` is since 1970.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from koff.serve.events.event import ClusterEvent, Severity, format_time
from koff.serve.events.webhook_conf import WebhookConf
from koff.view.wording import count

MOST_WAITING = 1000
"""So many events wait for a receiver at most."""
THROTTLE_S = 600.0
MOST_LISTED, MOST_REMINDERS = 20, 20
"""So many events are listed in a summary. More reminders than these at once are one summary."""
Lasting = Mapping[str, Callable[[], ClusterEvent]]
"""By key, what builds the reminder of each incident that lasts."""


class _Hold(NamedTuple):
    """Why and since when events are held back."""

    why: str
    since_s: float


class NoticeQueue:
    """The events that wait for a webhook. Not thread-safe."""

    def __init__(self, conf: WebhookConf) -> None:
        self._conf = conf
        self._waiting: deque[ClusterEvent] = deque()
        self._sent_s: deque[float] = deque()
        """When the requests of the last `THROTTLE_S` were taken."""
        self._told_s: dict[str, float] = {}
        """By key, when an incident that lasts was told last."""
        self._hold: _Hold | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, events: Sequence[ClusterEvent], now_s: float) -> int:
        """Adds events. If too many wait, the oldest are dropped. Returns how many were."""
        for event in events:
            if event.key in self._told_s:
                self._told_s[event.key] = now_s
        self._waiting.extend(events)
        too_many = max(0, len(self._waiting) - MOST_WAITING)
        for _ in range(too_many):
            self._waiting.popleft()
        return too_many

    def remind(self, lasting: Lasting, now_s: float, at_s: float, untold: Collection[str] = ()) -> int:
        """Adds a notice of each incident of which nothing was told for a while, or ever. Returns as `add`."""
        told_s = {key: self._told_s.get(key, now_s) for key in lasting}
        remind_s = math.inf if self._conf.remind_s is None else self._conf.remind_s
        due = [key for key, since_s in told_s.items() if key in untold or now_s - since_s >= remind_s]
        self._told_s = told_s | dict.fromkeys(due, now_s)
        if self._hold is not None:  # the summary tells of the others
            due = [key for key in due if key in untold]
        events = [event for key in due if self._conf.fits(event := lasting[key]())]
        if len(events) > MOST_REMINDERS and not self._conf.notices.keeps_alerts:
            events = [_sum_up(events, f"{count(len(events), 'incident')} last", at_s)]
        return self.add(events, now_s)

    def take(self, now_s: float, at_s: float, *, is_last: bool = False) -> list[ClusterEvent]:
        """The events of the next request, which the caller sends; empty if there is none now.

        With `is_last`, nothing is held back: koff stops.
        """
        if not self._waiting:
            return []
        why = None if is_last else self._find_why_held(now_s, at_s)
        if why is not None:
            self._hold = self._hold or _Hold(why, at_s)
            return self._take_ends()
        if self._hold is not None:
            self._release(self._hold, at_s)
            self._hold = None
        if self._conf.throttle is not None:
            self._sent_s.append(now_s)
        most = min(self._conf.notices.at_once, len(self._waiting))
        return [self._waiting.popleft() for _ in range(most)]

    def _find_why_held(self, now_s: float, at_s: float) -> str | None:
        """Why nothing may be sent now; None if it may."""
        while self._sent_s and self._sent_s[0] <= now_s - THROTTLE_S:
            self._sent_s.popleft()
        if any(hours.hold(at_s) for hours in self._conf.quiet_hours):
            return "quiet hours"
        if self._conf.throttle is not None and len(self._sent_s) >= self._conf.throttle:
            return f"throttle: {self._conf.throttle} requests in {THROTTLE_S / 60:g} min"
        return None

    def _take_ends(self) -> list[ClusterEvent]:
        """Ends for a receiver that keeps alerts: they are not held back, for nobody may be paged for them."""
        if not self._conf.notices.keeps_alerts:
            return []
        newest = _list_newest(self._waiting)
        ends = [event for event in newest if event.ends is not None][: self._conf.notices.at_once]
        taken = {event.thing for event in ends}
        self._waiting = deque(event for event in newest if event.thing not in taken)
        return ends

    def _release(self, hold: _Hold, at_s: float) -> None:
        """Puts what is to be sent in place of the events that were held back."""
        newest, number = _list_newest(self._waiting), len(self._waiting)
        if self._conf.notices.keeps_alerts:
            self._waiting = deque(newest)
            return
        first = {event.thing: event for event in reversed(self._waiting)}
        began = {thing for thing, event in first.items() if event.ends is None}
        rest = [event for event in newest if event.ends is None or event.thing not in began]
        since = format_time(round(hold.since_s * 1000))
        head = f"{count(number, 'event')} held back since {since} ({hold.why})"
        if ended := len(newest) - len(rest):
            head += f"; {ended} began and ended meanwhile"
        self._waiting = deque([_sum_up(rest, head, at_s)])


def _list_newest(events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
    """The newest event of each thing, in their order."""
    newest: dict[str, ClusterEvent] = {}
    for event in events:
        newest.pop(event.thing, None)
        newest[event.thing] = event
    return list(newest.values())


def _sum_up(events: Sequence[ClusterEvent], head: str, at_s: float) -> ClusterEvent:
    """One notice of these events: the worst are listed."""
    worst = sorted(events, key=lambda event: -event.severity)
    lines = [f"- {event.text}" for event in worst[:MOST_LISTED]]
    lines += [f"and {len(events) - MOST_LISTED} more"] if len(events) > MOST_LISTED else []
    owners = {event.owner for event in events}
    at_ms = round(at_s * 1000)
    return ClusterEvent(
        ", ".join(sorted({event.cluster for event in events})),
        "summary",
        max((event.severity for event in events), default=Severity.INFO),
        "\n".join([f"{head}{':' if events else ''}", *lines]),
        details={"kinds": dict(Counter(str(event.kind) for event in events))},
        owner=owners.pop() if len(owners) == 1 else None,
        id=f"summary/{at_ms}",
        time=format_time(at_ms),
    )
