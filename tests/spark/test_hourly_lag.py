"""Each hour of `lag_hourly` says what all rows of its samples say, also when it is written late or again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from koff.spark.job import hourly_lag
from koff.spark.job.hourly_lag import HourlyLag
from koff.spark.tables.schemas import Tables
from tests.spark.settings import next_transaction
from tests.spark.test_table_checks import append

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 3, 2, 22, 20, 0, 123_456, tzinfo=UTC)
EVERY = timedelta(minutes=20)
Row = dict[str, Any]


def lag_row(number: int, topic: str, partition: int, lag: int | None, **more: Any) -> Row:
    at = BEGIN + number * EVERY
    end = 100 + 10 * number
    row: Row = {"cluster": "c", "group": "g", "topic": topic, "partition": partition, "at": at}
    row |= {"day": at.date(), "full_at": at, "ended": False, "status": "OK", "lag": lag, "end_offset": end}
    return row | {"committed": None if lag is None else end - lag, "time_lag_s": 1.0 if lag else 0.0} | more


def add_samples(tables: Tables, numbers: range) -> None:
    """Slots a/0 (lag = number), a/1 (lag 2, unknown in sample 1) and b/0 (no lag; stalled in sample 3)."""
    for number in numbers:
        unknown = {"lag": None, "time_lag_s": None, "status": "UNKNOWN"} if number == 1 else {}
        append(
            tables,
            "lag",
            lag_row(number, "a", 0, number),
            lag_row(number, "a", 1, 2) | unknown,
            lag_row(number, "b", 0, 0, status="ERR" if number == 3 else "OK"),
        )
        at = BEGIN + number * EVERY
        sample = {"cluster": "c", "at": at, "full_at": at, "batch": number, "day": at.date()}
        append(tables, "samples", sample)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    return tables


def read_hours(tables: Tables) -> dict[tuple[int, str | None], Any]:
    rows = tables.frame("lag_hourly").selectExpr("*", "hour(hour) AS h").collect()
    assert len({(row.day, row.h, row.topic) for row in rows}) == len(rows)
    return {(row.h, row.topic): row for row in rows}


def test_an_hour_has_the_extremes_and_the_last_of_its_samples(tables: Tables) -> None:
    """Samples 0 and 1 are of hour 22, 2 to 4 of hour 23, 5 of hour 0 of the next day."""
    add_samples(tables, range(6))
    hourly = HourlyLag("c", next_transaction)
    assert hourly.write_ended(tables, BEGIN + 5 * EVERY) == 2
    assert hourly.write_ended(tables, BEGIN + 5 * EVERY) == 0
    hours = read_hours(tables)
    assert hours.keys() == {(22, None), (22, "a"), (22, "b"), (23, None), (23, "a"), (23, "b")}
    first, second = hours[22, None], hours[23, None]
    assert (first.max_lag, first.min_lag, first.last_lag, first.avg_lag) == (2, 1, 1, 1.5)
    assert (first.samples, first.known_samples, first.max_unknown, first.last_unknown) == (2, 2, 1, 1)
    assert (second.max_lag, second.min_lag, second.last_lag, second.avg_lag) == (6, 4, 6, 5.0)
    assert (second.samples, second.partitions, second.max_unknown) == (3, 3, 0)
    assert (first.worst_status, second.worst_status, hours[23, "a"].worst_status) == ("OK", "ERR", "OK")
    # Three partitions grow by 10 in each sample. The first hour has one step, the next one three.
    assert (first.produced, second.produced, hours[23, "b"].produced) == (30, 90, 30)
    assert hours[23, "a"].consumed == 27 + 30
    assert (second.lost, hours[23, "b"].max_time_lag_s, second.max_time_lag_s) == (0, 0.0, 1.0)


def test_hours_without_a_job_are_written_later_and_an_hour_that_is_written_again_is_the_same(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_samples(tables, range(4))
    with monkeypatch.context() as patch:
        patch.setattr(hourly_lag, "retry_conflicts", lambda _change: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            HourlyLag("c", next_transaction).write_ended(tables, BEGIN + 3 * EVERY)
    assert not read_hours(tables)
    assert HourlyLag("c", next_transaction).write_ended(tables, BEGIN + 3 * EVERY) == 1
    before = read_hours(tables)
    add_samples(tables, range(4, 5))
    monkeypatch.setattr(hourly_lag, "MOST_HOURS", 2)
    late = HourlyLag("c", next_transaction)
    assert [late.write_ended(tables, BEGIN + 20 * EVERY) for _ in range(3)] == [2, 4, 0]
    after = read_hours(tables)
    assert after.keys() == {*before, (23, None), (23, "a"), (23, "b")}
    assert after[23, None].produced == 90
    HourlyLag("c", next_transaction)._write(
        tables, BEGIN.replace(minute=0, second=0, microsecond=0), BEGIN + 20 * EVERY
    )
    assert read_hours(tables) == after


def test_a_year_without_samples_is_left_out_at_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    add_samples(tables, range(1))
    HourlyLag("c", next_transaction).write_ended(tables, BEGIN + 3 * EVERY)
    year = 3 * 24 * 365  # samples
    add_samples(tables, range(year, year + 1))
    spans: list[tuple[datetime, datetime]] = []
    monkeypatch.setattr(HourlyLag, "_write", lambda _self, _tables, *span: spans.append(span))
    HourlyLag("c", next_transaction).write_ended(tables, BEGIN + (year + 6) * EVERY)
    hour = (BEGIN + year * EVERY).replace(minute=0, second=0, microsecond=0)
    assert [begin for begin, _ in spans] == [hour]
    assert spans[0][1] == hour + timedelta(hours=2)


def test_rows_that_hold_count_in_each_of_their_samples_and_losses_by_the_moves_of_the_start(
    tables: Tables,
) -> None:
    held = lag_row(0, "a", 0, 5, lost=2, start_offset=97)
    more = lag_row(3, "a", 0, 5, lost=6, start_offset=101, committed=95, full_at=held["at"])
    append(tables, "lag", held, more)
    for number in range(5):
        at = BEGIN + number * EVERY
        sample = {"cluster": "c", "at": at, "full_at": BEGIN, "batch": number, "day": at.date()}
        append(tables, "samples", sample)
    assert HourlyLag("c", next_transaction).write_ended(tables, BEGIN + 9 * EVERY) == 3
    hours = read_hours(tables)
    assert (hours[22, None].samples, hours[23, None].samples) == (2, 3)
    assert (hours[22, None].lost, hours[23, None].lost, hours[23, None].lost_partitions) == (0, 4, 1)
    assert hours[22, None].max_time_lag_s == pytest.approx(1 + 1200)
