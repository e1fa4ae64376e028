"""`koff monitor --state-dir`: the next process goes on where the one before was, however that one ended."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from koff.kafkatest import LocalKafka, wait_until
from koff.records.placement import group_partition
from tests.clusters import lend_kafka
from tests.integration.test_start import (
    ASKED,
    COMMITTED,
    OFTEN,
    completeness,
    wait_for_backfill,
)
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
    code = "import koff.monitor.savings\nkoff.monitor.savings.INTERVAL_S = 0.2\n"
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
        return sum(line["what"] == "SaveIndex" for line in monitor.events("saved"))

    before = rounds()
    wait_until(lambda: rounds() > before + 1, what="two savings")


def resumed(monitor: Monitor) -> None:
    assert len(monitor.events(RESUMED)) == 1, monitor.text
    assert not monitor.events(ASKED)
    assert not monitor.events("backfilled")


def records_read(monitor: Monitor) -> float:
    return sum(monitor.metrics().get("koff_reader_records_total", {}).values())


def partition_file(folder: Path, group: str) -> Path:
    return folder / f"partition-{group_partition(group, 50):05d}"


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


def test_a_folder_that_is_removed_is_made_again_with_all_state_and_stays_locked(
    groups, tmp_path, saving_often
):
    folder = tmp_path / "state"

    def list_files() -> set[str]:
        return {path.name for path in folder.glob("*") if path.suffix != ".new"}

    with monitoring(groups.bootstrap, "--state-dir", str(folder), env=saving_often) as monitor:
        monitor.wait_until_ready()
        wait_for_backfill(monitor)
        wait_until_saved(monitor)
        before = list_files()
        assert len(before) > 30
        folder.rename(tmp_path / "removed")
        wait_until(lambda: list_files() >= before, what="all files again")
        assert len(monitor.events("the folder for state was removed: koff has made it again")) == 1
        second = run_koff("monitor", "--brokers", groups.bootstrap, "--state-dir", str(folder))
        assert (second.returncode, "is in use by another koff" in second.stderr) == (2, True), second.stderr
    with monitoring(groups.bootstrap, "--state-dir", str(folder)) as monitor:
        monitor.wait_until_ready()
        resumed(monitor)


def test_windows_and_the_history_of_ends_are_known_at_once(groups, tmp_path):
    topic = groups.create_topic()
    producer = groups.producer()
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path)) as monitor:
        monitor.wait_until_ready()
        began, produced_s = time.monotonic(), list[float]()
        for number in range(OFTEN):
            produced_s.append(time.monotonic())
            producer.produce(topic, b"")
            producer.flush(60)
            commit(groups, "steady", (topic, 0, min(number, 3)))
            commits = number + 1
            wait_until(
                partial(lambda n: time.monotonic() - began > n * 1.1, commits), timeout_s=5, what="a second"
            )
        wait_for_backfill(monitor)
        labels = (groups.cluster_id, "steady", topic, "0")
        wait_until(lambda: completeness(monitor, "steady") == 1, what="ten commits")
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path)) as monitor:
        monitor.wait_until_ready()
        resumed(monitor)
        assert completeness(monitor, "steady") == 1
        # The age of the oldest record that is not committed. koff knows it from two samples of the end.
        youngest_s = time.monotonic() - produced_s[4]
        lag_s = monitor.metrics()["koff_group_lag_seconds"][labels]
        assert youngest_s - 4 < lag_s < time.monotonic() - produced_s[3] + 4


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


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(groups, tmp_path):
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "below")
    result = run_koff("monitor", "--brokers", groups.bootstrap, "--state-dir", below)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert f"cannot use --state-dir {below}" in line


def test_resuming_without_a_folder_is_refused():
    result = run_koff("monitor", "--brokers", "localhost:1", "--start", "resume")
    assert result.returncode == 2
    assert "--state-dir" in result.stderr


def test_it_goes_on_serving_when_it_can_no_longer_write(groups, tmp_path, saving_often):
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path), env=saving_often) as monitor:
        monitor.wait_until_ready()
        wait_for_backfill(monitor)
        wait_until_saved(monitor)
        file = partition_file(tmp_path, "unsaved")
        file.unlink(missing_ok=True)
        (file / "in the way").mkdir(parents=True)
        commit(groups, "unsaved", ("orders", 0, 1))
        wait_until(lambda: monitor.events("state is not saved"), what="the warning")
        at = "unsaved", "orders", 0
        wait_until(lambda: monitor.rows(COMMITTED).get(at) == 1, what="the commit")
        shutil.rmtree(file)
        wait_until_saved(monitor)
        wait_until(lambda: monitor.events("state is saved again"), what="the end of it")
        assert len(monitor.events("state is not saved")) == 1
    with monitoring(groups.bootstrap, "--state-dir", str(tmp_path)) as monitor:
        monitor.wait_until_ready()
        resumed(monitor)
        assert monitor.rows(COMMITTED)["unsaved", "orders", 0] == 1
