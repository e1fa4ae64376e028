"""koff's metrics about itself, through prometheus_client: the reader, the build and the process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koff.serve.families import BY_NAME, Family
from koff.serve.view import ClusterView, MonitorStats
from koff.version import VERSION

Encode = Callable[[CollectorRegistry], bytes]
"""An encoder of prometheus_client: it renders all metrics of a registry."""

Numbers = Mapping[tuple[str, ...], float | None]
"""The numbers of a family by the values of their labels. None: unknown."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What was rendered of a view: how long that took, how many series, and how many are left out."""

    seconds: float = 0.0
    series: int = 0
    left_out: int = 0


class OwnMetrics:
    """Renders koff's own metrics of a view, and the metrics of the process. Not thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._collector = _ViewCollector()
        self._registry.register(self._collector)

    def render(self, view: ClusterView, encode: Encode, rendered: Rendered) -> bytes:
        """The metrics, in the format of `encode`."""
        self._collector.view, self._collector.rendered = view, rendered
        try:
            return encode(self._registry)
        finally:
            self._collector.view = None  # a view is large


class _ViewCollector(Collector):
    """Collects the statistics of `view`. Without one, there are no metrics."""

    def __init__(self) -> None:
        self.view: ClusterView | None = None
        self.rendered = Rendered()

    def collect(self) -> Iterator[Metric]:
        """The metric families. A number that is unknown has no series."""
        if self.view is None:
            return
        if self.view.cluster is not None:
            for name, numbers in list_numbers(self.view.stats, self.rendered).items():
                yield _build_metric(BY_NAME[name], numbers, (self.view.cluster,))
        build: Numbers = {(VERSION, platform.python_version()): 1}
        yield _build_metric(BY_NAME["koff_build_info"], build)


def _build_metric(family: Family, numbers: Numbers, cluster: tuple[str, ...] = ()) -> Metric:
    """The series of a family by the values of their labels; `cluster` is the value of the first, if any."""
    labels = [*(("cluster",) if cluster else ()), *family.labels]
    # A metric has its name without "_total", and its samples have the whole name.
    metric = Metric(family.name.removesuffix("_total"), family.text, family.kind)
    for values, number in numbers.items():
        if number is not None:
            metric.add_sample(family.name, dict(zip(labels, [*cluster, *values], strict=True)), number)
    return metric


def list_numbers(stats: MonitorStats, rendered: Rendered) -> dict[str, Numbers]:
    """By family, the numbers about the monitor by the values of their labels. None: unknown."""
    return {
        "koff_up": {(): int(stats.up)},
        "koff_source_info": {(stats.source,): 1},
        "koff_reader_records_total": {(kind,): n for kind, n in sorted(stats.records.items())},
        "koff_reader_undecodable_total": {(): stats.undecodable},
        "koff_inputs_skipped_total": {(kind,): n for kind, n in sorted(stats.skipped.items())},
        "koff_reader_behind_records": {(): stats.behind},
        "koff_reader_partitions_not_current": {(): stats.not_current},
        "koff_reader_held_back_records": {(): stats.held_back_records},
        "koff_reader_held_back_seconds": {(): stats.held_back_s},
        "koff_reader_backfill_remaining_records": {(): stats.backfill_remaining},
        "koff_input_age_seconds": {(name,): age_s for name, age_s in sorted(stats.input_ages_s.items())},
        "koff_requests_total": {(kind,): n for kind, n in sorted(stats.requests.items())},
        "koff_render_seconds": {(): rendered.seconds},
        "koff_series": {(): rendered.series},
        "koff_series_left_out": {(): rendered.left_out},
    }
