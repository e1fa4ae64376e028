"""Commits that workers write into files: all of them, once, and found again through Delta."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from koff.spark.job.batch_writer import BatchWriter, write_once
from koff.spark.rows.newest import keep_newest
from koff.spark.rows.packing import COMMIT, FILE, NOTED, PACKED, pack_batches, unpack_batches
from koff.spark.tables import files
from koff.spark.tables.files import FILE_COLUMNS, FileTarget, commit_files, write_batches
from koff.spark.tables.schemas import Tables
from tests.spark.test_decoding import EVERY, decode_batch, raw
from tests.spark.test_packing import batch, row

ODD_NAME = "a/b=c d%ü"
DAY_MS = 86_400_000
FIRST_MS = 1_763_740_800_000
Row = dict[str, Any]


def commits(count: int, days: int = 1, *, first: int = 0, partition: int = 3) -> pa.RecordBatch:
    """So many commits spread over some days; one in ten has no time, one in seven is a deletion."""
    rows = []
    for number in range(first, first + count):
        at_ms = FIRST_MS + min(number // 80, days - 1) * DAY_MS + number * 7
        each = row(f"g{number % 5}", number % 3, number, None if number % 7 == 3 else number, at_ms)
        each |= {"kind": "OffsetCommit", "cluster": "c", "offsets_partition": partition}
        rows.append(each | ({"timestamp": None} if number % 10 == 9 else {}))
    return batch(rows)


def packs(found: list[Row], what: str) -> list[Row]:
    blobs = [{"packed": each["packed"]} for each in found if each["what"] == what]
    if not blobs:
        return []
    packed = pa.RecordBatch.from_pylist(blobs, pa.schema([PACKED.field("packed")]))
    return [each for rows in unpack_batches([packed]) for each in rows.to_pylist()]


def adds(found: list[Row]) -> list[Row]:
    return [json.loads(each["packed"])["add"] for each in found if each["what"] == FILE]


def taken(batches: list[pa.RecordBatch], into: FileTarget) -> list[Row]:
    return [each for rows in write_batches(batches, into) for each in rows.to_pylist()]


def by_offset(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda each: each["log_offset"])


def stored(folder: Path, add: Row) -> list[Row]:
    rows: list[Row] = parquet.ParquetFile(folder / unquote(add["path"])).read().to_pylist()
    return rows


@pytest.mark.parametrize(("held", "chunk"), [(1 << 20, 500_000), (64, 50)])
def test_all_commits_are_in_files_a_day_each_and_what_matters_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, chunk: int
) -> None:
    monkeypatch.setattr(files, "_MAX_BUFFERED_ROWS", held)
    monkeypatch.setattr(files, "CHUNK_ROWS", chunk)
    given = [commits(100, 3), commits(150, 3, first=100), commits(1, first=250)]
    found = taken(given, FileTarget(str(tmp_path), ODD_NAME))
    told = adds(found)
    assert [each["partitionValues"]["cluster"] for each in told] == [ODD_NAME] * 4
    days = {each["partitionValues"]["day"]: each for each in told}
    first = datetime.fromtimestamp(FIRST_MS / 1000, UTC).date()
    assert days.keys() == {None, *(str(first + timedelta(days=n)) for n in range(3))}
    rows = []
    for day, add in days.items():
        mine = stored(tmp_path, add)
        assert {day and date.fromisoformat(day)} == {
            each["timestamp"] and each["timestamp"].date() for each in mine
        }
        assert add["size"] == (tmp_path / unquote(add["path"])).stat().st_size
        check_stats(json.loads(add["stats"]), mine)
        rows += mine
    every = [each for part in given for each in part.to_pylist()]
    assert by_offset(rows) == [{name: each[name] for name in FILE_COLUMNS} for each in by_offset(every)]
    assert sum(each["records"] for each in found if each["what"] == FILE) == len(every)
    noted = keep_newest(batch([{**dict.fromkeys(every[0]), **each} for each in packs(found, NOTED)]))
    wanted = keep_newest(pa.concat_batches(given)).column("log_offset").to_pylist()
    assert sorted(noted.column("log_offset").to_pylist()) == sorted(wanted)
    assert 0 < len(wanted) < len(every)


def check_stats(stats: Row, rows: list[Row]) -> None:
    assert stats["numRecords"] == len(rows)
    for name in ("log_offset", "offsets_partition", "timestamp"):
        values = [each[name] for each in rows if each[name] is not None]
        if not values:
            assert name not in stats["minValues"]
            continue
        least, most = stats["minValues"][name], stats["maxValues"][name]
        if name == "timestamp":
            least, most = datetime.fromisoformat(least), datetime.fromisoformat(most)
            assert min(values) - least < timedelta(milliseconds=1)
            assert most - max(values) < timedelta(milliseconds=1)
        assert least <= min(values) <= max(values) <= most


def test_what_is_no_commit_is_packed_as_ever(tmp_path: Path) -> None:
    rows = decode_batch(raw(EVERY), "c")
    found = taken([rows], FileTarget(str(tmp_path), "c"))
    usual = [each for batch_ in pack_batches([rows]) for each in batch_.to_pylist()]
    assert [each for each in found if each["what"] not in (NOTED, FILE)] == [
        each for each in usual if each["what"] != COMMIT
    ]
    assert sum(add["stats"].count("numRecords") for add in adds(found)) == 1


def test_rows_that_may_be_there_already_are_not_written(tmp_path: Path) -> None:
    given = [commits(60), commits(60, partition=4)]
    found = taken(given, FileTarget.from_option(FileTarget(str(tmp_path), "c", {3: 41}).to_option()))
    old = packs(found, COMMIT)
    assert [(each["offsets_partition"], each["log_offset"]) for each in old] == [(3, n) for n in range(42)]
    new = [each for add in adds(found) for each in stored(tmp_path, add)]
    assert len(new) == 18 + 60
    assert all(each["offsets_partition"] == 4 or each["log_offset"] > 41 for each in new)


@pytest.mark.parametrize("how", ["raises", "closed"])
def test_a_task_that_does_not_end_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(files, "_MAX_BUFFERED_ROWS", 10)
    monkeypatch.setattr(files, "CHUNK_ROWS", 10)

    def given() -> Iterator[pa.RecordBatch]:
        yield commits(100)
        assert list(tmp_path.rglob("*.parquet"))
        if how == "raises":
            raise ConnectionError("the broker is gone")
        yield commits(100)

    running = write_batches(given(), FileTarget(str(tmp_path), "c"))
    next(running)
    if how == "raises":
        with pytest.raises(ConnectionError):
            list(running)
    else:
        assert isinstance(running, Generator)
        running.close()
    assert not list(tmp_path.rglob("*.parquet"))


def test_files_are_the_tables_once(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "with space"))
    tables.create_tables()
    folder = tables.folder("commits")
    assert folder is not None
    for version, first in ((0, 0), (0, 0), (1, 300)):  # the first comes again
        found = taken([commits(300, 3, first=first)], FileTarget(folder, ODD_NAME))
        told = [each["packed"] for each in found if each["what"] == FILE]
        with write_once(spark, "app", version):
            commit_files(tables, "commits", told)
    rows = tables.cluster_frame("commits", ODD_NAME)
    assert rows.count() == rows.select("log_offset").distinct().count() == 600
    assert len(list(Path(folder).rglob("*.parquet"))) == 6
    mine = rows.orderBy("log_offset").drop("cluster", "day").collect()
    every = commits(600, 3).to_pylist()
    assert [each.asDict()["committed"] for each in mine] == [each["committed"] for each in every]
    some = datetime.fromtimestamp((FIRST_MS + DAY_MS + 100 * 7) / 1000, UTC)
    expected = sum(each["timestamp"] is not None and each["timestamp"] >= some for each in every)
    assert rows.where(f.col("timestamp") >= f.lit(some)).count() == expected
    day = rows.where(f.col("day") == some.date())
    assert day.count() == sum(
        (each["timestamp"] or some - timedelta(1)).date() == some.date() for each in every
    )


def test_a_batch_by_files_gives_the_tables_that_spark_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [decode_batch(raw(EVERY), "c"), commits(200, 2, first=1000), commits(50, 2, first=1200)]
    both = []
    for name in ("files", "spark"):
        tables = Tables(spark, str(tmp_path / name))
        tables.create_tables()
        folder = tables.folder("commits")
        assert folder is not None
        if name == "spark":
            monkeypatch.setattr(Tables, "folder", lambda *_: None)
        count = None
        for version, part in enumerate((given[:2], given[2:])):
            packed = list(
                write_batches(part, FileTarget(folder, "c")) if name == "files" else pack_batches(part)
            )
            frame = spark.createDataFrame(pa.Table.from_batches(packed)).persist()
            with write_once(spark, "app", version):
                count = BatchWriter(tables, "c").write(frame, {})
            own = [*Path(tables.path("current")).rglob("koff-*.parquet")]
            assert bool(own) == (name == "files")
        rows = {table: contents(tables, table) for table in ("commits", "current", "groups", "quarantine")}
        both.append((count, rows))
    assert both[0] == both[1]
    assert all(both[0][1].values())


def test_tables_whose_columns_have_other_names_in_files_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    assert tables.folder("commits")
    mapping = (
        "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    )
    spark.sql(f"ALTER TABLE delta.`{tables.path('commits')}` SET TBLPROPERTIES ({mapping})")
    assert tables.folder("commits") is None


def contents(tables: Tables, name: str) -> list[str]:
    return sorted(map(str, tables.frame(name).collect()))
