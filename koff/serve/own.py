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
        behind = GaugeMetricFamily(
            "koff_reader_behind",
            "Last stable offset less position, over all partitions read.",
            labels=["cluster"],
        )
        if stats.behind is not None:
            behind.add_metric([cluster], stats.behind)
        yield behind
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
