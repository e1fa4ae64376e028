"""`koff monitor --state-dir`: the next process goes on where the one before was, however that one ended."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from koff.kafkatest import LocalKafka, wait_until
from tests.clusters import lend_kafka
from tests.integration.test_start import ASKED, COMMITTED, wait_for_backfill
from tests.kafka_groups import commit
from tests.koff_process import Monitor, monitoring, patch_koff, run_koff

pytestmark = pytest.mark.kafka
RESUMED, SEEDED = "partitions start: resume", "partitions start: seed"


@pytest.fixture(scope="module")
def groups() -> Iterator[LocalKafka]:
    """A Kafka whose groups have committed."""
    with lend_kafka() as kafka:
        topic = kafka.create_topic("orders")
        for number in range(30):
            commit(kafka, f"g{number}", (topic, 0, number))
        yield kafka


@pytest.fixture
def saving_often(tmp_path_factory) -> Mapping[str, str]:
    """An environment in which koff saves five times a second."""
    code = "import koff.monitor.duties.savings\nkoff.monitor.duties.savings.INTERVAL_S = 0.2\n"
    env = patch_koff(tmp_path_factory.mktemp("saving"), code)
    return env | {"KOFF_MONITOR_LOG_LEVEL": "debug"}


def begin(kafka: LocalKafka, folder: Path) -> None:
    """Leaves the state of all groups in that folder."""
    with monitoring(kafka.bootstrap, "--state-dir", str(folder)) as monitor:
        monitor.wait_until_ready()
        wait_for_backfill(monitor)
        assert {line["why"] for line in monitor.events(SEEDED)} == {"nothing was saved"}


def wait_until_saved(monitor: Monitor) -> None:
    """Returns when all that is known by now has been saved."""

    def rounds() -> int:
        """Each writes the index: of partitions that have not changed."""
        return sum(line["what"] == "SaveIndex" for line in monitor.events("carried out"))

    before = rounds()
    wait_until(lambda: rounds() > before + 1, what="two savings")


def resumed(monitor: Monitor) -> None:
    assert len(monitor.events(RESUMED)) == 1, monitor.text
    assert not monitor.events(ASKED)
    assert not monitor.events("backfilled")


def records_read(monitor: Monitor) -> float:
    return sum(monitor.metrics().get("koff_reader_records_total", {}).values())


def test_after_a_stop_it_goes_on_without_reading_anything_again(groups, tmp_path):
    before = {(f"g{n}", "orders", 0): n for n in range(30)}
    begin(groups, tmp_path)
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path)) as monitor:
        monitor.wait_until_ready()
        resumed(monitor)
        assert monitor.rows(COMMITTED).items() >= before.items()
        assert records_read(monitor) == 0
        commit(groups, "g3", ("orders", 0, 4))
        wait_until(lambda: monitor.rows(COMMITTED)["g3", "orders", 0] == 4, what="the commit")
    commit(groups, "g3", ("orders", 0, 3))


def test_after_kill_9_what_came_since_is_seen_and_what_went_is_gone(groups, tmp_path, saving_often):
    for name in ("stays", "commits", "goes"):
        commit(groups, name, ("orders", 0, 1))
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path), env=saving_often) as monitor:
        monitor.wait_until_ready()
        wait_for_backfill(monitor)
        wait_until_saved(monitor)
        commit(groups, "commits", ("orders", 0, 2))
        monitor.process.kill()
        monitor.process.wait(60)
    commit(groups, "commits", ("orders", 0, 3))
    commit(groups, "is-new", ("orders", 0, 1))
    groups.admin.delete_consumer_groups(["goes"])["goes"].result(60)
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path)) as monitor:
        monitor.wait_until_ready()
        assert len(monitor.events(RESUMED)) == 1, monitor.text
        found = {at[0]: offset for at, offset in monitor.rows(COMMITTED).items()}
        assert (found["stays"], found["commits"], found["is-new"]) == (1, 3, 1)
        assert "goes" not in found
        assert records_read(monitor) < 10


def test_resuming_without_a_folder_is_refused():
    result = run_koff("monitor", "--brokers", "localhost:1", "--start", "resume")
    assert result.returncode == 2
    assert "--state-dir" in result.stderr
