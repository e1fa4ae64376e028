"""Maintenance: which rows expire, that a query for one group reads less, and that nothing is done twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from koff.spark.tables.maintenance_notes import MaintenanceNotes
from koff.spark.tables.retention import list_expiring, parse_retention

from koff.errors import ConfigError
from koff.spark.tables import maintenance, maintenance_notes, schemas
from koff.spark.tables.maintenance import MaintainConf, Maintained, maintain_cluster, maintain_tables
from koff.spark.tables.schemas import MAINTENANCE, TABLES, Tables
from tests.spark.test_table_checks import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime.now(UTC).replace(microsecond=0)


def days_ago(days: int) -> datetime:
    return NOW - timedelta(days=days)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("90d", dict.fromkeys(list_expiring(), 90)),
        ("90", dict.fromkeys(list_expiring(), 90)),
        ("commits=30d,lag_hourly=2y", {"commits": 30, "lag_hourly": 730}),
        ("lag=1w, 90d", {**dict.fromkeys(list_expiring(), 90), "lag": 7}),
        ("lag=1y,90d", {**dict.fromkeys(list_expiring(), 90), "lag": 365, "samples": 365}),
        ("lag=30d,samples=30d", {"lag": 30, "samples": 30}),
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
        ("lags=3d", "no rows of 'lags' can expire; tables: commits, "),
        ("coverage=3d", "no rows of 'coverage' can expire"),
        ("lag=3d,lag=4d", "lag is given twice"),
        ("3d,4d", "the time for all tables is given twice"),
        ("lag=4d,samples=3d", "samples have to stay as long as lag"),
        ("samples=3d", "samples have to stay as long as lag"),
    ],
)
def test_a_time_that_is_none_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_retention(text)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    return tables


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintains only some tables: all of them would take long."""
    names = ("commits", "current", "group_states", "leases")
    monkeypatch.setattr(maintenance, "TABLES", {name: TABLES[name] for name in names})


def maintain(tables: Tables, conf: MaintainConf, now: datetime) -> dict[str, Maintained]:
    return {each.table: each for each in maintain_tables(tables, conf, now)}


def open_with_checksums(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """As `filesystem`, with the file system of users: Hadoop's own keeps a checksum beside each file."""
    jvm: Any = spark.sparkContext._jvm
    jsc: Any = spark.sparkContext._jsc
    fs = jvm.org.apache.hadoop.fs.LocalFileSystem()
    fs.initialize(jvm.java.net.URI("file:///"), jsc.hadoopConfiguration())
    return fs, jvm.org.apache.hadoop.fs.Path(path)


@pytest.mark.parametrize("checksum", [b"crc\0\0\0\2\0", b"crc\0\0\0\2\0abcd"])
def test_notes_whose_checksum_a_kill_cut_off_are_written_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksum: bytes
) -> None:
    for module in (maintenance_notes, schemas):
        monkeypatch.setattr(module, "filesystem", open_with_checksums)
    tables = Tables(spark, str(tmp_path / "t"))
    for version in (7, 8):
        notes = MaintenanceNotes(tables, "c")
        assert notes.get("commits").version == -1
        notes.get("commits").version = version
        notes.save()
        assert MaintenanceNotes(tables, "c").get("commits").version == version
        (tmp_path / "t" / MAINTENANCE / ".c.json.crc").write_bytes(checksum)


@pytest.mark.usefixtures("few")
def test_rows_that_are_too_old_leave_and_so_do_deleted_groups_and_rows_without_a_day(tables: Tables) -> None:
    for cluster in ("c", "d"):
        ages = {1: 10, 2: 29, 3: 31, 4: 400}
        rows: list[dict[str, Any]] = [
            {"timestamp": days_ago(age), "day": days_ago(age).date()} for age in ages.values()
        ]
        rows.append({"timestamp": None, "day": None})
        append(
            tables,
            "commits",
            *({**row, "cluster": cluster, "log_offset": n} for n, row in enumerate(rows, 1)),
        )
    state = {"cluster": "c", "saved": "{}"}
    append(
        tables,
        "group_states",
        {**state, "group": "lives", "timestamp": days_ago(400)},
        {**state, "group": "deleted now", "saved": None, "timestamp": days_ago(89)},
        {**state, "group": "deleted before", "saved": None, "timestamp": days_ago(91)},
        {**state, "group": "deleted by an older koff", "saved": None},
    )
    slot = {"cluster": "c", "topic": "t", "timestamp": days_ago(91)}
    append(
        tables, "current", {**slot, "group": "lives"}, {**slot, "group": "deleted before", "deleted": True}
    )

    def offsets(cluster: str) -> list[int]:
        return sorted(row.log_offset for row in tables.cluster_frame("commits", cluster).collect())

    conf = MaintainConf(parse_retention("90d,commits=30d"), vacuum=False)
    done = {each.table: each.deleted for each in maintain_cluster(tables, "c", conf, NOW)}
    assert done == {"commits": 2, "current": 1, "group_states": 2, "leases": 0}
    assert (offsets("c"), offsets("d")) == ([1, 2, 5], [1, 2, 3, 4, 5])
    groups = {row.group for row in tables.frame("group_states").collect()}
    assert groups == {"lives", "deleted now"}
    assert [row.group for row in tables.frame("current").collect()] == ["lives"]

    # The rows without a day were written just now: they leave with the rows of today.
    maintain_cluster(tables, "d", conf, NOW + timedelta(days=29))
    assert offsets("d") == [5]
    maintain_cluster(tables, "d", conf, NOW + timedelta(days=31))
    assert (offsets("c"), offsets("d")) == ([1, 2, 5], [])


@pytest.mark.usefixtures("few")
def test_a_query_for_one_group_reads_few_of_the_files_of_past_days(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**maintenance._SETTINGS, "spark.databricks.delta.optimize.maxFileSize": "40000"}
    small["spark.databricks.delta.optimize.minFileSize"] = "10000"
    monkeypatch.setattr(maintenance, "_SETTINGS", small)
    # 40 groups, three days with three batches each: each file has all groups.
    for batch in range(3):
        rows = tables.spark.range(60_000).selectExpr(
            "'c' cluster",
            "0 offsets_partition",
            f"id + {batch} * 60000 log_offset",
            f"timestampadd(DAY, -cast(id % 3 as int), TIMESTAMP'{NOW:%Y-%m-%d %H:%M:%S}Z') timestamp",
            "concat('group-', (id div 3) % 40) `group`",
            "'t' topic",
            "0 partition",
            "hash(id) + 0L committed",
        )
        rows = rows.selectExpr("*", "to_date(timestamp) day").repartition(1)
        rows.write.format("delta").mode("append").save(tables.path("commits"))

    def measure(where: str) -> tuple[int, int]:
        """How many files a query reads, and their bytes."""
        files = tables.frame("commits").where(where).inputFiles()
        return len(files), sum(Path(file.removeprefix("file:")).stat().st_size for file in files)

    past, group = f"day < DATE'{NOW:%Y-%m-%d}'", "`group` = 'group-7'"
    assert measure(f"{past} AND {group}") == measure(past)
    rows_before = tables.frame("commits").where(group).count()
    maintain_cluster(tables, "c", MaintainConf(vacuum=False), NOW)
    (files, size), (group_files, group_size) = measure(past), measure(f"{past} AND {group}")
    assert files >= 6
    assert group_files <= files / 2
    assert group_size <= size / 2
    assert tables.frame("commits").where(group).count() == rows_before

    # Sorted days are not sorted again, and compaction leaves their files.
    sorted_files = set(tables.frame("commits").where(past).inputFiles())
    append(tables, "commits", {"cluster": "c", "timestamp": NOW, "day": NOW.date()})
    maintain_cluster(tables, "c", MaintainConf(vacuum=False), NOW)
    assert set(tables.frame("commits").where(past).inputFiles()) == sorted_files
    # A day is sorted when it has ended.
    today = tables.frame("commits").where(f"NOT {past}")
    unsorted = len(today.where(group).inputFiles())
    maintain_cluster(tables, "c", MaintainConf(vacuum=False), NOW + timedelta(days=1))
    today = tables.frame("commits").where(f"NOT {past}")
    assert len(today.where(group).inputFiles()) < len(today.inputFiles())
    assert unsorted >= 1


@pytest.mark.usefixtures("few")
def test_a_table_that_has_not_changed_is_not_looked_at_again(tables: Tables) -> None:
    row = {"cluster": "c", "timestamp": NOW, "day": NOW.date()}
    append(tables, "commits", row)
    append(tables, "commits", row)
    conf = MaintainConf(parse_retention("90d"))
    first = maintain(tables, conf, NOW)
    assert not any(each.skipped for each in first.values())
    assert (first["commits"].files_before, first["commits"].files) == (2, 1)

    context = tables.spark.sparkContext
    context.setJobGroup("nothing to do", "nothing to do")
    again = maintain(tables, conf, NOW)
    context.setJobGroup("", "")
    assert all(each.skipped for each in again.values())
    assert again["commits"].files == 1
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("nothing to do")]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    assert sum(stage.numTasks for stage in stages if stage) < 100

    # What is new, another time to keep, another day: then there is something to do.
    append(tables, "commits", row)
    assert [each.table for each in maintain(tables, conf, NOW).values() if not each.skipped] == ["commits"]
    kept = MaintainConf({**conf.keep, "current": 3})
    assert [each.table for each in maintain(tables, kept, NOW).values() if not each.skipped] == ["current"]
    assert not maintain(tables, kept, NOW + timedelta(days=1))["commits"].skipped
    # Notes that cannot be read.
    (notes,) = (Path(tables.root) / MAINTENANCE).glob("%2A.json")
    notes.write_text('{"commits": {"vers')
    assert not any(each.skipped for each in maintain(tables, kept, NOW + timedelta(days=1)).values())
    tables.create_tables()  # the folder of the notes is no foreign one


@pytest.mark.usefixtures("few")
def test_files_that_were_replaced_are_deleted_when_their_time_is_over(tables: Tables) -> None:
    row = {"cluster": "c", "timestamp": NOW, "day": NOW.date()}
    for _ in range(2):
        append(tables, "commits", row)

    def count_files() -> int:
        return len(list((Path(tables.root) / "commits" / "cluster=c").rglob("*.parquet")))

    maintain(tables, MaintainConf(), NOW)
    assert count_files() == 3  # the two that were merged stay for a week
    maintain(tables, MaintainConf(), NOW + timedelta(days=6))
    assert count_files() == 3
    # Delta takes the time of the machine, so the files must be deletable at once.
    keep = "'delta.deletedFileRetentionDuration' = 'interval 0 hours'"
    tables.spark.sql(f"ALTER TABLE delta.`{tables.path('commits')}` SET TBLPROPERTIES ({keep})")
    maintain(tables, MaintainConf(vacuum=False), NOW + timedelta(days=6))
    assert count_files() == 3
    maintain(tables, MaintainConf(), NOW + timedelta(days=8))
    assert count_files() == 1
