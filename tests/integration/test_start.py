"""`koff monitor` started by asking the coordinators: ready at once, and right all along."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from koff.kafkatest import LocalKafka, wait_until
from koff.records.placement import group_partition
from tests.clusters import lend_kafka
from tests.integration.test_monitor import write
from tests.kafka_groups import commit, consuming, produce
from tests.koff_process import Monitor, monitoring, run_lag
from tests.unit.builders import commit as commit_record

pytestmark = pytest.mark.kafka
COMMITTED = "koff_group_committed_offset"
ASKED = "the coordinators have responded"
REPLAYED = "partitions start: replay"
EMPTY = "its log is empty"
OFTEN = 12
"""More commits than a window has."""


@pytest.fixture(scope="module")
def settled() -> Iterator[LocalKafka]:
    """A Kafka with groups that commit no more; two did every half minute, one of them backwards."""
    with lend_kafka() as kafka, ExitStack() as live:
        commit(kafka, "makes-the-topic", (kafka.create_topic(), 0, 0))
        now_ms = time.time_ns() // 1_000_000
        for group, step in (("forwards", 1), ("backwards", -1)):
            history = [(12 - n * step, now_ms - n * 30_000) for n in reversed(range(OFTEN))]
            records = [commit_record(group, "orders", 0, n, at=at_ms) for n, at_ms in history]
            write(kafka.bootstrap, "__consumer_offsets", *records, partition=group_partition(group, 50))
        kafka.restart()  # the coordinator reads what was written
        orders = kafka.create_topic("orders", partitions=3)
        for partition in range(3):
            produce(kafka, orders, 20, partition=partition)
        live.enter_context(consuming(kafka, "classic", orders, count=60))
        live.enter_context(consuming(kafka, "modern", orders, count=60, protocol="consumer"))
        for number in range(30):
            commit(kafka, f"simple-{number}", (orders, number % 3, number % 20), (orders, 1, 7))
        yield kafka


def backfill_remaining(monitor: Monitor) -> float:
    (remaining,) = monitor.metrics()["koff_reader_backfill_remaining_records"].values()
    return remaining


def wait_for_backfill(monitor: Monitor) -> None:
    """Returns once /metrics shows what the backfill found: a view is shared for a moment."""

    def is_shown() -> bool:
        return bool(monitor.events("backfilled")) and backfill_remaining(monitor) == 0

    wait_until(is_shown, what="the backfill", every_s=0.02)


def reasons_to_replay(monitor: Monitor) -> list[str]:
    """Why partitions with records were read from their start."""
    return [line["why"] for line in monitor.events(REPLAYED) if line["why"] != EMPTY]


def completeness(monitor: Monitor, group: str) -> float:
    found = monitor.metrics()["koff_group_completeness_ratio"]
    return next(share for labels, share in found.items() if labels[1] == group)


def test_what_a_snapshot_gives_a_replay_gives_and_so_does_the_backfill(settled):
    names = ("koff_group_lag", "koff_group_committed_offset", "koff_group_state", "koff_group_members")

    def said(monitor: Monitor) -> dict[str, dict[tuple[str, ...], float]]:
        return {name: found for name, found in monitor.metrics().items() if name in names}

    with monitoring(settled.bootstrap, "--start", "replay") as monitor:
        monitor.wait_until_ready()
        replayed = said(monitor)
        assert not monitor.events(ASKED)
    assert len(replayed["koff_group_lag"]) == 3 + 3 + 30 + 20 + 2 + 1
    with monitoring(settled.bootstrap) as monitor:
        monitor.wait_until_ready()
        assert said(monitor) == replayed
        wait_for_backfill(monitor)
        assert said(monitor) == replayed
        assert backfill_remaining(monitor) == 0
    (asked,) = monitor.events(ASKED)
    assert asked["groups"] == 35
    assert not reasons_to_replay(monitor)


@pytest.mark.parametrize("start", ["snapshot", "replay"])
def test_one_look_knows_the_times_of_the_newest_commits(settled, start):
    (row,) = run_lag(settled.bootstrap, "--start", start, group="backwards")["partitions"]
    assert (row["lag"], row["complete"]) == (8, 1)


def test_another_topic_than_kafkas_own_is_replayed(settled):
    offsets = settled.create_topic(partitions=2)
    write(settled.bootstrap, offsets, commit_record("written", "orders", 0, 5))
    with monitoring(settled.bootstrap, "--offsets-topic", offsets) as monitor:
        monitor.wait_until_ready()
        assert monitor.rows(COMMITTED) == {("written", "orders", 0): 5}
        assert not monitor.events(ASKED)
