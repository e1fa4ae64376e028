"""Rows become files of their days, and Delta's log says what is in them. Needs no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from koff.spark.tables import data_files
from koff.spark.tables.data_files import DataFiles
from koff.spark.tables.schemas import TABLES

AT = datetime(2026, 3, 2, 23, 59, 59, 999000, UTC)


def make_rows(*rows: dict[str, Any]) -> pa.RecordBatch:
    schema = pa.schema([each.with_nullable(True) for each in TABLES["records"].schema])
    basis = {"offsets_partition": 0, "kind": "OffsetCommit", "timestamp": AT}
    full = [basis | {"log_offset": number} | row for number, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(full, schema)


def write(folder: Path, *batches: pa.RecordBatch, cluster: str = "c") -> list[dict[str, Any]]:
    """What Delta's log says of the files."""
    files = DataFiles("records", str(folder), cluster, 7, AT)
    for batch in batches:
        files.write(batch)
    return [json.loads(each.action)["add"] for each in files.close()]


def test_each_day_has_a_file_and_a_row_without_a_time_is_of_the_day_of_the_batch(tmp_path: Path) -> None:
    later = AT + timedelta(milliseconds=1)
    rows = make_rows({"timestamp": later}, {"timestamp": None}, {"timestamp": AT}, {"timestamp": later})
    added = write(tmp_path, rows)
    days = {each["partitionValues"]["day"]: each for each in added}
    offsets = {
        day: pq.read_table(tmp_path / unquote(each["path"]), partitioning=None)["log_offset"].to_pylist()
        for day, each in days.items()
    }
    assert offsets == {"2026-03-02": [1, 2], "2026-03-03": [0, 3]}
    stats = json.loads(days["2026-03-02"]["stats"])
    assert (stats["numRecords"], stats["nullCount"]["timestamp"]) == (2, 1)
    assert stats["minValues"] == {
        "number": 7,
        "offsets_partition": 0,
        "log_offset": 1,
        "timestamp": "2026-03-02T23:59:59.999Z",
    }


def test_files_that_are_not_on_disk_have_their_bytes() -> None:
    files = DataFiles("records", None, "c", 7, AT)
    files.write(make_rows({"group": "g"}))
    (file,) = files.close()
    assert file.content is not None
    assert json.loads(file.action)["add"]["size"] == len(file.content)
    assert pq.read_table(pa.BufferReader(file.content))["group"].to_pylist() == ["g"]


def test_so_many_files_are_open_at_once_and_no_row_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a record is its client's: it may be of any day."""
    monkeypatch.setattr(data_files, "MOST_OPEN", 3)
    rows = make_rows(*({"timestamp": AT - timedelta(days=day)} for day in range(8)))
    added = write(tmp_path, rows, rows)
    assert len(added) == 16  # a file that was closed is not opened again
    assert sum(json.loads(each["stats"])["numRecords"] for each in added) == 16


@pytest.mark.parametrize(("name", "is_known"), [("g" * 256, True), ("g" * 257, False)])
def test_a_long_name_is_no_statistic(tmp_path: Path, name: str, is_known: bool) -> None:
    (added,) = write(tmp_path, make_rows({"group": name}))
    assert ("group" in json.loads(added["stats"])["maxValues"]) == is_known


def test_a_row_that_lacks_what_every_row_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match="null"):
        write(tmp_path, make_rows({"kind": None}))
