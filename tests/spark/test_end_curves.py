"""Time lags by curves of end offsets are those by all samples, whatever happens to the curves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from koff.spark.job import end_curves
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.end_curves import EndCurves, _extend_curves
from koff.spark.job.end_offsets import Sample
from koff.spark.job.lag_rows import join_lag_inputs, lag_rows
from koff.spark.tables.schemas import TABLES, Tables
from tests.spark.settings import next_transaction
from tests.spark.test_table_checks import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Point = tuple[int, int]
"""A time in ms, and an end offset."""
BEGIN_MS = 1_790_000_040_000
EVERY_MS, SAMPLES, PARTITIONS = 60_000, 100, 12
REACH_S = 4_800.0
IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", None)
_POINTS = pa.list_(pa.struct([("at_ms", pa.int64()), ("end", pa.int64())]))


def live(chance: random.Random) -> list[list[Sample]]:
    """Samples of partitions that grow, stand still, are truncated, or are of a topic that is made again."""
    ends = [0] * PARTITIONS
    ids: list[str | None] = [IDS[0]] * PARTITIONS
    samples = []
    for number in range(SAMPLES):
        at = datetime.fromtimestamp((BEGIN_MS + number * EVERY_MS) / 1000, UTC)
        taken = []
        for partition in range(PARTITIONS):
            ends[partition] += chance.choice([0, 0, 1, 7, 40 * (partition % 3)])
            if partition % 4 == 1 and chance.random() < 0.02:
                ends[partition] //= 2
            if partition % 4 == 2 and chance.random() < 0.02:
                ends[partition], ids[partition] = 0, chance.choice(IDS)
            end = None if chance.random() < 0.05 and number < SAMPLES - 1 else ends[partition]
            sample = Sample(at, f"t{partition}", 0, ids[partition], 0, end, end, gone=False)
            taken.append(sample)
        if chance.random() < 0.9 or number == SAMPLES - 1:  # otherwise a gap
            samples.append(taken)
    return samples


def expect_time_lag(samples: list[list[Sample]], partition: int, committed: int) -> float | None:
    """By all samples of the topic since the log was truncated last."""
    last = samples[-1][partition]
    now_ms = round(last.at.timestamp() * 1000)
    points: list[Point] = []
    for taken in samples:
        sample = taken[partition]
        at_ms = round(sample.at.timestamp() * 1000)
        if sample.end_offset is None or sample.topic_id != last.topic_id or at_ms < now_ms - REACH_S * 1000:
            continue
        if points and sample.end_offset < points[-1][1]:
            points = []
        points.append((at_ms, sample.end_offset))
    if committed >= points[-1][1]:
        return 0.0
    below = [number for number, (_, end) in enumerate(points) if end <= committed]
    if not below:
        return None
    (since_ms, before), (until_ms, after) = points[below[-1]], points[below[-1] + 1]
    share = (committed - before + 1) / (after - before + 1)
    return (now_ms - since_ms - share * (until_ms - since_ms)) / 1000


def read_time_lags(tables: Tables, curves: EndCurves, now: datetime) -> dict[tuple[str, str], float | None]:
    ends, older = curves.read(tables, now)
    current, states = (tables.cluster_frame(name, "c") for name in ("current", "group_states"))
    rows = join_lag_inputs(ends.where(ends.at == now), current, states, ends, older, reach_s=REACH_S)
    made = rows.mapInArrow(lag_rows, TABLES["lag"].ddl).collect()
    return {(row["group"], row.topic): row.time_lag_s for row in made}


@pytest.mark.parametrize("seed", range(2))
def test_time_lags_do_not_depend_on_how_samples_were_folded(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = random.Random(seed)
    tables = Tables(spark, str(tmp_path_factory.mktemp("curves") / "t"))
    tables.create_tables()
    samples = live(chance)
    now = samples[-1][0].at
    commits = {
        (f"g{number}", f"t{partition}"): chance.randrange((samples[-1][partition].end_offset or 0) + 1)
        for number in range(3)
        for partition in range(PARTITIONS)
    }
    slots = (
        {"group": group, "topic": topic, "partition": 0, "committed": committed, "deleted": False}
        for (group, topic), committed in commits.items()
    )
    record = {"cluster": "c", "offsets_partition": 0, "log_offset": 0}
    append(tables, "current", *({**slot, **record} for slot in slots))

    def start() -> EndCurves:
        return EndCurves("c", next_transaction, reach_s=REACH_S, fold_s=120)

    curves, left, folds = start(), samples[:], 0
    while left:
        part = [left.pop(0) for _ in range(min(len(left), chance.randint(1, 25)))]
        BatchWriter(tables, "c").write_sample([each for taken in part for each in taken], None)
        for taken in part:
            curves.note_sample(taken[0].at)
        event = chance.choice(["fold", "fold", "fold", "restart", "killed", "lost"])
        if event == "fold":
            folds += curves.fold_if_due(tables)
        if event == "killed":
            with monkeypatch.context() as patch:
                patch.setattr(end_curves, "retry_conflicts", lambda _change: 1 / 0)
                with suppress(ZeroDivisionError):  # unless none is due
                    curves.fold_if_due(tables)
        if event == "lost":
            tables.delta_table("end_curves").delete()
        if event != "fold":
            curves = start()
    assert folds
    found, full = (read_time_lags(tables, each, now) for each in (start(), EndCurvesOfNone(reach_s=REACH_S)))
    assert found.keys() == full.keys() == commits.keys()
    expected = {slot: expect_time_lag(samples, int(slot[1][1:]), at) for slot, at in commits.items()}
    assert sum(each is not None and each > 1800 for each in expected.values()) > 2
    for slot, seconds in expected.items():
        close = None if seconds is None else pytest.approx(seconds, abs=0.3)
        assert full[slot] == close, slot
        assert found[slot] == close, slot


class EndCurvesOfNone(EndCurves):
    """Finds no curves, and so reads all samples."""

    def __init__(self, *, reach_s: float) -> None:
        super().__init__("c", next_transaction, reach_s=reach_s)
        self._is_loaded = True


def test_curves_do_not_depend_on_how_samples_were_divided() -> None:
    """Also when they lose points. Without Spark."""
    for seed in range(20):
        chance = random.Random(seed)
        ends, samples = [0, 0, 0], []
        for number in range(300):
            ends = [end + chance.choice([0, 3, 50]) for end in ends]
            samples.append([(BEGIN_MS + number * EVERY_MS, end) for end in ends])
        whole = extend([[], [], []], samples)
        curves: list[list[Point]] = [[], [], []]
        while samples:
            size = chance.randint(1, 60)
            curves, samples = extend(curves, samples[:size]), samples[size:]
        assert curves == whole
        assert all(50 < len(curve) <= 60 for curve in curves)


def extend(curves: list[list[Point]], samples: list[list[Point]]) -> list[list[Point]]:
    columns = {
        "topic": pa.array(["t"] * len(curves)),
        "partition": pa.array(range(len(curves)), pa.int32()),
        "id": pa.array([""] * len(curves)),
        "points": pa.array([make_points(curve) for curve in curves], _POINTS),
        "newer": pa.array([make_points(each) for each in zip(*samples, strict=True)], _POINTS),
    }
    (batch,) = run(pa.RecordBatch.from_pydict(columns))
    return [[(point["at_ms"], point["end"]) for point in row["points"]] for row in batch.to_pylist()]


def run(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return _extend_curves([batch], since_ms=0, points=60)


def make_points(points: list[Point] | tuple[Point, ...]) -> list[dict[str, int]]:
    return [{"at_ms": at_ms, "end": end} for at_ms, end in points]
