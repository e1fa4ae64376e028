"""koff's metrics about itself, through prometheus_client: the reader, the build and the process."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koff.serve.view import View
from koff.version import VERSION


class OwnCollector(Collector):
    """Collects the statistics of the view at each scrape."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """The metric families. A gauge whose value is unknown has no series."""
        cluster, stats = self._view.cluster, self._view.reader_stats()
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
        # Gauges. None is an unknown value.
        for name, text, value in (
            ("koff_up", "1 if the cluster responds and lag is fresh, else 0.", int(stats.up)),
            (
                "koff_reader_behind",
                "Offsets from the reader's position to the last stable offset, summed over all partitions.",
                stats.behind,
            ),
            (
                "koff_reader_held_back_records",
                "Offsets of the offsets topic behind open transactions.",
                stats.held_back_records,
            ),
            (
                "koff_reader_held_back_seconds",
                "Age of the oldest record behind an open transaction.",
                stats.held_back_s,
            ),
            (
                "koff_reader_backfill_remaining_records",
                "Offsets that the backfill has not read yet; until then some commit times are unknown.",
                stats.backfill_remaining,
            ),
            (
                "koff_end_offsets_age_seconds",
                "Seconds since the end offsets were sampled; lag is withheld after five intervals.",
                stats.end_offsets_age_s,
            ),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["cluster"])
            if value is not None:
                gauge.add_metric([cluster], value)
            yield gauge
        build = GaugeMetricFamily(
            "koff_build_info", "Versions of koff and of Python.", labels=["version", "python"]
        )
        build.add_metric([VERSION, platform.python_version()], 1)
        yield build


def build_own_registry(view: View) -> CollectorRegistry:
    """A registry of koff's own metrics and of the metrics of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(OwnCollector(view))
    return registry
