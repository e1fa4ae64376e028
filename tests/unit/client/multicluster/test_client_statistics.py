"""What becomes of librdkafka's reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from koff.client.multicluster import ClientStats, Summary
from koff.client.multicluster.stats import ClientStatistics


def window(*values: int) -> dict[str, int]:
    """As librdkafka writes it: 0 if there were no values."""
    return {
        "min": min(values, default=0),
        "max": max(values, default=0),
        "avg": 7777,
        "sum": sum(values),
        "cnt": len(values),
    }


def broker(connects: int, fetches: int = 0, writes: int = 0, rtt_us: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "name": "h:9092/1",
        "connects": connects,
        "txerrs": 1,
        "rxerrs": 2,
        "txretries": 3,
        "req_timeouts": 4,
        "int_latency": window(1_000_000),
        "rtt": window(*rtt_us),
        "req": {"Fetch": fetches, "Produce": writes},
        "toppars": {"t-0": {"topic": "t", "partition": 0}},
    }


def report(*brokers: dict[str, Any], batches: tuple[int, ...] = ()) -> str:
    topic = {
        "topic": "t",
        "batchsize": window(*(100 * size for size in batches)),
        "batchcnt": window(*batches),
        "partitions": {"0": {"partition": 0, "txmsgs": 99}},
    }
    named = {f"b{number}": each for number, each in enumerate(brokers)}
    return json.dumps({"name": 'rdkafka "brokers": x', "brokers": named, "topics": {"t": topic}})


def test_counters_are_those_of_the_last_report_and_windows_are_added_up():
    statistics = ClientStatistics()
    note = statistics.make_callback()
    note(report(broker(1, 5, 6, (500, 750)), broker(0), batches=(3, 5)))
    note(report(broker(2, 8, 9, (250,)), broker(4), batches=(10,)))
    assert statistics.read() == ClientStats(
        dials=6,
        fetches=8,
        writes=9,
        resends=6,
        timeouts=8,
        connection_errors=6,
        batch_messages=Summary(3, 18, 3, 10),
        batch_bytes=Summary(3, 1800, 300, 1000),
        queue_s=Summary(4, 4.0, 1.0, 1.0),
        rtt_s=Summary(3, 1500 * 1e-6, 250 * 1e-6, 750 * 1e-6),
    )


def test_the_statistics_of_a_replaced_client_stay():
    statistics = ClientStatistics()
    old = statistics.make_callback()
    old(report(broker(3, fetches=2), batches=(4,)))
    new = statistics.make_callback()
    assert statistics.read().dials == 3
    new(report(broker(1), batches=(6,)))
    old(report(broker(100), batches=(100,)))  # its last report comes late
    stats = statistics.read()
    assert (stats.dials, stats.fetches) == (4, 2)
    assert stats.batch_messages == Summary(2, 10, 4, 6)


@pytest.mark.parametrize("text", ["", "{", '{"brokers": 7}', '{"brokers":', '{"brokers": {"b": 3}}'])
def test_a_report_that_koff_cannot_read_changes_nothing_and_raises_nothing(text: str):
    statistics = ClientStatistics()
    note: Callable[[Any], None] = statistics.make_callback()
    note(report(broker(1)))
    before = statistics.read()
    note(text)
    note(None)
    after = statistics.read()
    assert after in (before, ClientStats(queue_s=before.queue_s))


def test_a_summary_of_nothing_is_zero_and_adds_nothing():
    assert Summary().average == 0
    assert Summary() + Summary(2, 6, 1, 5) == Summary(2, 6, 1, 5) + Summary() == Summary(2, 6, 1, 5)
    assert (Summary(2, 6, 1, 5) + Summary(1, 9, 9, 9)).average == 5


def test_a_summary_has_the_smallest_and_the_largest_value():
    summary = Summary()
    for value in (3.0, 1.0, 2.0):
        summary = summary.with_value(value)
    assert summary == Summary(3, 6.0, 1.0, 3.0)
