"""Measures how long the owner takes for a view, in ms: the median and the longest of `--views`. Prints JSON.

`look_ms` is what another thread takes every five seconds to compare the view with the one before: verdicts,
causes and events.

A view is taken while nothing has changed, after a group has committed, after a hundred groups have, and after
new end offsets. Beside each: the snapshot of the tracker alone, which is a part of it. The core is the real
one; its requests are answered here. Groups have 10 partitions, of which a fifth is behind.

    python -m bench.view [--rows 20000 --rows 200000] [--views 20]
"""

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import click

from bench.catchup import key, main_partition
from bench.scrape import BEHIND, END, GROUPS_A_TOPIC, PARTITIONS_A_GROUP, START_MS, value
from koff.monitor.core import Core
from koff.monitor.core_conf import CoreConf
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import FirstRecordsRead, ReadFirstRecords
from koff.monitor.duties.retention import FetchTopicConfigs
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Command, Failed, Polled, Read, Records, Topic, TopicPartition, Watermarks
from koff.records.topics import OFFSETS_TOPIC
from koff.serve.events.changes import ClusterChanges

OFFSETS_PARTITIONS = 50
INTERVAL_S = 5.0
TOPIC_ID = "AQEBAQEBAQEBAQEBAQEBAQ"  # of the commits that `value` makes


class Watched:
    """A core that watches a cluster which answers at once."""

    def __init__(self, rows: int) -> None:
        self.groups = rows // PARTITIONS_A_GROUP
        self.topics = max(1, self.groups // GROUPS_A_TOPIC)
        self.names = {f"bench-topic-{n:05d}": Topic(TOPIC_ID, PARTITIONS_A_GROUP) for n in range(self.topics)}
        self.names[OFFSETS_TOPIC] = Topic("", OFFSETS_PARTITIONS)
        self.at_s, self.committed = 0.0, END
        self.written = [0] * OFFSETS_PARTITIONS
        self.attempts: dict[int, int] = {}
        self.core = Core(CoreConf(start="replay"), self.now())
        self.advance(0)
        self.commit(range(self.groups))
        for _ in range(6):
            self.advance(INTERVAL_S)
            self.commit(range(self.groups))
        assert (view := self.core.take_view(self.now())).readiness.ready, view.readiness
        assert view.stats.rows == rows, view.stats
        assert not view.stats.withheld, view.stats

    def now(self) -> Moment:
        return Moment(self.at_s, START_MS + round(self.at_s * 1000))

    def advance(self, seconds: float) -> None:
        """Time passes; then all that is requested is answered."""
        self.at_s += seconds
        ends = {
            shard: Watermarks(attempt, self.written[shard], self.written[shard], self.now())
            for shard, attempt in self.attempts.items()
        }
        requests = self.core.handle(Polled(OFFSETS_TOPIC, ends=ends), self.now())
        while requests:
            answers = [answer for request in requests if (answer := self._answer(request)) is not None]
            requests = [more for answer in answers for more in self.core.handle(answer, self.now())]

    def commit(self, groups: Iterable[int]) -> None:
        """Each of these groups commits all its partitions."""
        self.committed += 1
        batches: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for number in groups:
            group, topic = f"bench-{number:07d}", f"bench-topic-{number % self.topics:05d}"
            keys, values = batches.setdefault(main_partition(group), ([], []))
            for partition in range(PARTITIONS_A_GROUP):
                behind = BEHIND if (number + partition) % 5 == 0 else 0
                keys.append(key(group, topic, partition))
                values.append(value(self.committed - behind, self.now().wall_ms))
        records = []
        for shard, (keys, values) in batches.items():
            first, self.written[shard] = self.written[shard], self.written[shard] + len(keys)
            offsets = range(first, self.written[shard])
            records.append(Records(shard, self.attempts[shard], keys, values, offsets))
        self.core.handle(Polled(OFFSETS_TOPIC, records), self.now())

    def _answer(self, request: Command) -> Any:
        match request:
            case Read():
                self.attempts |= {number: start.attempt for number, start in request.starts.items()}
            case FetchTopics():
                return TopicsFetched(request.id, self.names)
            case FetchOffsets():
                offsets = {at: self._find_offset(at, request.kind) for at in request.partitions}
                return OffsetsFetched(request.id, offsets, final=True)
            case ReadFirstRecords():
                return FirstRecordsRead(request.id, {})
            case FetchTopicConfigs():
                return Failed(request.id, "not here")
        return None

    def _find_offset(self, at: TopicPartition, kind: Any) -> int:
        if kind == "start":
            return 0
        return self.written[at[1]] if at[0] == OFFSETS_TOPIC else self.committed

    def measure(self, change: Callable[[], None], views: int) -> dict[str, float]:
        """Milliseconds of a view after each `change`."""
        taken: dict[str, list[float]] = {"view": [], "snapshot": []}
        for _ in range(views):
            self.at_s += 0.2
            for name, of in (("snapshot", self._snapshot), ("view", lambda: self.core.take_view(self.now()))):
                change()
                began_s = time.perf_counter()
                of()
                taken[name].append((time.perf_counter() - began_s) * 1000)
        return {
            "view_ms": round(statistics.median(taken["view"]), 2),
            "longest_view_ms": round(max(taken["view"]), 2),
            "snapshot_ms": round(statistics.median(taken["snapshot"]), 2),
        }

    def measure_looks(self, looks: int) -> dict[str, float]:
        """Milliseconds of a look, each after new end offsets and commits of all groups."""
        changes, took_ms = ClusterChanges(), list[float]()
        for _ in range(looks):
            self.advance(INTERVAL_S)
            self.commit(range(self.groups))
            view = self.core.take_view(self.now())
            began_s = time.perf_counter()
            changes.compare(view, self.now().wall_ms)
            took_ms.append((time.perf_counter() - began_s) * 1000)
        return {"look_ms": round(statistics.median(took_ms), 2), "longest_look_ms": round(max(took_ms), 2)}

    def _snapshot(self) -> None:
        self.core.tracker.take_snapshot(self.now().wall_ms)


def measure(rows: int, views: int) -> dict[str, Any]:
    watched = Watched(rows)
    gc.collect()
    gc.freeze()  # as koff monitor does
    gc.set_threshold(200_000, 50, 100)
    hundred = range(0, watched.groups, max(1, watched.groups // 100))
    return {
        "rows": rows,
        "nothing": watched.measure(lambda: None, views),
        "one_group": watched.measure(lambda: watched.commit([1]), views),
        "hundred_groups": watched.measure(lambda: watched.commit(hundred), views),
        "end_offsets": watched.measure(lambda: watched.advance(INTERVAL_S), views),
        **watched.measure_looks(views),
    }


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(20_000, 200_000), show_default=True)
@click.option("--views", default=20, show_default=True, help="Views of each kind.")
def main(sizes: tuple[int, ...], views: int) -> None:
    """Prints what a view costs the owner, in ms."""
    print(json.dumps([measure(rows, views) for rows in sizes], indent=2))


if __name__ == "__main__":
    main()
