"""One monitor: connects to its cluster, watches it, and stops."""

import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

import structlog

from koff.client.addresses import parse_addresses
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.errors import ConnectError, KoffError
from koff.monitor.conf import MonitorConf
from koff.monitor.lag_archive import Archivist
from koff.monitor.loop import Loop
from koff.monitor.requests import Display
from koff.monitor.state import StateDir
from koff.monitor.watch import Watch, limit_requests
from koff.tracker import Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness, Views
from koff.view.managed_services import find_service

RETRY_S, MOST_RETRY_S = 1.0, 10.0
LOG_S, SELDOM_LOG_S = 60.0, 600.0
SELDOM_AFTER_S = 600.0
"""After so long, a line every ten minutes suffices."""


class RepeatedFailure:
    """Counts failures. The first is logged at once, then one line a minute, then one in ten minutes."""

    def __init__(self) -> None:
        self.count = 0
        self._first_s = self._logged_s = float("-inf")

    @property
    def retry_s(self) -> float:
        """The pause before the next try. It grows from try to try."""
        return min(RETRY_S * 1.5 ** min(self.count - 1, 10), MOST_RETRY_S)

    def note(self, now_s: float) -> bool:
        """Counts a failure. Returns whether it is to be logged."""
        self.count += 1
        if self.count == 1:
            self._first_s = now_s
        pause_s = LOG_S if now_s < self._first_s + SELDOM_AFTER_S else SELDOM_LOG_S
        if now_s < self._logged_s + pause_s:
            return False
        self._logged_s = now_s
        return True


log = structlog.get_logger(component="monitor")
SHOW_S = 2.0


class Monitor(Closing):
    """Watches one cluster. A `ViewSource`. `run` returns when `stop` was called.

    Locks the state directory at creation, until the end of `run` or `close`. Raises `ConfigError` if koff
    cannot write to it, or librdkafka refuses the properties.
    """

    def __init__(self, conf: MonitorConf) -> None:
        self.conf = conf
        self._cluster = Cluster(limit_requests(conf.cluster))
        try:
            self._state_dir = None if conf.state_dir is None else StateDir(conf.state_dir).lock()
        except KoffError:
            self._cluster.close()
            raise
        self._loop: Loop | None = None  # None until the cluster was reached
        self._failure: str | None = None
        self._attempts = RepeatedFailure()
        self._was_ready = False
        self._empty: ClusterView | None = None
        self._is_stopping = False
        # A signal handler may not use an Event: the thread that it interrupts may hold the Event's lock.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def close(self) -> None:
        """Releases the connections and the state directory."""
        self._cluster.close()
        if self._state_dir is not None:
            self._state_dir.close()

    def stop(self) -> None:
        """Ends `run` soon. May be called by a signal handler."""
        self._is_stopping = True
        self._wakes.put(None)
        if self._loop is not None:
            self._loop.wake()

    def show(self, display: Display) -> None:
        """Changes what is shown of the cluster. Any thread may call it, at any time.

        Later views show it, unless the owner is busy for longer than `SHOW_S`.
        """
        self.conf = replace(self.conf, display=display)
        if self._loop is not None:
            applied = threading.Event()
            self._loop.post(display, applied.set)
            applied.wait(SHOW_S)

    def run(self) -> None:
        """Watches until stopped.

        Raises `ConnectError` if the cluster cannot be reached at first, unless `conf.wait`; `ConfigError` if
        ZooKeeper cannot be used.
        """
        with ExitStack() as open_:
            open_.enter_context(self)
            if self._connect():
                watch = open_.enter_context(Watch(self.conf, self._cluster, self._state_dir))
                if self.conf.state_dir is not None:
                    open_.enter_context(Archivist(Path(self.conf.state_dir), watch.loop.core.activity))
                self._loop = watch.loop
                watch.loop.post(self.conf.display)  # it may have changed meanwhile
                watch.run(self._should_stop)
                watch.save()

    def fail(self, why: str) -> None:
        """Notes why the cluster is not watched any more."""
        self._failure, self._loop = why, None

    def take_views(self) -> Views:
        """What may be served now. Raises `NoProgress`."""
        return Views.from_one(self.take_view())

    def take_view(self) -> ClusterView:
        """What may be served now. Raises `NoProgress`."""
        loop = self._loop
        if loop is None:
            return self.build_empty_view(f"{self._failure or f'connecting to {self.conf.cluster.brokers}'}")
        view, self._empty = loop.take_view(), None
        self._was_ready |= view.readiness.ready
        return view

    def build_empty_view(self, why: str) -> ClusterView:
        """A view that says only why there is nothing to serve. The same object while nothing changes."""
        text, display = f"not ready: {why}", self.conf.display
        kept = self._empty
        if kept is None or (kept.readiness.text, kept.labels) != (text, display.labels):
            # Without a name, the id of the cluster is its name, and it may not be known yet.
            name = self.conf.cluster_name or self._cluster.id or None
            snapshot, readiness = Tracker().take_snapshot(0), Readiness(False, text)
            activity = kept.activity if kept else RecentActivity()
            self._empty = kept = ClusterView(
                name, snapshot, readiness, MonitorStats(up=False), labels=display.labels, activity=activity
            )
        return kept

    @property
    def is_starting(self) -> bool:
        """Whether the monitor connects for the first time, or reads the state of the cluster since then.

        A monitor that could not reach the cluster is not starting, and neither is one that was ready once.
        """
        return not self._was_ready and (self._loop is not None or self._failure is None)

    def find_stall(self) -> str | None:
        """Why the process should be restarted; None while it makes progress."""
        return None if self._loop is None else self._loop.find_stall()

    def _connect(self) -> bool:
        """Connects to the cluster. Returns False if the monitor is stopped meanwhile."""
        is_named = self._name_service()  # first: it may be why koff cannot connect
        try:
            self._cluster.connect(wait=self._wait, should_stop=self._should_stop)
        except ConnectError:
            if not self._is_stopping:
                raise
        if self._is_stopping:
            return False
        self._failure = None
        name = self.conf.cluster_name or self._cluster.id
        log.info("connected", brokers=self.conf.cluster.brokers, cluster=name, id=self._cluster.id)
        if not is_named:
            self._name_service()
        return True

    def _name_service(self) -> bool:
        """Logs what to expect of a managed service. Returns False if it is not known that this is one."""
        hosts = (host for host, _ in parse_addresses(self.conf.cluster.brokers))
        service = find_service(hosts, self._cluster.id)
        if service is not None:
            log.info("managed service", service=service.name, expect=service.expect, see=service.page)
        return service is not None

    def _wait(self, failure: ConnectError) -> bool:
        """Whether to try again to connect."""
        if self._is_stopping or not self.conf.wait:
            return False
        self._failure = str(failure)
        if self._attempts.note(time.monotonic()):
            log.warning("waiting", why=str(failure), attempts=self._attempts.count)
        with suppress(Empty):
            self._wakes.get(timeout=self._attempts.retry_s)
        return not self._is_stopping

    def _should_stop(self) -> bool:
        return self._is_stopping
