"""`koff monitor`: connects, watches, serves, and stops."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue

import structlog

from koff.client import Cluster
from koff.errors import ConnectError
from koff.monitor.conf import MonitorConf
from koff.monitor.loop import Loop
from koff.monitor.state import StateDir
from koff.monitor.watch import Watch, limit_requests
from koff.serve import ClusterView, MonitorStats, Readiness, Server
from koff.tracker import Tracker

log = structlog.get_logger(component="monitor")
RETRY_S = 1.0


class Monitor:
    """Watches one cluster and serves it. A `ViewSource`. `run` returns when `stop` was called."""

    def __init__(self, conf: MonitorConf) -> None:
        self.conf = conf
        self._cluster = Cluster(limit_requests(conf.cluster))
        self._loop: Loop | None = None  # None until the cluster was reached
        self._failure: ConnectError | None = None
        self._is_stopping = False
        # A signal handler may not use an Event: the thread that it interrupts may hold the Event's lock.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def stop(self) -> None:
        """Ends `run` soon. May be called by a signal handler."""
        self._is_stopping = True
        self._wakes.put(None)
        if self._loop is not None:
            self._loop.wake()

    def run(self) -> None:
        """Serves until stopped.

        Raises `ConnectError` if the cluster cannot be reached at first, unless `conf.wait`; `ConfigError` if
        koff cannot listen on the address, or cannot write to the state directory.
        """
        with ExitStack() as open_:
            state_dir = None
            if self.conf.state_dir is not None:
                state_dir = open_.enter_context(StateDir(self.conf.state_dir).lock())
            server = open_.enter_context(Server(self, self.conf.serve, self.conf.metrics))
            log.info("listening", url=server.url)
            cluster = open_.enter_context(self._cluster)
            if self._connect():
                watch = open_.enter_context(Watch(self.conf, cluster, state_dir))
                self._loop = watch.loop
                watch.run(self._should_stop)
                watch.save()
        log.info("stopped")

    def take_view(self) -> ClusterView:
        """What may be served now. Raises `NoProgress`."""
        if self._loop is not None:
            return self._loop.take_view()
        why = str(self._failure or f"connecting to {self.conf.cluster.brokers}")
        return ClusterView(
            self.conf.cluster_name or None,  # the id of the cluster is its name, and not known yet
            Tracker().take_snapshot(0),
            Readiness(False, f"not ready: {why}"),
            MonitorStats(up=False),
        )

    def find_stall(self) -> str | None:
        """Why the process should be restarted; None while it makes progress."""
        return None if self._loop is None else self._loop.find_stall()

    def _connect(self) -> bool:
        """Connects to the cluster. Returns False if the monitor is stopped meanwhile."""
        try:
            self._cluster.connect(wait=self._wait, should_stop=self._should_stop)
        except ConnectError:
            if not self._is_stopping:
                raise
        if self._is_stopping:
            return False
        self._failure = None
        log.info("connected", brokers=self.conf.cluster.brokers, cluster=self._cluster.id)
        return True

    def _wait(self, failure: ConnectError) -> bool:
        """Whether to try again to connect."""
        if self._is_stopping or not self.conf.wait:
            return False
        self._failure = failure
        log.warning("waiting", why=str(failure))
        with suppress(Empty):
            self._wakes.get(timeout=RETRY_S)
        return not self._is_stopping

    def _should_stop(self) -> bool:
        return self._is_stopping
