"""Rows of lag that are written on change say the same of each sample as rows of all slots."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.end_offsets import Sample
from koff.spark.job.lag_changes import FullSamples, select_changed
from koff.spark.job.samples import write_sample_and_lag
from koff.spark.tables.held_rows import hold_rows
from koff.spark.tables.schemas import Tables
from tests.spark.settings import next_transaction
from tests.spark.test_table_checks import append

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
BEGIN = datetime(2026, 3, 2, 23, 40, tzinfo=UTC)
EVERY = timedelta(minutes=5)
SAMPLES, SLOTS = 14, 8
_EXACT = ("state", "committed", "end_offset", "lag", "status", "reasons", "batch", "day")


def live(seed: int) -> list[list[Row]]:
    """The rows of all slots at each sample: most are idle, some lag, some come and go."""
    chance = random.Random(seed)
    committed, end = [0] * SLOTS, [0] * SLOTS
    samples = []
    for number in range(SAMPLES):
        at, rows = BEGIN + number * EVERY, []
        for slot in range(SLOTS):
            if chance.random() < 0.3 and slot % 2:
                end[slot] += chance.choice([0, 5])
                committed[slot] = end[slot] - chance.choice([0, 0, 3])
            is_old = slot == 2  # has lag, and makes no commit: only its time lag grows
            lag = 4 if is_old else end[slot] - committed[slot]
            row: Row = {"cluster": "c", "group": f"g{slot % 3}", "topic": "t", "partition": slot, "at": at}
            row |= {"state": "Stable", "committed": committed[slot], "end_offset": end[slot], "lag": lag}
            row |= {"status": "OK", "reasons": ["ahead_of_log"] if lag < 0 else [], "batch": number}
            seconds = 60.0 + number * EVERY.total_seconds() if is_old else 7.0 if lag else 0.0
            row |= {"time_lag_s": seconds, "consume_per_s": chance.choice([1.0, 1.05]), "day": at.date()}
            row |= {"full_at": at, "ended": False}
            if not (slot in (4, 5) and chance.random() < 0.4):
                rows.append(row)
        samples.append(rows)
    return samples


@pytest.mark.parametrize("seed", range(2))
def test_what_holds_at_each_sample_is_what_all_rows_say(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    schema, writer, chance = tables.frame("lag").schema, BatchWriter(tables, "c"), random.Random(seed)
    full, samples = FullSamples(1800), live(seed)
    for number, rows in enumerate(samples):
        at = BEGIN + number * EVERY
        if chance.random() < 0.1:
            full = FullSamples(1800)  # the job was started again
        full_at = at if full.is_due(at) else full.newest or at
        frame = spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
        writer.write_lag(frame if full_at == at else select_changed(tables, "c", frame, at, full_at))
        if number == 9:
            full = FullSamples(1800)  # killed before the sample was complete
            continue
        writer.note_sample(at, full_at, number, 1)
        full.newest = full_at
    held = hold_rows(tables.frame("lag"), tables.frame("samples")).collect()
    expected = {key(row): row for number, rows in enumerate(samples) if number != 9 for row in rows}
    assert len(held) == len(expected)
    for row in held:
        said = expected[key(row.asDict())]
        assert {name: row[name] for name in _EXACT} == {name: said[name] for name in _EXACT}
        assert row.time_lag_s == pytest.approx(said["time_lag_s"], abs=0.2)
        assert row.consume_per_s == pytest.approx(said["consume_per_s"], rel=0.1)
    written = tables.frame("lag").count()
    assert written < 0.75 * len(expected)

    # The second day says the same when the rows of the first one have expired.
    for name in ("lag", "samples"):
        tables.delta_table(name).delete(f"day = DATE'{BEGIN.date()}'")
    left = hold_rows(tables.frame("lag"), tables.frame("samples")).collect()
    later = {slot for slot, row in expected.items() if row["day"] > BEGIN.date()}
    assert {key(row.asDict()) for row in left} == later


def key(row: Row) -> tuple[Any, ...]:
    at = row["at"] if row["at"].tzinfo else row["at"].astimezone(UTC)
    return row["group"], row["topic"], row["partition"], at


def test_a_sample_is_full_at_the_start_when_it_is_due_and_when_the_clock_was_set_back() -> None:
    full = FullSamples(600)
    assert full.is_due(BEGIN)
    full.newest = BEGIN
    assert not full.is_due(BEGIN + timedelta(seconds=599))
    assert full.is_due(BEGIN + timedelta(seconds=600))
    assert full.is_due(BEGIN - timedelta(seconds=1))
    day = FullSamples(43_200, BEGIN)
    assert not day.is_due(BEGIN + timedelta(seconds=1199))
    assert day.is_due(BEGIN + timedelta(seconds=1200))  # the next day
    assert FullSamples(0, BEGIN).is_due(BEGIN)


def test_a_job_writes_all_slots_in_its_first_sample_and_what_has_changed_in_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    slot = {"cluster": "c", "group": "g", "topic": "t", "committed": 4, "deleted": False}
    record = {"offsets_partition": 0, "log_offset": 0}
    append(tables, "current", *({**slot, **record, "partition": number} for number in range(3)))
    curves, full = EndCurves("c", next_transaction, reach_s=86_400), FullSamples(600)
    for number in range(4):
        at = BEGIN + timedelta(seconds=30 * number)
        ends = (4, 4 + number, 4 if number < 3 else 9)
        rows = [Sample(at, "t", partition, None, 0, end, end, False) for partition, end in enumerate(ends)]
        taken = write_sample_and_lag(
            BatchWriter(tables, "c"), partial(take, rows), number, curves, full, reach_s=86_400
        )
        assert taken == 3
    # From the second sample on, the rates of all partitions are known.
    written = tables.frame("lag").where("batch <> 1").selectExpr("batch", "partition").collect()
    assert sorted(map(tuple, written)) == [(0, 0), (0, 1), (0, 2), (2, 1), (3, 1), (3, 2)]
    held = hold_rows(tables.frame("lag"), tables.frame("samples")).where("batch = 3").collect()
    assert sorted((row.partition, row.lag) for row in held) == [(0, 0), (1, 3), (2, 5)]
    assert {row.at.astimezone(UTC) for row in held} == {BEGIN + timedelta(seconds=90)}


def take(rows: list[Sample], _current: DataFrame, _states: DataFrame) -> list[Sample]:
    return rows
