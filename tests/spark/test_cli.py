"""`koff pipeline` with what cannot work: one line, an exit code, and nothing half-written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from koff.kafkatest import free_ports
from koff.spark.tables import PROPERTY, TABLES, Tables, WrongTables
from tests.koff_process import run_koff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_a_cluster_that_cannot_be_reached_is_named_before_anything_is_written(tmp_path: Path) -> None:
    tables, port = tmp_path / "t", free_ports(1)[0]
    done = run_koff(
        "pipeline", "run", "--brokers", f"127.0.0.1:{port}", "--tables", str(tables), timeout_s=60
    )
    assert done.returncode == 1
    assert last_line(done.stderr).startswith(f"Error: cluster 127.0.0.1:{port}: ")
    assert not tables.exists()


def test_missing_java_is_told_with_the_cure(tmp_path: Path) -> None:
    env = {"JAVA_HOME": str(tmp_path)}
    done = run_koff("pipeline", "maintain", "--tables", str(tmp_path / "t"), env=env, timeout_s=60)
    assert done.returncode == 1
    assert "install a JDK 17" in last_line(done.stderr)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("run",), "say either --brokers, or --config"),
        (("run", "--brokers", "a:1", "--config", "x"), "say either --brokers, or --config"),
        (("run", "--brokers", "a:1", "--interval", "never"), "'never' is no duration"),
        (("backfill", "--segments", "x"), "--segments needs --cluster-name"),
    ],
)
def test_options_that_contradict_are_refused(tmp_path: Path, args: tuple[str, ...], told: str) -> None:
    done = run_koff("pipeline", *args, "--tables", str(tmp_path / "t"), timeout_s=60)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_folder_of_somebody_else_and_one_that_is_not_there_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(WrongTables, match="holds other things"):
        Tables(spark, str(tmp_path)).create()
    with pytest.raises(WrongTables, match="no tables of koff's"):
        Tables(spark, str(tmp_path / "absent")).check()
    assert [each.name for each in tmp_path.iterdir()] == ["photos"]


def test_tables_of_another_version_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create()
    tables.check()
    assert {each.name for each in (tmp_path / "t").iterdir()} == TABLES.keys()
    spark.sql(f"ALTER TABLE delta.`{tables.path('lag')}` SET TBLPROPERTIES ('{PROPERTY}' = '99')")
    for ask in (tables.create, tables.check):
        with pytest.raises(WrongTables, match="has schema 99, this koff writes 1"):
            ask()


@pytest.mark.timeout(300)
def test_a_backfill_ends_with_what_it_took_and_where_it_is(tmp_path: Path) -> None:
    segments = Path(__file__).parents[1] / "golden" / "segments" / "none.log"
    told = ("--segments", str(segments), "--cluster-name", "c", "--tables", str(tmp_path / "t"))
    done = run_koff("pipeline", "backfill", *told, timeout_s=240)
    assert done.returncode == 0, done.stderr
    line = r"[\d,]+ records, [\d,]+ of them commits, in [\d.]+ s \([\d,]+ records/s\), into "
    assert re.fullmatch(line + re.escape(str(tmp_path / "t")), last_line(done.stderr))
