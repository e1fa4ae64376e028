"""`koff push`: what a receiver of OTLP gets is what /metrics has."""

import gzip
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.request import urlopen

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics
from prometheus_client.parser import text_string_to_metric_families

from koff.cli.monitor_client import MonitorClient
from koff.cli.otlp import Pusher
from koff.errors import KoffError
from koff.kafkatest import reap, spawn
from tests.http_receiver import HttpReceiver, run_receiver, send
from tests.koff_process import KOFF, run_koff
from tests.unit.serve.page.moving import build_view, serving
from tests.unit.serve.views import Source

pytestmark = pytest.mark.timeout(300)
GROUP, TOPIC, PARTITION = (
    "messaging.consumer.group.name",
    "messaging.destination.name",
    "messaging.destination.partition.id",
)


class MetricsReceiver(HttpReceiver):
    """Takes metrics, or responds to each request with `status`."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoint = f"{self.address}/v1/metrics"
        self.status = 200
        self.received: list[ResourceMetrics] = []

    def find(self, name: str) -> Metric:
        scopes = [scope for resource in self.received for scope in resource.scope_metrics]
        (found,) = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        return found

    def respond(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if request.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.status == 200:
            self.received += ExportMetricsServiceRequest.FromString(body).resource_metrics
        send(request, self.status)


@pytest.fixture
def receiver() -> Iterator[MetricsReceiver]:
    with run_receiver(MetricsReceiver()) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Source(build_view({"is-late": 900, "keeps-up": 0}, "prod"))) as served:
        yield served


def test_a_receiver_gets_every_series_with_its_labels_and_its_kind(url: str, receiver: MetricsReceiver):
    points = Pusher(MonitorClient(url), receiver.endpoint, 30.0).push(None)
    with urlopen(f"{url}/metrics") as response:
        text = response.read().decode()
    assert points == sum(len(family.samples) for family in text_string_to_metric_families(text))
    lag = receiver.find("koff_group_lag")
    assert lag.description.startswith("End offset minus")
    lags = {
        tuple(sorted((each.key, each.value.string_value) for each in point.attributes)): point
        for point in lag.gauge.data_points
    }
    late = tuple(sorted({"cluster": "prod", GROUP: "is-late", TOPIC: "is-late", PARTITION: "0"}.items()))
    assert (lags[late].as_double or lags[late].as_int) == 900
    assert receiver.find("koff_group_lag_seconds").unit == "s"
    counter = receiver.find("koff_topic_messages_total").sum
    assert counter.is_monotonic
    assert counter.aggregation_temporality == 2  # cumulative
    assert 0 < counter.data_points[0].start_time_unix_nano < counter.data_points[0].time_unix_nano
    about = {each.key: each.value.string_value for each in receiver.received[-1].resource.attributes}
    assert about["service.name"] == "koff"
    assert about["service.instance.id"].endswith(url)


def test_a_receiver_that_refuses_is_named_with_its_reason(url: str, receiver: MetricsReceiver):
    receiver.status = 400
    with pytest.raises(KoffError, match=r"did not take the metrics: .*400"):
        Pusher(MonitorClient(url), receiver.endpoint, 5.0).push(None)


def test_one_push_says_whether_it_has_worked(url: str, receiver: MetricsReceiver):
    done = run_koff("push", "--once", "--url", url, "--endpoint", receiver.endpoint)
    assert (done.returncode, done.stdout) == (0, "")
    assert receiver.received
    failed = run_koff("push", "--once", "--url", "http://127.0.0.1:9", "--endpoint", receiver.endpoint)
    assert failed.returncode == 1
    assert "koff monitor at http://127.0.0.1:9 does not respond" in failed.stderr


def test_a_receiver_that_was_down_gets_the_numbers_when_it_is_back(url: str, receiver: MetricsReceiver):
    command = [*KOFF, "push", "--interval", "1", "--url", url, "--endpoint", receiver.endpoint]
    process = spawn(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        for status, said in ((503, b"metrics not sent"), (200, b"metrics sent"), (503, b"metrics not sent")):
            receiver.status = status
            assert any(said in line for line in process.stderr)  # reads up to that line
    finally:
        process.terminate()
        reap(process)
    assert receiver.received
