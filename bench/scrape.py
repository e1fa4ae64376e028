"""What rendering /metrics costs: seconds (the median, gzip included), series and bytes, by rows and settings.

Prints JSON. The views are made up, without a cluster: groups of 10 partitions, of which a fifth is behind.
Between two renders the time lags of these grow, as they do between two scrapes. Beside it, what
prometheus_client's generate_latest takes (the median of three, without gzip) for the same series, which are
samples already: up to `--peer-rows`, because it takes ten times as long and more.

    python -m bench.scrape [--rows 2000 --rows 200000 --rows 1000000] [--renders 10] [--peer-rows 200000]
"""

import gc
import json
import re
import statistics
import struct
import time
from collections.abc import Iterator
from typing import Any

import click
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from bench.catchup import key, main_partition
from koff.serve.accepted import PROMETHEUS_TEXT
from koff.serve.metrics.conf import MetricsConf
from koff.serve.rendering import Renderer
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, MonitorStats, Readiness, TopicFacts, Views

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
    {"families": ("all",), "granularity": "topic"},
    {"families": ("all",), "granularity": "group"},
    {"families": ("default",), "max_series": 50_000},
    {"families": ("default",), "compat": ("kminion",)},
    {"families": ("default",), "compat": ("kafka_exporter",)},
)
_LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


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


class Samples(Collector):
    """The series of koff's own body, as samples of prometheus_client."""

    def __init__(self, body: str) -> None:
        self.metrics: dict[str, Metric] = {}
        for name, labels, number in _LINE.findall(body):
            metric = self.metrics.setdefault(name, Metric(name, "A family.", "gauge"))
            metric.add_sample(name, dict(_LABEL.findall(labels)), float(number))

    def collect(self) -> Iterator[Metric]:
        yield from self.metrics.values()


def measure_peer(body: str) -> dict[str, Any]:
    """What prometheus_client takes for the series of this body."""
    registry, seconds = CollectorRegistry(), []
    registry.register(samples := Samples(body))
    for _ in range(3):
        began = time.perf_counter()
        generate_latest(registry)
        seconds.append(time.perf_counter() - began)
    series = sum(len(metric.samples) for metric in samples.metrics.values())
    return {"generate_latest_s": round(statistics.median(seconds), 3), "generate_latest_series": series}


def measure(
    tracker: Tracker, renders: int, conf: dict[str, Any], *, with_peer: bool = False
) -> dict[str, Any]:
    source = Source(tracker)
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
    text = b"".join(body.inflate()).decode()
    peer = measure_peer(text) if with_peer else {}
    return {
        "rows": tracker.row_count,
        **conf,
        "first_s": round(first_s, 3),
        "median_s": round(statistics.median(seconds), 3),
        "median_cpu_s": round(statistics.median(cpu_s), 3),
        "max_s": round(max(seconds), 3),
        "series": len(re.findall(r"^[^#]", text, re.MULTILINE)),
        "bytes": body.plain_size,
        "gzip_bytes": len(body.gzipped),
        **peer,
    }


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(2_000, 200_000, 1_000_000))
@click.option("--renders", default=10)
@click.option(
    "--peer-rows", default=200_000, help="Measure prometheus_client, with the defaults, up to here."
)
def main(sizes: tuple[int, ...], renders: int, peer_rows: int) -> None:
    gc.freeze()  # as koff monitor does
    gc.set_threshold(200_000, 50, 100)
    figures = []
    for rows in sizes:
        tracker = fill_tracker(rows)
        for conf in CONFS:
            with_peer = conf is CONFS[0] and rows <= peer_rows
            figures.append(measure(tracker, renders, conf, with_peer=with_peer))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
