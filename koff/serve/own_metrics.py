"""koff's metrics about itself, through prometheus_client: the reader, the build and the process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koff.serve.events.webhook import WebhookCounts
from koff.serve.exposition import SeriesCount
from koff.serve.families import BY_NAME, Family
from koff.version import VERSION
from koff.view.cluster_view import ClusterView, MonitorStats, PipelineStats, StoredTable

Encode = Callable[[CollectorRegistry], bytes]
"""An encoder of prometheus_client: it renders all metrics of a registry."""

Numbers = Mapping[tuple[str, ...], float | None]
"""The numbers of a family by the values of their labels. None: unknown."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """How long it took to render, and the series of each cluster. And what webhooks did, and the tables."""

    seconds: float = 0.0
    counts: Mapping[str, SeriesCount] = field(default_factory=dict)
    webhooks: WebhookCounts = field(default_factory=WebhookCounts)
    tables: Mapping[str, StoredTable] = field(default_factory=dict)


class OwnMetrics:
    """Renders koff's own metrics of views, and the metrics of the process. Not thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._collector = _ViewCollector()
        self._registry.register(self._collector)

    def render(self, views: Sequence[ClusterView], encode: Encode, rendered: Rendered) -> bytes:
        """The metrics, in the format of `encode`."""
        self._collector.views, self._collector.rendered = views, rendered
        try:
            return encode(self._registry)
        finally:
            self._collector.views = None  # a view is large


class _ViewCollector(Collector):
    """Collects the statistics of `views`. Without them, there are no metrics."""

    def __init__(self) -> None:
        self.views: Sequence[ClusterView] | None = None
        self.rendered = Rendered()

    def collect(self) -> Iterator[Metric]:
        """The metric families. A number that is unknown has no series."""
        if self.views is None:
            return
        metrics: dict[str, Metric] = {}
        for view in self.views:
            if view.cluster is not None:
                count = self.rendered.counts.get(view.cluster, SeriesCount(0, 0))
                for name, numbers in list_numbers(view.stats, count).items():
                    _add_samples(metrics, BY_NAME[name], numbers, {"cluster": view.cluster, **view.labels})
        for name, numbers in list_process_numbers(self.rendered).items():
            _add_samples(metrics, BY_NAME[name], numbers, {})
        yield from metrics.values()


def _add_samples(
    metrics: dict[str, Metric], family: Family, numbers: Numbers, labels: Mapping[str, str]
) -> None:
    """Adds the series of a family, with `labels` before the family's own."""
    if family.name.startswith("koff_pipeline_") and not any(n is not None for n in numbers.values()):
        return  # of the monitor: it has no pipeline
    # A metric has its name without "_total", and its samples have the whole name.
    metric = metrics.setdefault(
        family.name, Metric(family.name.removesuffix("_total"), family.text, family.kind)
    )
    for values, number in numbers.items():
        if number is not None:
            metric.add_sample(
                family.name, {**labels, **dict(zip(family.labels, values, strict=True))}, number
            )


def list_numbers(stats: MonitorStats, count: SeriesCount) -> dict[str, Numbers]:
    """By family, the numbers about one cluster's monitor by the values of their labels. None: unknown."""
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
        "koff_series": {(): count.series},
        "koff_series_left_out": {(): count.left_out},
        **list_pipeline_numbers(stats.pipeline),
    }


_PIPELINE = (
    "stream_up",
    "batches_total",
    "records_total",
    "failures_total",
    "last_batch_timestamp_seconds",
    "last_batch_duration_seconds",
)


def list_pipeline_numbers(stats: PipelineStats | None) -> dict[str, Numbers]:
    """The same about one stream of the pipeline. The monitor has no such numbers."""
    numbers = (
        (None,) * 6
        if stats is None
        else (
            int(stats.running),
            stats.batches,
            stats.records,
            stats.failures,
            stats.last_batch_s,
            stats.last_batch_took_s,
        )
    )
    return {f"koff_pipeline_{name}": {(): number} for name, number in zip(_PIPELINE, numbers, strict=True)}


def list_process_numbers(rendered: Rendered) -> dict[str, Numbers]:
    """The same about the process."""
    return {
        "koff_render_seconds": {(): rendered.seconds},
        "koff_webhook_requests_total": {(result,): n for result, n in rendered.webhooks.requests.items()},
        "koff_webhook_events_dropped_total": {(): rendered.webhooks.dropped},
        "koff_pipeline_table_files": {(name,): table.files for name, table in rendered.tables.items()},
        "koff_pipeline_table_bytes": {(name,): table.size_bytes for name, table in rendered.tables.items()},
        "koff_build_info": {(VERSION, platform.python_version()): 1},
    }
