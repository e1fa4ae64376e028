"""`koff lag`: the same line as the monitor's, gone through once, or again and again, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from koff.client import Cluster
from koff.errors import Denied
from koff.monitor.batching import Tail, apply_share_state, share_state_conf
from koff.monitor.conf import MonitorConf
from koff.monitor.exact_time_lag import ExactTimeLag
from koff.monitor.sampler import Sampler
from koff.monitor.start import start
from koff.monitor.zookeeper_groups import ZooKeeperGroups
from koff.tail.reader import TailReader
from koff.tracker import Snapshot, Tracker


def take_snapshots(
    conf: MonitorConf, *, interval_s: float, progress: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[str, Snapshot]]:
    """The cluster's name and the state of all its groups: now, and every `interval_s` for ever.

    Each reads the log to its present end, then samples the end offsets; the first begins as `conf.start`
    says (nothing is saved). Raises `ConnectError`.
    """
    with (
        Cluster(conf.cluster).connect() as cluster,
        TailReader(cluster, conf.reader) as reader,
        TailReader(cluster, share_state_conf(conf.reader)) as share_reader,
        ExactTimeLag(conf.cluster, tracker := Tracker(), conf.exact) as exact,
        ZooKeeperGroups(conf.zookeeper, tracker) as zookeeper,
    ):
        if conf.zookeeper.hosts:
            zookeeper.connect()
        due, well_at, share_denied = 0.0, time.monotonic(), False
        sampler, tail = Sampler(cluster, tracker, conf.sampler), Tail(tracker, reader)
        started = start(conf.start, cluster, tracker, conf.reader, progress=progress)
        if started.begin is not None:
            tail.begin(started.begin, started.told_until)
        while True:
            while not reader.caught_up or time.monotonic() < due:
                polled = reader.poll(0.2)
                if reader.unreachable is None:
                    well_at = time.monotonic()
                elif time.monotonic() > well_at + conf.cluster.connect_timeout_s:
                    raise reader.unreachable
                tail.add_polled(polled)
                if not reader.caught_up:
                    done, total = reader.to_read - reader.behind, reader.to_read
                    progress(f"read {done} of {total} offsets of {conf.reader.topic}")
            tail.flush()
            while not share_denied:
                try:
                    polled = share_reader.poll(0.01)
                except Denied:
                    share_denied = True
                    break
                apply_share_state(tracker, polled, share_reader)
                if share_reader.caught_up and not polled.runs:
                    break
                if share_reader.unreachable and time.monotonic() > well_at + conf.cluster.connect_timeout_s:
                    raise share_reader.unreachable
            tracker.set_offsets_partitions(len(reader.partitions))
            if conf.zookeeper.hosts:
                zookeeper.read()
            sampler.sample()
            exact.read(conf.exact.deadline_s)
            yield conf.cluster_name or cluster.id, tracker.take_snapshot(time.time_ns() // 1_000_000)
            due = time.monotonic() + interval_s
