"""One cluster that is watched: its core, the loop that owns it, and the workers. And views for `koff lag`."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Self

from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.errors import ConnectError, Denied, NoResponse
from koff.monitor.conf import MonitorConf
from koff.monitor.core_conf import CoreConf
from koff.monitor.loop import Loop
from koff.monitor.state import StateDir
from koff.monitor.workers import Workers, WorkersConf
from koff.records.topics import SHARE_STATE_TOPIC
from koff.view.cluster_view import ClusterView

REQUEST_TIMEOUT_S = 4.0
LOG_SIZES_INTERVAL_S = 60.0
MOST_START_INTERVAL_S, START_INTERVALS = 30.0, 6
"""Log start and last stable offsets are sampled so often, or at each 6th sample of end offsets if that is
sooner. Two samples show a transaction that hangs: it is named within a minute."""
TAIL = 8_000
"""So many of the last offsets of each partition of the offsets topic are read for one look: commits that tell
who stands still, and how fast the others are. Half a second for all, if there are fifty partitions."""
SAVE_S = 10.0
"""How long the last writes to the state directory may take."""
LOOK_S, LOOK_PART = 0.02, 10
"""The pause between two looks whether everything is known: at least so long, and so many times as long as a
look takes."""


class Watch:
    """Watches a cluster to which `cluster` is connected. A context manager.

    `state_dir` must be locked. Raises `ConfigError` if ZooKeeper cannot be used; `ConnectError` if ZooKeeper
    cannot be reached, unless `conf.wait`.
    """

    def __init__(self, conf: MonitorConf, cluster: Cluster, state_dir: StateDir | None = None) -> None:
        self._conf = conf
        self.loop = Loop(build_core_conf(conf, cluster.id, saves=state_dir is not None))
        topics = conf.offsets_topic, SHARE_STATE_TOPIC
        self._workers = Workers(
            WorkersConf(conf.cluster, topics, conf.end_interval_s, state_dir, conf.zookeeper),
            cluster,
            self.loop.post,
        )

    def __enter__(self) -> Self:
        if self._conf.zookeeper.hosts:
            try:
                self._workers.zookeeper.connect()
            except ConnectError:
                if not self._conf.wait:
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def run(self, is_done: Callable[[], bool]) -> None:
        """Watches until `is_done`, which is called at least twice a second."""
        self.loop.run(self._workers.send, is_done)

    def save(self) -> None:
        """Saves what is known, after the last `run`. Takes `SAVE_S` at the most."""
        self.loop.stop(self._workers.send)
        self._workers.finish_disk(SAVE_S)


def limit_requests(conf: ClusterConf) -> ClusterConf:
    """The configuration with a timeout that leaves time to try again before the core gives up a request."""
    return replace(conf, request_timeout_s=min(conf.request_timeout_s, REQUEST_TIMEOUT_S))


def build_core_conf(conf: MonitorConf, cluster_id: str, *, saves: bool) -> CoreConf:
    return replace(
        conf,
        cluster_id=cluster_id,
        saves=saves,
        log_sizes_interval_s=LOG_SIZES_INTERVAL_S if conf.log_sizes else None,
        zookeeper_interval_s=conf.zookeeper.interval_s if conf.zookeeper.hosts else None,
        start_interval_s=min(MOST_START_INTERVAL_S, START_INTERVALS * conf.end_interval_s),
        tail=TAIL if conf.records_per_s is None else 0,
    )


def take_views(
    conf: MonitorConf,
    *,
    interval_s: float,
    timeout_s: float,
    progress: Callable[[str], None] = lambda text: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[ClusterView]:
    """Views of the cluster: now, and every `interval_s` until `is_stopped`.

    The first comes when all that is to be known is known, or after `timeout_s`: it then has what is known,
    and says what is not. Raises `ConnectError` if the cluster cannot be reached at first, and `Denied` if
    this user may read neither the offsets topic nor the groups.
    """
    deadline_s = time.monotonic() + timeout_s
    with (
        _connect(conf.cluster, deadline_s) as cluster,
        Watch(_limit_zookeeper(conf, deadline_s), cluster) as watch,
    ):
        look_s = 0.0

        def is_complete() -> bool:
            nonlocal look_s
            began_s = time.monotonic()
            if began_s < min(look_s, deadline_s):
                return False
            is_known = _is_known(watch.loop, progress)
            ended_s = time.monotonic()
            look_s = ended_s + max(LOOK_S, LOOK_PART * (ended_s - began_s))
            return is_known or ended_s >= deadline_s or is_stopped()

        watch.run(is_complete)
        while not is_stopped():
            yield watch.loop.build_view()
            watch.loop.core.stop_holding()
            watch.run(partial(_is_past, time.monotonic() + interval_s, is_stopped))


def _connect(conf: ClusterConf, deadline_s: float) -> Cluster:
    """Tries again while nobody responds: a cluster may be busy for the very reason why one looks at it."""

    def is_late() -> bool:
        return time.monotonic() >= deadline_s

    return Cluster(limit_requests(conf)).connect(
        wait=lambda error: isinstance(error, NoResponse) and not is_late(), should_stop=is_late
    )


def _limit_zookeeper(conf: MonitorConf, deadline_s: float) -> MonitorConf:
    """The configuration with as much time to connect to ZooKeeper as is left."""
    timeout_s = max(0.1, min(conf.zookeeper.connect_timeout_s, deadline_s - time.monotonic()))
    # Rounded: an error says how long it was.
    return replace(conf, zookeeper=replace(conf.zookeeper, connect_timeout_s=round(timeout_s, 1)))


def _is_known(loop: Loop, progress: Callable[[str], None]) -> bool:
    """Whether all is known that is to be known. `progress` gets what is missing. Raises `Denied`."""
    if (refusal := loop.core.refusal) is not None:
        raise Denied(refusal)
    view = loop.build_view()
    progress(view.readiness.text.removeprefix("not ready: "))
    return view.readiness.ready and not view.stats.withheld and loop.core.is_settled


def _is_past(due_s: float, is_stopped: Callable[[], bool]) -> bool:
    return time.monotonic() >= due_s or is_stopped()
