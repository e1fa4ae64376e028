"""The metrics of koff monitor as OTLP: the same families under the same names.

OpenTelemetry has no names of its own for the lag of consumer groups. Its names for attributes are taken:
`messaging.consumer.group.name`, `messaging.destination.name` and `messaging.destination.partition.id`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable, Iterator

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from koff.cli.monitor_client import MonitorClient
from koff.errors import KoffError
from koff.version import VERSION

_MOST_BYTES = 1 << 30
_POINTS_AT_ONCE = 20_000
_ATTRIBUTES = {
    "group": "messaging.consumer.group.name",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
}
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
_STARTED = "process_start_time_seconds"


class Pusher:
    """Reads the metrics of koff monitor and sends them. Not thread-safe."""

    def __init__(self, client: MonitorClient, endpoint: str | None, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._exporter = OTLPMetricExporter(
            endpoint, timeout=timeout_s, max_export_batch_size=_POINTS_AT_ONCE
        )
        attributes = {"service.name": "koff", "service.version": VERSION}
        instance = {"service.instance.id": f"{socket.gethostname()} {client.url}"}
        self._resource = Resource.create({**attributes, **instance})  # the variables of OpenTelemetry win
        self._errors = _LastError()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._errors)
        logger.propagate = False

    def push(self, authorization: str | None) -> int:
        """Sends the numbers of now; returns how many. Raises `KoffError` if that fails."""
        text = self._client.get(
            "/metrics", accept="text/plain", authorization=authorization, most_bytes=_MOST_BYTES
        )
        families = list(text_string_to_metric_families(text.decode()))
        metrics = list(convert(families, time.time_ns()))
        scope = ScopeMetrics(InstrumentationScope("koff", VERSION), metrics, "")
        self._errors.text = ""
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        if self._exporter.export(data, self._timeout_s * 1000) is not MetricExportResult.SUCCESS:
            raise KoffError(
                f"the receiver of OTLP did not take them: {self._errors.text or 'no reason given'}"
            )
        return sum(len(metric.data.data_points) for metric in metrics)


class _LastError(logging.Handler):
    """Keeps why the exporter failed: it logs that, and returns no reason."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def convert(families: Iterable[Family], now_ns: int) -> Iterator[Metric]:
    """The families as metrics of OTLP: counters since the start of koff monitor, and gauges."""
    families = list(families)
    started_s = next((family.samples[0].value for family in families if family.name == _STARTED), 0.0)
    for family in families:
        is_counter = family.type == "counter"
        start_ns = round(started_s * 1e9) if is_counter else 0
        points = [
            NumberDataPoint(
                {_ATTRIBUTES.get(name, name): value for name, value in sample.labels.items()},
                start_ns,
                now_ns,
                sample.value,
            )
            for sample in family.samples
        ]
        if points:
            name = family.samples[0].name
            data = Sum(points, AggregationTemporality.CUMULATIVE, True) if is_counter else Gauge(points)
            yield Metric(name, family.documentation, _find_unit(name), data)


def _find_unit(name: str) -> str:
    last = name.removesuffix("_total").rpartition("_")[2]
    return _UNITS.get(last, "")
