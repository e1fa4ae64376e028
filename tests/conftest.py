"""What all tests share: a real Apache Kafka for those that need one."""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import hypothesis
import pytest
import structlog
from xdist.remote import Producer

from koff.kafkatest import KafkaCluster, LocalKafka
from tests.clusters import CLUSTERS, lend_kafka
from tests.distributions import Distributions, build_distributions
from tests.left_behind import LeftBehind
from tests.sharing import Scheduling, folder_order
from tests.used_resources import expect_nothing_left

# A shell's background job ignores SIGINT, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis's limits of time for an example fail on a busy machine.
hypothesis.settings.register_profile(
    "koff", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("koff")

_NEED_KAFKA = {"kafka", "more_kafka"}
_ON_REQUEST = {"benches", "long", "thorough", "versions"}
"""Markers of tests that run only when `-m` names the marker. Each has a target of the Makefile."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-cases", type=int, help="How many mutated records Kafka and koff decode (20,000)."
    )


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what uses a Kafka fixture, so that `-m "not kafka"` cannot miss one. Orders a worker's tests."""
    left_out = {marker for marker in _ON_REQUEST if marker not in config.option.markexpr}
    config.hook.pytest_deselected(items=[item for item in items if left_out & _names(item)])
    items[:] = [item for item in items if not left_out & _names(item)]
    for item in items:
        if _NEED_KAFKA.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
    if hasattr(config, "workerinput"):
        items.sort(key=folder_order)


def _names(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """With `-n 4`, four workers share the tests. Each has a cluster of its own."""
    config.option.loadscopereorder = False  # the tests are in order
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Wheel and sdist of this source tree."""
    return build_distributions(tmp_path_factory.mktemp("dist"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the log of each broker that a test has just now."""
    report = yield
    if report.failed:
        for node in (node for kafka in CLUSTERS.lent for node in kafka.nodes):
            report.sections.append(
                (f"Kafka at {node.bootstrap}", node.tail() if node.running else node.describe_end())
            )
    return report


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeftBehind())


def pytest_unconfigure() -> None:
    CLUSTERS.stop()


@pytest.fixture(autouse=True)
def _reset_log() -> Iterator[None]:
    """A command that runs in a test sets the log of the whole process: that ends with the test."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Threads, open files and connections are back to what they were, when all is closed."""
    with expect_nothing_left():
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """The session's cluster, shared by all tests: use topics and groups of your own.

    One local broker, or the cluster that `KOFF_TEST_BROKERS` names. Who stops brokers, counts all groups, or
    needs security or configuration, takes `more_kafka`.
    """
    existing = os.environ.get("KOFF_TEST_BROKERS")
    if existing:
        yield KafkaCluster(existing)
        return
    with lend_kafka() as local:
        yield local


@pytest.fixture
def more_kafka() -> Iterator[Callable[..., LocalKafka]]:
    """Lends clusters for the test, with the options of `lend_kafka`."""
    with ExitStack() as lent:
        yield lambda **options: lent.enter_context(lend_kafka(**options))


@pytest.fixture
def make_topic(kafka: KafkaCluster) -> Callable[..., str]:
    """Makes a topic in the session's cluster: `make_topic(name=None, partitions=1)` gives its name."""
    return kafka.create_topic
