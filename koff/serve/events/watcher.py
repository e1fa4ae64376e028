"""The thread that compares views, and sends what has changed to the log, the event log and webhooks."""

import threading
import time
from collections.abc import Callable, Sequence

from koff.logs import get_logger
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.event_log import EventLog
from koff.serve.events.notices import Notices
from koff.serve.events.webhook import Webhooks
from koff.view.cluster_view import ClusterView, NoProgress, Views

log = get_logger("events")
LEAST_INTERVAL_S = 5.0
MOST_LOGGED = 100
"""So many events of one look are logged at most."""
STOP_S = 2.0


class Events:
    """Where events go: to the event log, which the streams read, and to webhooks.

    With the URL of a `first` koff, this one is its standby.
    """

    def __init__(self, first: str | None = None) -> None:
        self.log = EventLog(_read_clock_ms())
        self.webhooks = Webhooks()
        self.notices = Notices(self.webhooks, first)


class EventWatcher:
    """Takes views every `interval_s()` seconds, in a thread of its own. What has changed becomes `events`.

    Views that are late delay only the events.
    """

    def __init__(
        self, take_views: Callable[[], Views], interval_s: Callable[[], float], events: Events
    ) -> None:
        self._take_views, self._interval_s, self._events = take_views, interval_s, events
        self._clusters: dict[str, ClusterChanges] = {}
        self._lock = threading.Lock()  # guards `_restarted`
        self._restarted: set[str] = set()
        self._stopped = threading.Event()
        self._faults: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="koff-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread. A look that hangs does not delay that."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._events.notices.stop()

    def note_restart(self, cluster: str) -> None:
        """Notes that views of that cluster will be of another monitor: the one before gives no more."""
        with self._lock:
            self._restarted.add(cluster)

    def look(self) -> None:
        """Compares the present views with those before."""
        with self._lock:
            restarted, self._restarted = self._restarted, set()
        for cluster in restarted & self._clusters.keys():
            self._clusters[cluster].restart()
        now_ms = _read_clock_ms()
        views: tuple[ClusterView, ...] = ()
        try:
            views = self._take_views().clusters
        except NoProgress as error:
            for cluster, changes in self._clusters.items():
                if not self._stopped.is_set():  # a monitor that stops is no event
                    self._publish(cluster, changes.note_no_view(cluster, str(error), now_ms), now_ms)
        for view in views:
            if view.cluster is not None and not self._stopped.is_set():
                self._compare(view.cluster, view, now_ms)
        self._events.notices.look(views, now_ms)

    def _compare(self, cluster: str, view: ClusterView, now_ms: int) -> None:
        changes = self._clusters.setdefault(cluster, ClusterChanges())
        try:
            events = changes.compare(view, now_ms)
        except Exception as error:
            # Half of what is known may be new, and would give false events. Only the incidents stay known.
            self._clusters[cluster] = ClusterChanges(changes.incidents)
            self._note_fault(error)
        else:
            self._publish(cluster, events, now_ms)

    def _publish(self, cluster: str, events: Sequence[ClusterEvent], now_ms: int) -> None:
        if not events:
            return
        events = self._events.log.add(events, now_ms)
        self._events.notices.send(cluster, events)
        for event in events[:MOST_LOGGED]:
            write = log.info if event.severity is Severity.INFO else log.warning
            write(event.text, kind=event.kind, cluster=event.cluster, id=event.id)
        if len(events) > MOST_LOGGED:
            log.info("more events", cluster=cluster, count=len(events) - MOST_LOGGED)

    def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                self.look()
            except Exception as error:
                self._note_fault(error)
            pause_s = max(LEAST_INTERVAL_S, self._interval_s()) - (time.monotonic() - began_s)
            if self._stopped.wait(max(0.1, pause_s)):
                return

    def _note_fault(self, error: Exception) -> None:
        """Logs a fault of koff, once."""
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._faults and len(self._faults) < 100:
            self._faults.add(kind)
            log.exception("a fault of koff: please report it", why=kind)


def _read_clock_ms() -> int:
    return time.time_ns() // 1_000_000
