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

from koff.lag import Reason
from koff.spark.decoding import RAW, decoded
from koff.spark.lags import joined, lag_rows
from koff.spark.samples import Sample
from koff.spark.tables import TABLES, Tables
from koff.spark.writing import Writer
from koff.tracker import Tracker
from koff.tracker.groups import Group
from tests.unit.builders import GOLDEN, commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_MS = 30_000
Record = tuple[int, int, int, bytes | None, bytes | None]
"""Partition of the offsets topic, offset in it, timestamp, key and value."""
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
    slots = sorted({*known.watched(), *(at for _, at in lively if at)})
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


def tracked(records: list[Record], samples: list[tuple[int, Ends]], ids: dict[str, str]) -> Tracker:
    tracker = Tracker()
    tracker.identify_topics(ids)
    left = list(records)
    for at_ms, ends in samples:
        while left and left[0][2] < at_ms:
            partition, _, seen_ms, key, value = left.pop(0)
            tracker.apply(partition, [key], [value], seen_at_ms=seen_ms)
        tracker.sample(ends=ends, starts=starts(ends), stables=ends, at_ms=at_ms)
    assert not left
    return tracker


def starts(ends: Ends) -> Ends:
    return {at: end // 4 for at, end in ends.items()}


def decoded_frame(spark: SparkSession, records: list[Record]) -> Any:
    columns: list[pa.Array] = [
        pa.array(column, kind.type) for column, kind in zip(zip(*records, strict=True), RAW, strict=True)
    ]
    batch = decoded(pa.RecordBatch.from_arrays(columns, schema=RAW), "c")
    return spark.createDataFrame(pa.Table.from_batches([batch]))


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
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Tracker, int]:
    records, samples, ids = story()
    tables = Tables(spark, str(tmp_path_factory.mktemp("parity") / "t"))
    tables.create()
    writer = Writer(tables, "c")
    writer.sample(rounds(samples[:-1], ids), 0)
    names = {topic_id: name for name, topic_id in ids.items()}
    half = len(records) * 2 // 3
    for part in (records[:half], records[half:]):
        writer.write(decoded_frame(spark, part).persist(), names)
    writer.sample(rounds(samples[-1:], ids), 1)
    ends = tables.of("end_offsets", "c")
    last = ends.where(f.col("batch") == 1)
    rows = joined(last, tables.of("current", "c"), tables.of("group_states", "c"), ends, reach_s=86_400)
    writer.lag(rows.mapInArrow(lag_rows, TABLES["lag"].ddl))
    return tables, tracked(records, samples, ids), samples[-1][0]


def test_lag_and_status_are_the_trackers(both: tuple[Tables, Tracker, int]) -> None:
    tables, tracker, now_ms = both
    ours = {(row["group"], row.topic, row.partition): row for row in tables.frame("lag").collect()}
    theirs = {(row.group, row.topic, row.partition): row for row in tracker.snapshot(now_ms).rows()}
    assert {at for at in theirs if at[1] != "?"} == {at for at in ours if at in theirs}
    assert len(ours) > 40
    wrong = []
    for at in ours.keys() & theirs.keys():
        mine, its = ours[at], theirs[at]
        pairs = {
            "state": (mine.state, its.state),
            "committed": (mine.committed, its.committed),
            "end": (mine.end_offset, its.end),
            "lag": (mine.lag, its.lag),
            "readable": (mine.readable, its.readable),
            "lost": (mine.lost, its.lost),
            "stable": (mine.lag_to_stable, its.lag_to_stable),
            "status": (mine.status, its.status.name),
            "reasons": (mine.reasons, ",".join(Reason(its.reasons).names)),
            "consume": (_rounded(mine.consume_per_s), _rounded(its.pace.consume_per_s)),
            "produce": (_rounded(mine.produce_per_s), _rounded(its.pace.produce_per_s)),
            "client": (mine.client_id, its.member and its.member.client_id),
        }
        if mine.time_lag_s is not None:
            pairs["time lag"] = (_rounded(mine.time_lag_s), _rounded(its.time_lag_s))
        wrong += [(at, name, pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    assert not wrong, wrong[:20]
    assert sum(row.time_lag_s is not None for row in ours.values()) > 20
    assert {row.status for row in ours.values()} >= {"OK", "STOP", "STALL", "REWIND"}


def test_groups_members_and_assignments_are_the_trackers(both: tuple[Tables, Tracker, int]) -> None:
    tables, tracker, _ = both
    newest = {}
    for row in tables.frame("groups").orderBy("log_offset").collect():
        newest[row["group"]] = row
    theirs = {group.name: group for group in tracker.snapshot().groups() if group != Group(group.name)}
    assert {name for name, row in newest.items() if not row.gone} >= theirs.keys()
    for name, group in theirs.items():
        row = newest[name]
        assert (row.type, row.state, row.epoch, row.assignment_epoch, row.members) == (
            group.type,
            group.state,
            group.epoch,
            group.assignment_epoch,
            sum(member.present for member in group.members),
        ), name
    saved = {row["group"]: row for row in tables.frame("group_states").where("type is not null").collect()}
    for name, group in theirs.items():
        held = sorted((m.client_id, p) for m in group.members for ps in m.assigned.values() for p in ps)
        assert sorted((each.client_id, each.partition) for each in saved[name].assigned) == held


def test_every_record_is_in_one_table_once(both: tuple[Tables, Tracker, int]) -> None:
    tables, _, _ = both
    commits = tables.frame("commits")
    assert commits.count() == commits.select("offsets_partition", "log_offset").distinct().count()
    slots = tables.frame("current")
    assert slots.count() == slots.select("group", "topic", "partition").distinct().count()


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
