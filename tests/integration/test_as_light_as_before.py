"""When a fault has ended, `koff monitor` is as light as before it: threads, files, connections and memory.

With `KOFF_FAULT_S=300`, each fault lasts five minutes. `pytest -rP` prints what koff used before, during and
after it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from confluent_kafka.admin import AclOperation, ResourceType

from koff.kafkatest import LocalKafka, wait_until
from koff.records.topics import OFFSETS_TOPIC
from tests.clusters import lend_kafka, log_in
from tests.fault_cluster import FaultCluster, fault_cluster
from tests.integration.test_coordinators import make_token
from tests.kafka_groups import allow, commit, make_lag, revoke, set_password
from tests.koff_process import Monitor, monitoring, set_properties
from tests.token_provider import make_answer, providing_tokens

pytestmark = [pytest.mark.kafka, pytest.mark.thorough, pytest.mark.timeout(1200)]
FAILED_REQUESTS = 3
"""A fault lasts until so many requests for topics were sent: each left clients behind."""
FAULT_S = float(os.environ.get("KOFF_FAULT_S", "0"))
LINES_A_MINUTE = 6
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Weight(NamedTuple):
    """What a process uses."""

    threads: int
    files: int
    sockets: int
    rss_kib: int

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
        pages = int((process / "statm").read_text().split()[1])
        rss_kib = pages * os.sysconf("SC_PAGE_SIZE") // 1024
        return cls(len(list((process / "task").iterdir())), len(files), sockets, rss_kib)

    def is_within(self, before: Weight) -> bool:
        """Whether it is at most a tenth more than before."""
        return all(now <= was * 1.1 for now, was in zip(self, before, strict=True))


class Phase:
    """A part of the life of a process, and the most that it used in it."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._pid = monitor.process.pid
        self.most = Weight(0, 0, 0, 0)
        self._began, self._cpu_s, self._lines = time.monotonic(), self._read_cpu_s(), len(monitor.log)

    def _read_cpu_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND

    @property
    def lasts_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def lines(self) -> int:
        """How many lines koff has logged."""
        return len(self._monitor.log) - self._lines

    def sees(self, condition: Callable[[], object]) -> Callable[[], object]:
        """The condition, with a measurement each time that it is asked."""

        def measure() -> object:
            self.most = Weight._make(map(max, self.most, Weight.measure(self._pid)))
            return condition()

        return measure

    def describe(self, name: str) -> str:
        cpu = (self._read_cpu_s() - self._cpu_s) / self.lasts_s
        threads, files, sockets, rss_kib = self.most
        return (
            f"{name:>7}: {threads:3} threads {files:3} files {sockets:3} sockets {rss_kib / 1024:6.1f} MiB "
            f"{cpu:6.1%} of a core, {self.lines} lines in {self.lasts_s:.0f} s"
        )


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def kafka(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A Kafka that asks clients for their log-in again every few seconds, or for a certificate."""
    trusted = tmp_path_factory.mktemp("authority") / "trusted.pem"
    authority.cert_pem.write_to_path(trusted)
    config = {
        "connections.max.reauth.ms": "5000",
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "ssl.principal.mapping.rules": "RULE:^.*$/admin/",
    }
    with lend_kafka(security=True, config=config) as kafka:
        set_password(kafka, "right")
        yield kafka


@pytest.fixture(scope="module")
def three() -> Iterator[FaultCluster]:
    with fault_cluster() as cluster:
        yield cluster


def count_requests(monitor: Monitor) -> float:
    """How many requests for topics koff has sent."""
    return sum(n for kind, n in monitor.metrics().get("koff_requests_total", {}).items() if "topics" in kind)


def check_weight(
    kafka: LocalKafka,
    bootstrap: str,
    properties: Mapping[str, str],
    fault: Callable[[], AbstractContextManager[None]],
) -> None:
    """Checks that koff recovers after the fault, is as light as before, and logs little meanwhile."""
    topic = make_lag(kafka, committed=1, records=100, replicas=len(kafka.nodes))
    with monitoring(bootstrap, env=set_properties(properties)) as monitor:
        monitor.wait_for_lag(topic, 99)
        before = Phase(monitor)
        long = before.sees(lambda: count_requests(monitor) >= 2 and before.lasts_s >= FAULT_S / 5)
        wait_until(long, timeout_s=FAULT_S + 60, what="two requests for topics", every_s=0.1)
        print(before.describe("before"))

        during = Phase(monitor)
        with fault():
            sent = count_requests(monitor)
            failed = during.sees(
                lambda: count_requests(monitor) >= sent + FAILED_REQUESTS and during.lasts_s >= FAULT_S
            )
            wait_until(failed, timeout_s=FAULT_S + 240, what="failed requests", every_s=0.1)
        print(during.describe("during"))
        assert during.lines <= LINES_A_MINUTE * (1 + during.lasts_s // 60), monitor.text

        commit(kafka, topic, (topic, 0, 10))
        monitor.wait_for_lag(topic, 90)
        recovered = Phase(monitor)
        light = recovered.sees(
            lambda: (
                recovered.lasts_s >= FAULT_S * 0.4
                and Weight.measure(monitor.process.pid).is_within(before.most)
            )
        )
        wait_until(light, timeout_s=120 + FAULT_S, what=f"no more than {before.most}", every_s=0.1)
        print(recovered.describe("after"), Weight.measure(monitor.process.pid))
    kafka.admin.delete_consumer_groups([topic])[topic].result(60)  # the next test logs nothing of it


SCRAM = log_in("admin", "right", mechanism="SCRAM-SHA-256")


def list_refused_s(kafka: LocalKafka) -> list[float]:
    """When Kafka has refused a log-in, by its own clock."""
    (log,) = kafka.folder.rglob("kafka.log")
    times = re.findall(r"^(\S+T\S+),(\d+) .*Failed authentication", log.read_text(errors="replace"), re.M)
    return [datetime.fromisoformat(f"{at}.{ms}").timestamp() for at, ms in times]


@contextmanager
def refusing(kafka: LocalKafka) -> Iterator[None]:
    """Checks that koff paused between two log-ins that were refused. It was a tenth of a second."""
    old = len(list_refused_s(kafka))

    def is_slow() -> bool:
        times = list_refused_s(kafka)[old:]
        return len(times) > 1 and times[-1] - times[-2] > 9

    began = time.monotonic()
    yield
    wait_until(is_slow, timeout_s=120, what="slow attempts")
    attempts = len(list_refused_s(kafka)) - old
    assert attempts <= 5 + (time.monotonic() - began) / 10  # several threads try before the first one knew


def test_a_refused_log_in(kafka: LocalKafka):
    @contextmanager
    def refuse() -> Iterator[None]:
        set_password(kafka, "another")
        try:
            with refusing(kafka):
                yield
        finally:
            set_password(kafka, "right")

    check_weight(kafka, kafka.sasl_bootstrap, SCRAM, refuse)


def test_an_expired_certificate(kafka: LocalKafka, authority: trustme.CA, tmp_path: Path):
    def issue(until: datetime) -> None:
        issued = authority.issue_cert("admin", not_after=until)
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")

    tomorrow = datetime.now(UTC) + timedelta(days=1)

    @contextmanager
    def expire() -> Iterator[None]:
        issue(datetime.now(UTC) - timedelta(hours=1))
        kafka.restart()  # ends all connections
        try:
            with refusing(kafka):
                yield
        finally:
            issue(tomorrow)

    issue(tomorrow)
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(kafka.ca_pem),
        "ssl.certificate.location": str(tmp_path / "cert.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
    }
    check_weight(kafka, kafka.ssl_bootstrap, properties, expire)


def test_rights_that_are_revoked(kafka: LocalKafka):
    rights = (
        ("koff", ResourceType.GROUP, "*", AclOperation.DESCRIBE),
        ("koff", ResourceType.TOPIC, "*", AclOperation.DESCRIBE),
        ("koff", ResourceType.TOPIC, OFFSETS_TOPIC, AclOperation.READ),
    )

    @contextmanager
    def deny() -> Iterator[None]:
        revoke(kafka, *rights)
        try:
            yield
        finally:
            allow(kafka, *rights)

    allow(kafka, *rights)
    check_weight(kafka, kafka.sasl_bootstrap, log_in("koff"), deny)


def test_brokers_that_are_stopped(kafka: LocalKafka):
    @contextmanager
    def stop() -> Iterator[None]:
        kafka.kill()
        try:
            yield
        finally:
            for node in kafka.nodes:
                node.start()
            kafka.wait_until_up()

    check_weight(kafka, kafka.sasl_bootstrap, SCRAM, stop)


def test_brokers_that_hang(kafka: LocalKafka):
    check_weight(kafka, kafka.sasl_bootstrap, SCRAM, kafka.paused)


def test_brokers_that_cannot_be_reached(three: FaultCluster):
    @contextmanager
    def cut() -> Iterator[None]:
        for proxy in three.proxies:
            proxy.cut()
        try:
            yield
        finally:
            for proxy in three.proxies:
                proxy.resume()

    check_weight(three.kafka, three.kafka.proxied_bootstrap, {}, cut)


def test_rolling_restarts(three: FaultCluster):
    @contextmanager
    def restart() -> Iterator[None]:
        for _ in range(5 if FAULT_S else 1):
            for node in three.kafka.nodes:
                node.stop()
                node.start()
                three.restore()
        yield

    check_weight(three.kafka, three.kafka.proxied_bootstrap, {}, restart)


@pytest.mark.parametrize("fails", ["endpoint", "token"])
def test_tokens_that_cannot_be_had_or_are_refused(kafka: LocalKafka, fails: str):
    def make(lives_s: float) -> Callable[[], bytes]:
        return lambda: make_answer(make_token(lives_s=lives_s), life_s=10)

    with providing_tokens() as provider:
        provider.make = make(lives_s=10)

        @contextmanager
        def fail() -> Iterator[None]:
            asked = len(provider.requests)
            if fails == "endpoint":
                provider.status = 500
            else:
                provider.make = make(lives_s=-600)
            try:
                wait_until(lambda: len(provider.requests) > asked, what="a request for a token")
                yield
            finally:
                provider.status, provider.make = 200, make(lives_s=10)

        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            "sasl.oauthbearer.client.id": "koff",
            "sasl.oauthbearer.client.secret": "oidc-secret",
        }
        check_weight(kafka, kafka.sasl_bootstrap, properties, fail)
