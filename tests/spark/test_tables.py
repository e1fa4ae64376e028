"""What koff creates, and which folders and tables it refuses."""

from __future__ import annotations

import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile

from koff.spark.tables import delta_tables as module
from koff.spark.tables.delta_tables import Tables, WrongTables
from koff.spark.tables.schemas import PROPERTY, TABLES, VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEXT = VERSION + 1
ROW = "'c' cluster, 1L number, 7 offsets_partition, 1L log_offset, 'g' `group`, date'2026-03-02' day"
ROWS = {"records": f"{ROW}, 'OffsetCommit' kind", "groups": f"{ROW}, false gone"}


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the version of today, with a row in some. Not to be changed: take a copy."""
    folder = tmp_path_factory.mktemp("first") / "t"
    made = Tables(spark, str(folder))
    made.create_tables()
    for name, row in ROWS.items():
        spark.sql(f"SELECT {row}").write.format("delta").mode("append").save(made.path(name))
    return folder


@pytest.fixture
def tables(spark: SparkSession, first: Path, tmp_path: Path) -> Tables:
    return Tables(spark, str(shutil.copytree(first, tmp_path / "t")))


def changes(tables: Tables) -> dict[str, int]:
    """How often each was changed."""
    return {name: tables.delta_table(name).history().count() for name in TABLES}


def test_every_table_is_made_and_nothing_else(first: Path) -> None:
    assert {each.name for each in first.iterdir()} == TABLES.keys()


def test_tables_whose_creation_was_killed_are_created(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CREATED_WITHIN_S", 0.0)
    root = tmp_path / "t"
    for name, temporary in (("records", ""), ("lag", ".0.json.1.tmp"), ("progress", ".0.json.1.tmp")):
        log = root / name / "_delta_log"
        (log / "_staged_commits").mkdir(parents=True)
        if temporary:
            (log / temporary).write_text("{")
            (log / f".{temporary}.crc").write_text("crc")
    (root / "state").mkdir()
    tables = Tables(spark, str(root))
    with pytest.raises(WrongTables, match="no tables of koff's"):
        tables.check_tables()
    tables.create_tables()
    tables.check_tables()
    assert tables.new_tables == TABLES.keys()
    assert not list(root.rglob("*.tmp"))


def test_a_folder_with_files_of_others_is_no_table_whose_creation_was_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "records" / "_delta_log").mkdir(parents=True)
    note = tmp_path / "records" / "note.txt"
    note.write_text("mine")
    with pytest.raises(WrongTables, match="records is not a Delta table: give --tables a folder of its own"):
        Tables(spark, str(tmp_path)).create_tables()
    assert {each.name for each in tmp_path.iterdir()} == {"records"}
    assert note.read_text() == "mine"


def test_processes_that_create_the_same_tables_at_once_both_get_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    meeting, errors = threading.Barrier(3), []

    def create() -> None:
        tables = Tables(spark.newSession(), str(tmp_path / "t"))
        meeting.wait(60)
        try:
            tables.create_tables()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert errors == []
    Tables(spark, str(tmp_path / "t")).check_tables()


@pytest.mark.parametrize(
    ("version", "told"),
    [(str(NEXT), f"has schema {NEXT}, this koff writes {VERSION}: use the koff that"), ("x", "has schema x")],
)
def test_tables_of_a_newer_koff_and_of_others_are_refused(tables: Tables, version: str, told: str) -> None:
    table = f"delta.`{tables.path('groups')}`"
    tables.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{PROPERTY}' = '{version}')")
    for ask in (tables.create_tables, tables.check_tables):
        with pytest.raises(WrongTables, match=told):
            ask()


def test_tables_say_what_they_hold_and_how_long_delta_keeps_their_log(
    first: Path, spark: SparkSession
) -> None:
    made = Tables(spark, str(first))
    for name in TABLES:
        table = TABLES[name]
        texts = {column.name: column.text for column in table.columns}
        assert read_definition(made, name) == (table.text, texts, table.make_properties())
        nullable = {field.name for field in made.frame(name).schema if field.nullable}
        assert nullable == {column.name for column in table.columns if not column.required}, name


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("records", f"{ROW}, 't' topic"),
        ("groups", ROW),
        ("groups", f"{ROW}, false gone".replace("'g'", "NULL")),
    ],
)
def test_a_row_without_what_every_row_has_is_refused(tables: Tables, name: str, row: str) -> None:
    with pytest.raises(Exception, match="NOT NULL"):
        tables.spark.sql(f"SELECT {row}").write.format("delta").mode("append").save(tables.path(name))


def test_files_have_statistics_of_what_queries_filter_by_and_dictionaries_of_what_repeats(
    tables: Tables,
) -> None:
    row = f"{ROWS['records']}, 't' topic, 0 partition, 5L committed, timestamp'2026-03-02 10:00:00' timestamp"
    # Parquet makes no dictionary of a single value.
    rows = with_all_columns(tables, "records", row).crossJoin(tables.spark.range(100).coalesce(1))
    tables.write_batch("records", rows.toArrow(), "c", 1)
    log = Path(tables.path("records"), "_delta_log")
    actions = [json.loads(line) for line in max(log.glob("*.json")).read_text().splitlines()]
    (add,) = [action["add"] for action in actions if "add" in action]
    assert json.loads(add["stats"])["minValues"].keys() == set(TABLES["records"].filtered)
    group = ParquetFile(Path(tables.path("records"), unquote(add["path"]))).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_dictionary = {each.path_in_schema for each in columns if "RLE_DICTIONARY" in each.encodings}
    with_dictionary |= {each.path_in_schema for each in columns if "PLAIN_DICTIONARY" in each.encodings}
    assert {"group", "topic", "partition"} <= with_dictionary
    assert with_dictionary.isdisjoint(("log_offset", "committed", "timestamp", "commit_timestamp"))


def with_all_columns(tables: Tables, name: str, row: str) -> DataFrame:
    """A row, with null for all columns that it does not have."""
    frame = tables.spark.sql(f"SELECT {row}")
    missing = [field for field in tables.frame(name).schema if field.name not in frame.columns]
    nulls = [f"CAST(NULL AS {field.dataType.simpleString()}) `{field.name}`" for field in missing]
    return frame.selectExpr("*", *nulls)


@pytest.mark.parametrize("most_commits", [0, 1, 50])
def test_a_table_takes_each_number_of_a_cluster_once_and_none_that_is_lower(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, most_commits: int
) -> None:
    """Whoever writes it: that is what all of koff's writes rest on."""
    monkeypatch.setattr(module, "MOST_COMMITS", most_commits)
    processes = [Tables(tables.spark, tables.root) for _ in range(2)]
    assert [each.find_number("groups", "c") for each in processes] == [0, 0]
    row = with_all_columns(tables, "groups", f"{ROW}, false gone").toArrow()
    writes = ((0, "c", 5), (1, "c", 5), (0, "d", 5), (1, "c", 4), (1, "c", 6), (0, "c", 6), (0, "c", 6))
    done = [processes[at].write_batch("groups", row, cluster, number) for at, cluster, number in writes]
    assert done == [True, False, True, False, True, False, False]
    numbers = sorted(row.number for row in tables.frame("groups").collect())
    assert numbers == [1, 5, 5, 6]
    for each in (*processes, Tables(tables.spark, tables.root)):
        assert [each.find_number("groups", cluster) for cluster in ("c", "d", "e")] == [6, 5, 0]


def test_of_processes_that_write_a_number_at_once_one_does(tables: Tables) -> None:
    row = with_all_columns(tables, "groups", f"{ROW}, false gone").toArrow()
    numbers = range(2, 22)
    with ThreadPoolExecutor(2) as pool:
        for number in numbers:
            writes = [
                pool.submit(Tables(tables.spark, tables.root).write_batch, "groups", row, "c", number)
                for _ in range(2)
            ]
            assert sorted(each.result() for each in writes) == [False, True]
    assert sorted(row.number for row in tables.frame("groups").collect()) == [1, *numbers]


def test_the_newest_number_is_found_when_delta_has_deleted_old_commits(tables: Tables) -> None:
    row = with_all_columns(tables, "groups", f"{ROW}, false gone").toArrow()
    other = Tables(tables.spark, tables.root)
    assert other.find_number("groups", "c") == 0
    for number in (2, 3):
        assert tables.write_batch("groups", row, "c", number)
    other.delta_table("groups").optimize().executeCompaction()
    jvm = tables.spark.sparkContext._jvm
    assert jvm is not None
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(tables.spark._jsparkSession, tables.path("groups"))
    log.checkpoint()
    for commit in sorted(Path(tables.path("groups"), "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert other.find_number("groups", "c") == 3
    assert not other.write_batch("groups", row, "c", 3)
    assert other.write_batch("groups", row, "c", 4)


@pytest.mark.parametrize(("size", "is_compacted"), [(1, True), (300_000, False)])
def test_delta_compacts_small_files_only(tables: Tables, size: int, is_compacted: bool) -> None:
    rows = with_all_columns(tables, "records", ROWS["records"]).toArrow().drop_columns(["value"])
    rows = rows.append_column("value", pa.array([os.urandom(size)]))
    for number in range(1, 61):
        assert tables.write_batch("records", rows, "c", number)
    files = tables.delta_table("records").detail().collect()[0].numFiles
    assert (files < 60) == is_compacted
    assert tables.frame("records").count() == 61


def test_a_thread_of_a_job_writes_on_when_delta_has_written_a_checkpoint(tables: Tables) -> None:
    """Delta reads its checkpoint with the session of the thread, which a new thread lacks."""
    row = with_all_columns(tables, "groups", f"{ROW}, false gone").toArrow()
    path = tables.path("groups")
    tables.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    with ThreadPoolExecutor(1) as pool:
        writes = [pool.submit(tables.write_batch, "groups", row, "c", number) for number in range(2, 8)]
        assert all(each.result() for each in writes)
    assert list(Path(path, "_delta_log").glob("*.checkpoint*.parquet"))
    assert sorted(row.number for row in tables.frame("groups").collect()) == [1, *range(2, 8)]


def test_a_cluster_may_have_any_name(tables: Tables) -> None:
    name = "a/b %41=c+d:é'\\"
    rows = with_all_columns(tables, "groups", f"{ROW}, false gone").toArrow()
    assert tables.write_batch("groups", rows, name, 1)
    assert tables.cluster_frame("groups", name).count() == 1
    state = pa.table({"key": ["k"], "saved": [b"x"]})
    for number in (1, 2):
        assert tables.write_batch("state", state, name, number, replace=True)
        assert tables.write_batch("state", state, "other", number, replace=True)
    assert tables.cluster_frame("state", name).select("number").collect() == [(2,)]
    read = DeltaTable(tables.path("state")).to_pyarrow_table()
    assert sorted(read["cluster"].to_pylist()) == [name, "other"]


def test_every_key_and_every_filtered_column_exists() -> None:
    for name, table in TABLES.items():
        columns = {column.name for column in table.columns}
        assert {*table.key, *table.filtered} <= columns, name
        assert table.sorted_by in ("", *table.filtered)
        assert all(column.text.endswith(".") for column in table.columns), name


def read_definition(tables: Tables, name: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """The comment of the table, those of its columns, and its properties, as Delta has them."""
    detail = tables.delta_table(name).detail().select("description", "properties").collect()[0]
    comments = {field.name: field.metadata["comment"] for field in tables.frame(name).schema}
    return detail.description, comments, detail.properties
