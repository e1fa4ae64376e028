"""`koff pipeline check` and `status`: tables that are right pass, and each fault is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.cli.pipeline_checks import format_status, run_checks
from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicInfo, TopicPartition
from koff.config.clusters import WatchedCluster
from koff.errors import KoffError
from koff.spark.job.table_checks import check_against_log, check_freshness, check_offsets, fetch_log_ends
from koff.spark.job.table_status import ClusterStatus, TableSize, read_clusters_status
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import LogPart, Plan
from tests.spark.life import Life, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_772_000_000_000


def plan(number: int, *parts: LogPart) -> Plan:
    return Plan(
        cluster="c", number=number, at=datetime(2026, 3, 2, tzinfo=UTC), owner=Owner("h 1 1"), parts=parts
    )


def test_batches_that_do_not_follow_one_another_fail() -> None:
    first = plan(1, LogPart(0, 0, 5, 0, 5))
    assert check_offsets([first, plan(2, LogPart(0, 0, 9, 5, 9), LogPart(1, 7, 9, 7, 9))]).ok
    found = check_offsets([first, plan(2, LogPart(0, 0, 9, 7, 9))])
    assert not found.ok
    assert found.text.startswith("2 offsets were left out: read the cluster under another name")
    found = check_offsets([first, plan(3, LogPart(0, 0, 9, 5, 9))])
    assert (found.ok, found.text[:19]) == (False, "batch 2 is missing ")


def test_tables_that_are_behind_or_ahead_of_the_brokers_fail() -> None:
    plans = [plan(1, LogPart(0, 0, 10, 0, 10), LogPart(1, 0, 4, 0, 4))]
    found = check_against_log(plans, {0: 12, 1: 5, 2: 1}, 4)
    assert (found.ok, found.text) == (True, "4 offsets behind the brokers")
    found = check_against_log(plans, {0: 12, 1: 5, 2: 1}, 3)
    assert (found.ok, found.text) == (False, "4 offsets behind the brokers, more than 3")
    found = check_against_log(plans, {0: 12, 1: 3}, 100)
    assert not found.ok
    assert found.text.startswith(
        "partition 1 ends at 3, and the tables have it up to 4: the offsets topic was"
    )


def cluster_status(newest_sample_ms: int | None) -> ClusterStatus:
    return ClusterStatus("c", NOW_MS, newest_sample_ms, groups=1, slots=1, writer="")


@pytest.mark.parametrize(
    ("sample_ms", "ok", "text"),
    [
        (NOW_MS - 300_000, True, "the newest sample is 300 s old"),
        (NOW_MS - 301_000, False, "the newest sample is 301 s old, more than 300 s; no process writes"),
        (None, False, "lag was never sampled"),
        (NOW_MS + 300_000, True, "the newest sample is 0 s old"),
        (NOW_MS + 301_000, False, "the newest sample is 301 s in the future: a clock"),
    ],
    ids=["in time", "too old", "never", "a little ahead", "in the future"],
)
def test_a_sample_that_is_old_or_missing_fails(sample_ms: int | None, ok: bool, text: str) -> None:
    found = check_freshness(cluster_status(sample_ms), NOW_MS, 300)
    assert found.ok is ok
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    ("topic", "offsets", "told"),
    [
        (None, {}, "cluster c: there is no topic o"),
        (TopicInfo("o", 2), {0: 7, 1: "LEADER_NOT_AVAILABLE"}, "no end offset of o/1: LEADER_NOT_AVAILABLE"),
    ],
)
def test_brokers_that_do_not_return_all_end_offsets_are_an_error(
    monkeypatch: pytest.MonkeyPatch, topic: TopicInfo | None, offsets: dict[int, Any], told: str
) -> None:
    monkeypatch.setattr(Cluster, "connect", lambda cluster: cluster)
    monkeypatch.setattr(Cluster, "fetch_topic", lambda cluster, name: topic)
    found = {TopicPartition("o", partition): offset for partition, offset in offsets.items()}
    monkeypatch.setattr(Cluster, "fetch_offsets", lambda *_: found)
    with pytest.raises(KoffError, match=re.escape(told)):
        fetch_log_ends(WatchedCluster("c", ClusterConf("127.0.0.1:1"), offsets_topic="o"))


@pytest.mark.timeout(900)
def test_tables_that_are_right_pass_until_a_row_of_each_kind_is_wrong(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    live(tables, Life.script())

    def find_faults() -> set[tuple[str, str]]:
        results = run_checks(tables, [], max_age_s=1e9, max_behind=0)
        return {(each.name, each.of) for each in results if not each.ok}

    assert find_faults() == set()
    (status,) = read_clusters_status(tables)
    assert (status.groups, status.slots) != (0, 0)
    assert status.writer.startswith("process ")
    assert run_checks(tables, [], max_age_s=1, max_behind=0)[-1].name == "freshness"
    wrong: list[tuple[Callable[[], Any], tuple[str, str]]] = [
        (
            lambda: tables.delta_table("lag").update(
                "number = 5 AND committed > 5", {"committed": "committed + 1"}
            ),
            ("lag", "c"),
        ),
        (lambda: tables.delta_table("groups").delete("epoch = 1 AND type = 'classic'"), ("groups", "c")),
        (lambda: double(tables, "records"), ("unique keys", "records")),
    ]
    for spoil, fault in wrong:
        spoil()
        assert fault in find_faults()


def double(tables: Tables, name: str) -> None:
    """Writes a row again."""
    row = tables.frame(name).limit(1)
    row.write.format("delta").mode("append").save(tables.path(name))


def test_the_status_names_what_is_not_known_with_a_dash() -> None:
    text = format_status([cluster_status(None)], [TableSize("lag", 1200, 2, 3_000_000)], NOW_MS + 5_000)
    assert "(5 s ago)" in text
    assert text.splitlines()[1].split()[-3:] == ["-", "no", "process"]
    assert text.splitlines()[-1].split()[:3] == ["lag", "1200", "2"]
    assert format_status([], [], NOW_MS).startswith("no cluster has rows yet\n")
