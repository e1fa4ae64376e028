"""Maintenance: which rows expire, that a query for one group reads less, and that a job may go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.errors import ConfigError
from koff.spark.tables import maintenance
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.maintenance import (
    EXPIRING,
    MaintainConf,
    maintain_cluster,
    maintain_tables,
    parse_retention,
)
from koff.spark.tables.schemas import TABLES
from tests.spark.life import Life, list_everything, live
from tests.spark.table_rows import append, list_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime.now(UTC).replace(microsecond=0)


def days_ago(days: int) -> datetime:
    return NOW - timedelta(days=days)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    return tables


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("90d", dict.fromkeys(EXPIRING, 90)),
        ("90", dict.fromkeys(EXPIRING, 90)),
        ("records=30d,lag_hourly=2y", {"records": 30, "lag_hourly": 730}),
        ("lag=1w, 90d", {**dict.fromkeys(EXPIRING, 90), "lag": 7}),
    ],
)
def test_a_time_is_for_all_tables_or_for_those_that_are_named(text: str, days: dict[str, int]) -> None:
    assert parse_retention(text) == days


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is no time"),
        ("0d", "'0d' is no time"),
        ("12h", "'12h' is no time"),
        ("lag=", "'lag=' is no time"),
        ("lags=3d", "no rows of 'lags' can expire; tables: records, "),
        ("progress=3d", "no rows of 'progress' can expire"),
        ("lag=3d,lag=4d", "lag is given twice"),
        ("3d,4d", "the time for all tables is given twice"),
    ],
)
def test_a_time_that_is_none_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_retention(text)


def test_rows_that_are_too_old_leave_and_plans_stay_that_a_process_needs(tables: Tables) -> None:
    record = {"offsets_partition": 0, "kind": "OffsetCommit", "group": "g"}
    for cluster in ("c", "d"):
        rows = (
            {"cluster": cluster, "timestamp": days_ago(age), "log_offset": age} for age in (10, 29, 31, 400)
        )
        append(tables, "records", *(record | row for row in rows))
    plan: dict[str, Any] = {"owner": "o", "nonce": "n", "ended": True, "source": "log", "partitions": []}
    plans = ((1, 9), (2, 8), (3, 7), (4, 6), (5, 0))
    append(tables, "progress", *(plan | {"number": number, "at": days_ago(age)} for number, age in plans))
    append(tables, "state", {"number": 4, "key": "ends", "saved": b"x"})
    conf = MaintainConf(parse_retention("90d,records=30d"), vacuum=False)
    done = {each.table: each.deleted for each in maintain_cluster(tables, "c", conf, NOW)}
    assert done == dict.fromkeys(TABLES, 0) | {"records": 2, "progress": 2}
    assert list_rows(tables, "records", "cluster", "log_offset", where="cluster = 'c'") == [
        ("c", 10),
        ("c", 29),
    ]
    assert len(list_rows(tables, "records", where="cluster = 'd'")) == 4
    assert list_rows(tables, "progress", "number") == [(3,), (4,), (5,)]


@pytest.mark.timeout(900)
def test_a_query_for_one_group_reads_few_of_the_files_of_past_days(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**maintenance._SETTINGS, "spark.databricks.delta.optimize.maxFileSize": "40000"}
    small["spark.databricks.delta.optimize.minFileSize"] = "10000"
    monkeypatch.setattr(maintenance, "_SETTINGS", small)
    monkeypatch.setattr(maintenance, "_SMALL_BYTES", 10_000_000)
    monkeypatch.setattr(maintenance, "TABLES", {"groups": TABLES["groups"]})
    # 40 groups, three days with three batches each: each file has all groups.
    for batch in range(3):
        rows = tables.spark.range(60_000).selectExpr(
            "'c' cluster",
            f"{batch + 1}L number",
            "0 offsets_partition",
            f"id + {batch} * 60000 log_offset",
            f"timestampadd(DAY, -cast(id % 3 as int), TIMESTAMP'{NOW:%Y-%m-%d %H:%M:%S}Z') timestamp",
            "concat('group-', (id div 3) % 40) `group`",
            "false gone",
            "hash(id) epoch",
        )
        rows = rows.selectExpr("*", "to_date(timestamp) day").repartition(1)
        rows.write.format("delta").mode("append").save(tables.path("groups"))

    def measure(where: str) -> tuple[int, int]:
        """How many files a query reads, and their bytes."""
        files = tables.frame("groups").where(where).inputFiles()
        return len(files), sum(Path(file.removeprefix("file:")).stat().st_size for file in files)

    past, group = f"day < DATE'{NOW:%Y-%m-%d}'", "`group` = 'group-7'"
    assert measure(f"{past} AND {group}") == measure(past)
    rows_before = tables.frame("groups").where(group).count()
    list(maintain_tables(tables, MaintainConf(vacuum=False), NOW))
    (files, size), (group_files, group_size) = measure(past), measure(f"{past} AND {group}")
    assert files >= 6
    assert group_files <= files / 2
    assert group_size <= size / 2
    assert tables.frame("groups").where(group).count() == rows_before

    # Sorted days are not sorted again, and compaction leaves their files.
    monkeypatch.setattr(maintenance, "_SMALL_BYTES", 1000)
    sorted_files = set(tables.frame("groups").where(past).inputFiles())
    append(
        tables,
        "groups",
        {"offsets_partition": 0, "log_offset": -1, "timestamp": NOW, "group": "g", "gone": False},
    )
    list(maintain_tables(tables, MaintainConf(vacuum=False), NOW))
    assert set(tables.frame("groups").where(past).inputFiles()) == sorted_files


@pytest.mark.timeout(900)
def test_a_job_writes_on_while_its_tables_are_maintained(tables: Tables) -> None:
    life = Life.script()
    live(tables, life, until=3)
    before = list_everything(tables)
    done = {each.table: each for each in maintain_tables(tables)}
    assert list_everything(tables) == before
    assert done.keys() == TABLES.keys()
    assert all(each.files <= each.files_before for each in done.values())
    live(tables, life)
    calm = Tables(tables.spark, tables.root + "-calm")
    calm.create_tables()
    live(calm, life)
    assert list_everything(tables) == list_everything(calm)
