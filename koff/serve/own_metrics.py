"""koff's metrics about itself, through prometheus_client: the reader's, the build's and the process's."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koff.serve.view import View
from koff.version import VERSION


class OwnCollector(Collector):
    """Asks the view at each scrape."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """The families."""
        cluster, stats = self._view.cluster, self._view.reader_stats()
        records = CounterMetricFamily(
            "koff_reader_records", "Records read, by record name.", labels=["cluster", "type"]
        )
        for kind, count in sorted(stats.records.items()):
            records.add_metric([cluster, kind], count)
        yield records
        undecodable = CounterMetricFamily(
            "koff_reader_undecodable",
            "Records that did not decode (koff printer shows them).",
            labels=["cluster"],
        )
        undecodable.add_metric([cluster], stats.undecodable)
        yield undecodable
        for name, text, value in (
            ("koff_up", "1 when the cluster answers and lag can be believed, else 0.", int(stats.up)),
            (
                "koff_reader_behind",
                "Last stable offset less position, over all partitions read.",
                stats.behind,
            ),
            (
                "koff_reader_held_back_records",
                "High watermark less last stable offset of the offsets topic: open transactions.",
                stats.held_back_records,
            ),
            (
                "koff_reader_held_back_seconds",
                "Age of the oldest record that is held back.",
                stats.held_back_s,
            ),
            (
                "koff_reader_backfill_remaining_records",
                "Offsets of history yet to be read after a start by snapshot: until then no commit times.",
                stats.backfill_remaining,
            ),
            (
                "koff_end_offsets_age_seconds",
                "Time since the end offsets were sampled; after five intervals lag is withheld.",
                stats.end_offsets_age_s,
            ),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["cluster"])
            if value is not None:
                gauge.add_metric([cluster], value)
            yield gauge
        build = GaugeMetricFamily("koff_build_info", "What is running.", labels=["version", "python"])
        build.add_metric([VERSION, platform.python_version()], 1)
        yield build


def own_registry(view: View) -> CollectorRegistry:
    """A registry of these and of the process's metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(OwnCollector(view))
    return registry
