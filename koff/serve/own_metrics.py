"""koff's metrics about itself, through prometheus_client: the reader, the build and the process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koff.serve.view import ClusterView, MonitorStats
from koff.version import VERSION

Encode = Callable[[CollectorRegistry], bytes]
"""An encoder of prometheus_client: it renders all metrics of a registry."""


class OwnMetrics:
    """Renders koff's own metrics of a view, and the metrics of the process. Not thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._collector = _ViewCollector()
        self._registry.register(self._collector)

    def render(self, view: ClusterView, encode: Encode) -> bytes:
        """The metrics, in the format of `encode`."""
        self._collector.view = view
        try:
            return encode(self._registry)
        finally:
            self._collector.view = None  # a view is large


class _ViewCollector(Collector):
    """Collects the statistics of `view`. Without one, there are no metrics."""

    def __init__(self) -> None:
        self.view: ClusterView | None = None

    def collect(self) -> Iterator[Metric]:
        """The metric families. A gauge whose value is unknown has no series."""
        if self.view is None:
            return
        cluster, stats = self.view.cluster, self.view.stats
        if cluster is not None:
            yield from _build_counters(cluster, stats)
            yield from _build_gauges(cluster, stats)
            yield _build_source(cluster, stats)
        build = GaugeMetricFamily(
            "koff_build_info", "Versions of koff and of Python.", labels=["version", "python"]
        )
        build.add_metric([VERSION, platform.python_version()], 1)
        yield build


def _build_source(cluster: str, stats: MonitorStats) -> Metric:
    source = GaugeMetricFamily(
        "koff_source_info",
        "1 for where commits come from: the log (the offsets topic), or requests to the coordinators, "
        "which know no commit times: rates are then absent, and most statuses UNKNOWN.",
        labels=["cluster", "source"],
    )
    source.add_metric([cluster, stats.source], 1)
    return source


def _build_counters(cluster: str, stats: MonitorStats) -> Iterator[Metric]:
    # prometheus_client adds "_total" to the names of counters.
    records = CounterMetricFamily(
        "koff_reader_records", "Records read, by record type.", labels=["cluster", "type"]
    )
    for kind, count in sorted(stats.records.items()):
        records.add_metric([cluster, kind], count)
    yield records
    undecodable = CounterMetricFamily(
        "koff_reader_undecodable",
        "Records that could not be decoded; koff printer shows them.",
        labels=["cluster"],
    )
    undecodable.add_metric([cluster], stats.undecodable)
    yield undecodable
    skipped = CounterMetricFamily(
        "koff_inputs_skipped",
        "Responses, records and parts of records that koff could not use, by kind.",
        labels=["cluster", "kind"],
    )
    for kind, count in sorted(stats.skipped.items()):
        skipped.add_metric([cluster, kind], count)
    yield skipped


def _build_gauges(cluster: str, stats: MonitorStats) -> Iterator[Metric]:
    for name, text, value in (  # None: an unknown value
        (
            "koff_up",
            "1 if koff is ready (/readyz): the log was read, and not every lag is withheld; else 0.",
            int(stats.up),
        ),
        (
            "koff_reader_behind",
            "Offsets from the reader's position to the last stable offset, summed over all partitions.",
            stats.behind,
        ),
        (
            "koff_reader_partitions_not_current",
            "Partitions of the internal topics that are not current: groups in them are withheld or missing.",
            stats.not_current,
        ),
        (
            "koff_reader_held_back_records",
            "Offsets of the offsets topic behind open transactions.",
            stats.held_back_records,
        ),
        (
            "koff_reader_held_back_seconds",
            "How long, at most, commits behind open transactions have been invisible.",
            stats.held_back_s,
        ),
        (
            "koff_reader_backfill_remaining_records",
            "Offsets that the backfill has not read yet; until then some commit times are unknown.",
            stats.backfill_remaining,
        ),
        (
            "koff_end_offsets_age_seconds",
            "Age of the oldest end offset that is in use; a lag whose end offset is too old is withheld.",
            stats.end_offsets_age_s,
        ),
    ):
        gauge = GaugeMetricFamily(name, text, labels=["cluster"])
        if value is not None:
            gauge.add_metric([cluster], value)
        yield gauge
