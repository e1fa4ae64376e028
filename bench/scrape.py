"""What rendering /metrics costs: seconds (the median, gzip included), series and bytes, by rows and settings.

Prints JSON. The views are made up, without a cluster: groups of 10 partitions, of which a fifth is behind.
Between two renders the time lags of these grow, as they do between two scrapes.

    python -m bench.scrape [--rows 2000 --rows 200000] [--renders 10]
"""

from __future__ import annotations

import gc
import json
import statistics
import struct
import time
from typing import Any

import click

from bench.catchup import key, main_partition
from koff.serve.accepted import PROMETHEUS_TEXT
from koff.serve.metrics_conf import MetricsConf
from koff.serve.rendering import Renderer
from koff.serve.view import ClusterFacts, ClusterView, MonitorStats, Readiness, TopicFacts, Views
from koff.tracker import Tracker

PARTITIONS_A_GROUP = 10
GROUPS_A_TOPIC = 5
START_MS = 1_800_000_000_000
END, BEHIND = 1_000_000, 1_234


def value(offset: int, at_ms: int) -> bytes:
    return struct.pack(">hqiBqBBB16s", 4, offset, 0, 1, at_ms, 1, 0, 16, b"\1" * 16)


def fill_tracker(rows: int) -> Tracker:
    """Groups with two commits on each of their partitions, ten seconds apart."""
    tracker, groups = Tracker(), rows // PARTITIONS_A_GROUP
    topics = max(1, groups // GROUPS_A_TOPIC)
    for round_ in range(2):
        at_ms, grown = START_MS + round_ * 10_000, round_ * 1000
        shards: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for number in range(groups):
            group, topic = f"bench-{number:07d}", f"bench-topic-{number % topics:05d}"
            keys, values = shards.setdefault(main_partition(group), ([], []))
            for partition in range(PARTITIONS_A_GROUP):
                behind = BEHIND if (number + partition) % 5 == 0 else 0
                keys.append(key(group, topic, partition))
                values.append(value(END + grown - behind, at_ms))
        for shard, (keys, values) in shards.items():
            tracker.apply(shard, keys, values, seen_at_ms=at_ms)
        watched = tracker.watched_partitions()
        tracker.add_samples(
            ends=dict.fromkeys(watched, END + grown), starts=dict.fromkeys(watched, 7), at_ms=at_ms
        )
    return tracker


def take_view(tracker: Tracker, at_ms: int) -> ClusterView:
    snapshot = tracker.take_snapshot(at_ms)
    topics = dict.fromkeys(dict.fromkeys(snapshot.partitions.topic), TopicFacts(PARTITIONS_A_GROUP, 3))
    facts = ClusterFacts(3, topics, (1,) * 50)
    return ClusterView("bench", snapshot, Readiness(True, "ready"), MonitorStats(), facts)


CONFS: tuple[dict[str, Any], ...] = (
    {"families": ("default",)},
    {"families": ("default",), "granularity": "topic"},
    {"families": ("default",), "granularity": "group"},
    {"families": ("all",)},
    {"families": ("default",), "max_series": 50_000},
)


class Source:
    """A `ViewSource` that gives one view after the other."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.number = tracker, 0
        self.view = take_view(tracker, START_MS + 11_000)

    def advance(self) -> None:
        self.number += 1
        self.view = take_view(self.tracker, START_MS + 11_000 + self.number * 1_003)

    def take_views(self) -> Views:
        return Views.from_one(self.view)

    def find_stall(self) -> str | None:
        return None


def measure(rows: int, renders: int, conf: dict[str, Any]) -> dict[str, Any]:
    source = Source(fill_tracker(rows))
    renderer = Renderer(source, MetricsConf(**conf))
    began = time.perf_counter()
    body = renderer.render(PROMETHEUS_TEXT)
    first_s, seconds, cpu_s = time.perf_counter() - began, [], []
    for _ in range(renders):
        source.advance()
        began, cpu = time.perf_counter(), time.process_time()
        body = renderer.render(PROMETHEUS_TEXT)
        seconds.append(time.perf_counter() - began)
        cpu_s.append(time.process_time() - cpu)
    series = sum(piece.count(b"\nkoff_") for piece in body.inflate())
    return {
        "rows": rows,
        **conf,
        "first_s": round(first_s, 3),
        "median_s": round(statistics.median(seconds), 3),
        "median_cpu_s": round(statistics.median(cpu_s), 3),
        "max_s": round(max(seconds), 3),
        "series": series,
        "bytes": body.plain_size,
        "gzip_bytes": len(body.gzipped),
    }


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(2_000, 200_000))
@click.option("--renders", default=10)
def main(sizes: tuple[int, ...], renders: int) -> None:
    gc.freeze()  # as koff monitor does
    gc.set_threshold(200_000, 50, 100)
    figures = [measure(rows, renders, conf) for rows in sizes for conf in CONFS]
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
