"""The metrics of koff monitor as OTLP: the same families under the same names.

OpenTelemetry has no names of its own for the lag of consumer groups. Its names for attributes are taken:
`messaging.consumer.group.name`, `messaging.destination.name` and `messaging.destination.partition.id`.
"""

import logging
import re
import socket
import time

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
_POINTS_AT_ONCE, _FAMILIES_AT_ONCE = 20_000, 20
_ATTRIBUTES = {
    "group": "messaging.consumer.group.name",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
}
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}


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
        ).decode()
        started = re.search(r"^process_start_time_seconds (\S+)$", text, re.MULTILINE)
        started_ns = round(float(started[1]) * 1e9) if started else 0
        waiting, count, now_ns = list[Metric](), 0, time.time_ns()
        # A few families at a time: all points of a large cluster would take much memory.
        for family in text_string_to_metric_families(text):
            if family.samples:
                waiting.append(convert(family, started_ns, now_ns))
                count += len(family.samples)
            if len(family.samples) >= _POINTS_AT_ONCE or len(waiting) >= _FAMILIES_AT_ONCE:
                self._send(waiting)
                waiting.clear()
        self._send(waiting)
        return count

    def _send(self, metrics: list[Metric]) -> None:
        scope = ScopeMetrics(InstrumentationScope("koff", VERSION), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        self._errors.text = ""
        if self._exporter.export(data, self._timeout_s * 1000) is not MetricExportResult.SUCCESS:
            why = self._errors.text or "no reason given"
            raise KoffError(f"the receiver of OTLP did not take the metrics: {why}")


class _LastError(logging.Handler):
    """Keeps why the exporter failed: it logs that, and returns no reason."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def convert(family: Family, started_ns: int, now_ns: int) -> Metric:
    """The family as a metric of OTLP: a counter since the start of koff monitor, or a gauge."""
    is_counter = family.type == "counter"
    points = [
        NumberDataPoint(
            {_ATTRIBUTES.get(name, name): value for name, value in sample.labels.items()},
            started_ns if is_counter else 0,
            now_ns,
            sample.value,
        )
        for sample in family.samples
    ]
    name = family.samples[0].name
    data = Sum(points, AggregationTemporality.CUMULATIVE, True) if is_counter else Gauge(points)
    unit = _UNITS.get(name.removesuffix("_total").rpartition("_")[2], "")
    return Metric(name, family.documentation, unit, data)
