"""Which of two koffs sends the events of a cluster to webhooks. No I/O, clock or threads.

A koff that is the standby of another one, the first, holds each event back until the first has had the time
to send it, and sends it only if the first may not have sent it. So an event may leave twice:

- The first sends as long as it sees the cluster. If it has not for `PATIENCE_S`, the standby sends.
- If the first was started again, it does not know what happened before. The standby sends that.
- If neither of them sees the cluster, the standby waits, as long as the first responds.
"""

from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from koff.errors import ConfigError
from koff.serve.events.event import INCIDENT_BEGINS, ClusterEvent

PATIENCE_S = 15.0
"""The first may be away for so long, such as while it is started again."""
KEEP_S = 60.0
"""After so long without a failure, the first has found and sent what the standby has found."""
SETTLE_S = 10.0
"""So long after its start, the first may not tell what the standby tells: it may have begun too late."""
LEARN_S = 300.0
"""So long after its start, the first has found the incidents that last."""
MOST_WAITING = 1000
Turn = Literal["takes over", "gives back"]


def check_first_url(url: str) -> None:
    """Raises `ConfigError` if a koff cannot have this address."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or "@" in url or parts.query or parts.fragment or not url.isascii() or " " in url:
        raise ConfigError("the address of a koff must be http://HOST[:PORT], or https")


class FirstAnswer(NamedTuple):
    """How the first koff is. `instance` names its process: None if it has not responded."""

    instance: str | None = None
    is_ready: bool = False
    why: str = ""


class _Waiting(NamedTuple):
    """An event, when it came, and when that began which it tells of."""

    event: ClusterEvent
    at_s: float
    began_s: float

    def is_missed(self, first_began_s: float) -> bool:
        """Whether the first may have begun too late to know of it."""
        # At its start, a koff tells of the groups that are late already.
        return self.event.kind not in INCIDENT_BEGINS and self.began_s < first_began_s + SETTLE_S

    def is_told(self, first_began_s: float, now_s: float) -> bool:
        """Whether the first has told it."""
        return now_s - max(self.at_s, first_began_s) >= KEEP_S


class Standby:
    """Holds back the events of one cluster. Times are monotonic, in seconds. `own` names this process."""

    def __init__(self, own: str, now_s: float) -> None:
        self._own = own
        self._instance: str | None = None
        self._began_s: float | None = None
        """When that process of the first was seen ready for the first time. None: not yet."""
        self._failing_s: float | None = now_s
        self._waiting: deque[_Waiting] = deque(maxlen=MOST_WAITING)
        self._created_s = now_s
        self._lasting_s: dict[str, float] = {}
        """By key, when what lasts began."""
        self.sends = False

    def note(self, answer: FirstAnswer, now_s: float, *, is_ready: bool) -> Turn | None:
        """Takes the answer of the first. `is_ready` says whether this koff sees the cluster.

        Returns whether this koff takes over from the first now, or gives back; None if nothing changes.
        """
        if answer.instance == self._own:  # both of a pair may have the same address, that of the first
            self.sends = True
            return None
        sent = self.sends
        if answer.instance is not None and (answer.is_ready or not is_ready):
            self._note_well(answer, now_s)
            return "gives back" if sent else None
        self._failing_s = now_s if self._failing_s is None else self._failing_s
        self.sends |= now_s - self._failing_s >= PATIENCE_S
        return "takes over" if self.sends and not sent else None

    def _note_well(self, answer: FirstAnswer, now_s: float) -> None:
        if answer.instance != self._instance:
            self._instance, self._began_s = answer.instance, None
        if answer.is_ready and self._began_s is None:
            self._began_s = now_s
        self._failing_s, self.sends = None, False

    def add(self, events: Sequence[ClusterEvent], now_s: float) -> None:
        """Adds events. If too many wait, the oldest are dropped."""
        for event in events:
            began_s = now_s
            if event.ends is not None:
                began_s = self._lasting_s.pop(event.key, self._created_s)
                if event.kind == "incident_closed":
                    began_s = max(began_s, now_s - LEARN_S)
            elif event.key:
                self._lasting_s.setdefault(event.key, now_s)
            self._waiting.append(_Waiting(event, now_s, began_s))

    def take(self, now_s: float, *, is_last: bool = False) -> list[ClusterEvent]:
        """The events that this koff sends now. With `is_last`, it stops, and no event may wait any longer."""
        is_failing = self._failing_s is not None
        sends_all, began_s = self.sends or (is_last and is_failing), self._began_s
        if not sends_all and (is_failing or began_s is None):
            return []
        events, kept = [], list[_Waiting]()
        for each in self._waiting:
            if sends_all or each.is_missed(began_s or 0.0):
                events.append(each.event)
            elif not each.is_told(began_s or 0.0, now_s):
                kept.append(each)
        self._waiting = deque(kept, MOST_WAITING)
        return events
