"""The same log and the same samples of ends give the same by the pipeline as by the daemon's tracker."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.end_offsets import Sample
from koff.spark.job.lag_rows import join_lag_inputs, lag_rows
from koff.spark.job.share_lags import DDL, ShareRow
from koff.spark.rows.decoding import RAW, decode_batch
from koff.spark.rows.packing import pack_batches
from koff.spark.tables.schemas import TABLES, Tables
from koff.tracker import ShareLag, Tracker
from tests.spark.parity import OF_STATE, Record, differences, tracked, tracked_lags, written_lags
from tests.spark.settings import codegen
from tests.unit.builders import GOLDEN, commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_MS = 30_000
SHARES = [
    ShareRow("rec-share", "busy-0", partition, lag=lag, not_current=False)
    for partition, lag in ((0, 7), (3, 0), (6, None))
]
"""What coordinators returned: behind, caught up, not read."""
Ends = dict[tuple[str, int], int]


def golden() -> list[Record]:
    """What real groups of every kind wrote."""
    cases = map(json.loads, GOLDEN.read_text().splitlines())
    return [
        (
            case["partition"],
            case["offset"],
            case["timestamp"],
            bytes.fromhex(case["key_hex"]),
            None if case["value_hex"] is None else bytes.fromhex(case["value_hex"]),
        )
        for case in cases
        if case["topic"] == "__consumer_offsets" and case["visible_read_committed"]
    ]


def busy(
    begin_ms: int, minutes: int = 12, slots: int = 40
) -> Iterator[tuple[Record, tuple[str, int] | None]]:
    """Groups that keep up, fall behind, stop, rewind and are deleted, a few commits a second."""
    chance = random.Random(4)
    at = dict.fromkeys(range(slots), 0)
    offset = 10_000
    for second in range(minutes * 60):
        now_ms = begin_ms + second * 1000
        for slot in chance.sample(range(slots), 3):
            group, topic, partition = f"busy-{slot % 8}", f"busy-{slot % 3}", slot
            if slot < 6 and second > 300:
                continue  # stopped
            step = 0 if slot < 12 else chance.randrange(40) - (60 if slot < 16 and second > 600 else 0)
            at[slot] = max(0, at[slot] + step)
            gone = slot == 20 and second % 200 == 0
            offset += 1
            key, value = commit(group, topic, partition, None if gone else at[slot], at=now_ms, version=3)
            yield (49, offset, now_ms, key, value), (topic, partition)


def story() -> tuple[list[Record], list[tuple[int, Ends]], dict[str, str]]:
    """The log in the order of time, the samples of ends, and the topics' ids by name."""
    records = sorted(golden(), key=lambda r: (r[2], r[0], r[1]))
    begin_ms = records[-1][2] + INTERVAL_MS
    lively = list(busy(begin_ms))
    records += [record for record, _ in lively]
    known = Tracker()
    for partition, _, _, key, value in records:
        known.apply(partition, [key], [value])
    slots = sorted({*known.watched_partitions(), *(at for _, at in lively if at)})
    chance = random.Random(5)
    speed = {at: chance.choice([0, 1, 17]) for at in slots}
    first_ms = begin_ms - 8 * INTERVAL_MS + 1000  # the tracker forgets what nobody reads for ten minutes
    samples = []
    for round_, at_ms in enumerate(range(first_ms, records[-1][2] + 2 * INTERVAL_MS, INTERVAL_MS)):
        samples.append((at_ms, {at: speed[at] * round_ * 5 for at in slots}))
    topics = {topic for topic, _ in slots}
    ids = {
        topic: f"AAAAAAAAAAAAAAAAAAA{number:03d}"[:21] + "A" for number, topic in enumerate(sorted(topics))
    }
    return records, samples, {name: topic_id for name, topic_id in ids.items() if not name.startswith("rec")}


def starts(ends: Ends) -> Ends:
    return {at: end // 4 for at, end in ends.items()}


def packed_frame(spark: SparkSession, records: list[Record]) -> Any:
    columns: list[pa.Array] = [
        pa.array(column, kind.type) for column, kind in zip(zip(*records, strict=True), RAW, strict=True)
    ]
    batch = decode_batch(pa.RecordBatch.from_arrays(columns, schema=RAW), "c")
    return spark.createDataFrame(pa.Table.from_batches(list(pack_batches([batch]))))


def rounds(samples: list[tuple[int, Ends]], ids: dict[str, str]) -> list[Sample]:
    return [
        Sample(
            datetime.fromtimestamp(at_ms / 1000, UTC),
            *at,
            ids.get(at[0]),
            starts(ends)[at],
            end,
            end,
            gone=False,
        )
        for at_ms, ends in samples
        for at, end in ends.items()
    ]


@pytest.fixture(scope="module")
def both(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Tables, Tracker, int]]:
    """The tables, the tracker, and the time of the last sample. Spark compiles, as for large batches."""
    records, samples, ids = story()
    with codegen(spark):
        tables = Tables(spark, str(tmp_path_factory.mktemp("parity") / "t"))
        tables.create_tables()
        writer = BatchWriter(tables, "c")
        writer.write_sample(rounds(samples[:-1], ids), 0)
        names = {topic_id: name for name, topic_id in ids.items()}
        half = len(records) * 2 // 3
        for part in (records[:half], records[half:]):
            writer.write(packed_frame(spark, part).persist(), names)
        writer.write_sample(rounds(samples[-1:], ids), 1)
        ends = tables.cluster_frame("end_offsets", "c")
        last = ends.where(f.col("batch") == 1)
        rows = join_lag_inputs(
            last,
            tables.cluster_frame("current", "c"),
            tables.cluster_frame("group_states", "c"),
            ends,
            reach_s=86_400,
            shares=spark.createDataFrame(SHARES, DDL),
        )
        writer.write_lag(rows.mapInArrow(lag_rows, TABLES["lag"].ddl))
        tracker = tracked(records, rounds(samples, ids))
        tracker.set_offsets_partitions(50)
        returned = [ShareLag(row.topic, "", row.partition, row.lag) for row in SHARES]
        tracker.shares.describe({"rec-share": returned}, requested_ms=samples[-1][0])
        yield tables, tracker, samples[-1][0]


def test_lag_and_status_are_the_trackers(both: tuple[Tables, Tracker, int]) -> None:
    """But of topics of which nothing but an id is known: there the tracker tells no two apart."""
    tables, tracker, now_ms = both
    daemons = {at: told for at, told in tracked_lags(tracker.take_snapshot(now_ms)).items() if at[1] != "?"}
    written = written_lags(tables, now_ms)
    ours = {at: told for at, told in written.items() if at[:2] not in _nameless(tracker)}
    found = differences(daemons, ours)
    assert not found, found[:20]

    def told(what: str) -> list[Any]:
        return [value for at, value in written.items() if at[-1] == what]

    assert len(told("status")) > 40
    assert sum(seconds is not None for seconds in told("time_lag_s")) > 20
    assert {*told("status")} >= {"OK", "WARN", "ERR"}
    assert [written["rec-share", "busy-0", row.partition, "lag"] for row in SHARES] == [7, 0, None]


def _nameless(tracker: Tracker) -> set[tuple[str, str]]:
    """Groups, and the ids of topics they are assigned whose names nobody has told."""
    snapshot = tracker.take_snapshot()
    return {
        (group.name, topic_id)
        for group in snapshot.groups()
        if group.assigned_by_id
        for member in group.members
        for topic_id in member.assigned.keys() - snapshot.topic_names.keys()
    }


@pytest.mark.parametrize("what", OF_STATE)
def test_what_does_not_depend_on_samples_is_the_trackers(
    both: tuple[Tables, Tracker, int], what: str
) -> None:
    tables, tracker, _ = both
    daemons, pipelines = OF_STATE[what]
    found = differences(daemons(tracker.take_snapshot()), pipelines(tables))
    assert not found, found[:20]


def test_every_record_is_in_one_table_once(both: tuple[Tables, Tracker, int]) -> None:
    tables, _, _ = both
    commits = tables.frame("commits")
    assert commits.count() == commits.select("offsets_partition", "log_offset").distinct().count()
    slots = tables.frame("current")
    assert slots.count() == slots.select("group", "topic", "partition").distinct().count()
