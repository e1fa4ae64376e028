"""When a fault has ended, `koff monitor` is as light as before it: threads, files and connections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from koff.kafkatest import LocalKafka, wait_until
from tests.clusters import lend_kafka
from tests.integration.test_against_kafka import commit
from tests.integration.test_broken_clusters import wait_for_lag
from tests.integration.test_coordinators import make_token
from tests.integration.test_rotation import set_password
from tests.kafka_groups import produce
from tests.koff_process import Monitor, monitoring, set_properties
from tests.token_provider import make_answer, providing_tokens

pytestmark = [pytest.mark.kafka, pytest.mark.thorough]
FAILED_REQUESTS = 3
"""A fault lasts until so many requests for topics were sent: each left clients behind."""


class Weight(NamedTuple):
    """What a process uses."""

    threads: int
    files: int
    sockets: int

    @classmethod
    def measure(cls, pid: int) -> Weight:
        """That of a process, now."""
        process = Path(f"/proc/{pid}")
        files = []
        for file in (process / "fd").iterdir():
            try:
                files.append(str(file.readlink()))
            except OSError:  # it was closed meanwhile
                continue
        sockets = sum(file.startswith("socket:") for file in files)
        return cls(len(list((process / "task").iterdir())), len(files), sockets)

    def is_within(self, before: Weight) -> bool:
        """Whether it is at most a tenth more than before."""
        return all(now <= was * 1.1 for now, was in zip(self, before, strict=True))


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A Kafka that asks clients for their log-in again every few seconds."""
    with lend_kafka(security=True, config={"connections.max.reauth.ms": "5000"}) as kafka:
        set_password(kafka, "right")
        yield kafka


def count_requests(monitor: Monitor) -> float:
    """How many requests for topics koff has sent."""
    return sum(n for kind, n in monitor.metrics().get("koff_requests_total", {}).items() if "topics" in kind)


def check_weight(
    kafka: LocalKafka,
    properties: Mapping[str, str],
    fault: Callable[[], AbstractContextManager[None]],
) -> None:
    """Checks that koff recovers after the fault, and is as light as before."""
    topic = kafka.create_topic()
    produce(kafka, topic, 100)
    commit(kafka, topic, (topic, 0, 1))
    with monitoring(kafka.sasl_bootstrap, env=set_properties(properties)) as monitor:
        wait_for_lag(monitor, topic, 99)
        pid, before = monitor.process.pid, Weight(0, 0, 0)

        def is_measured() -> bool:
            nonlocal before
            before = Weight(*map(max, before, Weight.measure(pid)))
            return count_requests(monitor) >= 2

        wait_until(is_measured, what="two requests for topics", every_s=0.1)
        with fault():
            sent = count_requests(monitor)
            wait_until(lambda: count_requests(monitor) >= sent + FAILED_REQUESTS, what="failed requests")
        commit(kafka, topic, (topic, 0, 10))
        wait_for_lag(monitor, topic, 90)
        wait_until(
            lambda: Weight.measure(pid).is_within(before), timeout_s=120, what=f"no more than {before}"
        )
        assert monitor.stop() == 0, monitor.text


SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "admin",
    "sasl.password": "right",
}


def list_refused_s(kafka: LocalKafka) -> list[float]:
    """When Kafka has refused a log-in, by its own clock."""
    assert kafka.folder is not None
    (log,) = kafka.folder.rglob("kafka.log")
    times = re.findall(r"^(\S+T\S+),(\d+) .*Failed authentication", log.read_text(errors="replace"), re.M)
    return [datetime.fromisoformat(f"{at}.{ms}").timestamp() for at, ms in times]


def test_a_refused_log_in(kafka: LocalKafka) -> None:
    def is_slow() -> bool:
        """Whether koff has paused between two attempts. It was a tenth of a second."""
        times = list_refused_s(kafka)
        return len(times) > 1 and times[-1] - times[-2] > 9

    @contextmanager
    def refuse() -> Iterator[None]:
        set_password(kafka, "another")
        try:
            yield
            wait_until(is_slow, what="slow attempts")
            assert len(list_refused_s(kafka)) <= 5  # of several threads, before the first one knew
        finally:
            set_password(kafka, "right")

    check_weight(kafka, SCRAM, refuse)


def test_brokers_that_are_stopped(kafka: LocalKafka) -> None:
    @contextmanager
    def stop() -> Iterator[None]:
        kafka.kill()
        try:
            yield
        finally:
            for node in kafka.nodes:
                node.start()
            kafka.wait_until_up()

    check_weight(kafka, SCRAM, stop)


def test_brokers_that_hang(kafka: LocalKafka) -> None:
    check_weight(kafka, SCRAM, kafka.paused)


def test_a_token_endpoint_that_fails(kafka: LocalKafka) -> None:
    with providing_tokens() as provider:
        provider.make = lambda: make_answer(make_token(lives_s=10), life_s=10)

        @contextmanager
        def fail() -> Iterator[None]:
            provider.status = 500
            asked = len(provider.requests)
            try:
                wait_until(lambda: len(provider.requests) > asked, what="a request for a token")
                yield
            finally:
                provider.status = 200

        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            "sasl.oauthbearer.client.id": "koff",
            "sasl.oauthbearer.client.secret": "oidc-secret",
        }
        check_weight(kafka, properties, fail)
