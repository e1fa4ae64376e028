"""A backfill of segments goes in batches, and one that was interrupted continues where it was."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from koff.spark.job.batch_progress import STEPS, ProgressCounter

from koff.errors import ConfigError, KoffError
from koff.spark.job.segments_backfill import SegmentsBatch, backfill_segments, check_segments
from koff.spark.rows.decoding import DataLost
from koff.spark.source.log_segments import SegmentsOptions, SegmentsReader, make_batch_options
from koff.spark.source.segment_files import NO_END, Segments, plan_batches
from koff.spark.tables.schemas import Tables
from tests.spark.test_exactly_once import DERIVED, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPEN_FROM = 1010
"""The offset of the golden segment from which a transaction is open."""
GOLDEN = Path(__file__).parents[1] / "golden" / "segments" / "none.log"


def split_golden(folder: Path, *, files: int, topic_id: str = "") -> Path:
    """The golden segment as several files of partition 7, cut between record batches."""
    log, data, starts, at = folder / "__consumer_offsets-7", GOLDEN.read_bytes(), [], 0
    log.mkdir(parents=True)
    while at < len(data):
        starts.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    assert len(starts) >= files
    cuts = [starts[len(starts) * number // files] for number in range(files)]
    for start, end in pairwise([*cuts, len(data)]):
        base = int.from_bytes(data[start : start + 8], "big")
        (log / f"{base:020}.log").write_bytes(data[start:end])
    if topic_id:
        (log / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return folder


def make_log(partition: int, **sizes: int) -> Segments:
    """A log whose files have these first offsets (`o100`) and sizes."""
    names = tuple(f"/data/__consumer_offsets-{partition}/{int(name[1:]):020}.log" for name in sizes)
    return Segments(partition, names, tuple(sizes.values()), 0, len(names))


def list_parts(batches: list[list[Segments]]) -> list[list[tuple[int, int, int]]]:
    return [[(each.partition, each.first, each.last) for each in batch] for batch in batches]


def test_a_batch_has_at_most_so_many_bytes_or_one_file() -> None:
    logs = [make_log(0, o0=40, o100=40, o200=40), make_log(1, o0=500), make_log(2, o0=10, o5=10)]
    assert list_parts(plan_batches(logs, {}, 100)) == [
        [(0, 0, 2)],
        [(0, 2, 3)],
        [(1, 0, 1)],
        [(2, 0, 2)],
    ]
    assert list_parts(plan_batches(logs, {}, 10_000)) == [[(0, 0, 3), (1, 0, 1), (2, 0, 2)]]


def test_a_log_may_begin_with_an_empty_file() -> None:
    """A partition without records has one such file."""
    assert list_parts(plan_batches([make_log(0, o0=0), make_log(1, o0=0, o5=40)], {}, 100)) == [
        [(0, 0, 1), (1, 0, 2)]
    ]


def test_files_that_the_tables_have_are_left_out_but_never_the_last_one() -> None:
    log = make_log(0, o0=40, o100=40, o200=40, o300=40)
    assert list_parts(plan_batches([log], {0: [(100, 200)]}, 10_000)) == [[(0, 0, 1), (0, 2, 4)]]
    assert list_parts(plan_batches([log], {0: [(0, 5_000)]}, 10_000)) == [[(0, 3, 4)]]
    assert list_parts(plan_batches([log], {0: [(0, NO_END)]}, 10_000)) == []
    assert list_parts(plan_batches([log], {0: [(0, 150)]}, 10_000)) == [[(0, 1, 4)]]
    assert list_parts(plan_batches([log], {1: [(0, 5_000)]}, 10_000)) == [[(0, 0, 4)]]


def test_the_batches_give_the_rows_of_the_whole_without_covered_offsets(tmp_path: Path) -> None:
    path = str(split_golden(tmp_path, files=5))

    def read(**options: str) -> list[dict[str, Any]]:
        source = SegmentsReader(SegmentsOptions.parse({"path": path, **options}))
        found = [
            row for share in source.partitions() for part in source.read(share) for row in part.to_pylist()
        ]
        return sorted(found, key=lambda row: row["log_offset"])

    (whole,) = SegmentsReader(SegmentsOptions.parse({"path": path, "tasks": "1"})).partitions()
    batches = plan_batches(whole.segments, {}, 1)
    assert len(batches) == 5
    parts = [read(**make_batch_options(batch, {})) for batch in batches]
    assert [row for part in parts for row in part] == read()
    left = read(**make_batch_options(batches[0], {7: [(0, NO_END)]}))
    assert left == []
    (first,) = batches[0]
    (tmp_path / "__consumer_offsets-7" / Path(first.files[0]).name).unlink()
    with pytest.raises(ConfigError, match="segments of partition 7 are gone"):
        read(**make_batch_options(batches[0], {}))


@pytest.mark.timeout(600)
def test_an_interrupted_backfill_does_not_read_again_what_is_in_the_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(split_golden(tmp_path / "copy", files=6))
    calm, torn = Tables(spark, str(tmp_path / "calm")), Tables(spark, str(tmp_path / "torn"))
    for tables in (calm, torn):
        tables.create_tables()
    whole = backfill_segments(calm, path, "c")
    assert whole.records > 0

    # The process is killed in the fourth of six batches, after the third is noted.
    seen: list[SegmentsBatch] = []

    def die(done: SegmentsBatch) -> None:
        seen.append(done)
        if done.number == 3:
            raise KoffError("killed")

    with pytest.raises(KoffError, match="killed"):
        backfill_segments(torn, path, "c", progress=die, most_bytes=1)
    counter = ProgressCounter(spark)
    again: list[SegmentsBatch] = []
    backfill_segments(torn, path, "c", counter, again.append, most_bytes=1)
    files = sorted(Path(path).rglob("*.log"))
    # One of the first files has the start of a transaction that no file ends: it may get records later.
    is_open = [int(file.stem) <= OPEN_FROM < int(after.stem) for file, after in pairwise(files)]
    left = [file for file, open_here in zip(files[:3], is_open, strict=False) if open_here] + files[3:]
    assert len(again) == len(left) == 4
    assert counter.done == counter.todo == sum(file.stat().st_size for file in left)
    for name in DERIVED:
        assert rows(torn.frame(name)) == rows(calm.frame(name)), name


@pytest.mark.timeout(600)
def test_segments_of_another_topic_of_that_name_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    one = str(split_golden(tmp_path / "one", files=2, topic_id="nxZ4NwH0RxqKOgw25xA3Ow"))
    other = str(split_golden(tmp_path / "other", files=2, topic_id="AAAAAAH0RxqKOgw25xA3Ow"))
    backfill_segments(tables, one, "c")
    assert {row[0] for row in tables.frame("coverage").select("topic_id").collect()} == {
        "nxZ4NwH0RxqKOgw25xA3Ow"
    }
    with pytest.raises(DataLost, match="was created again"):
        backfill_segments(tables, other, "c")


def test_segments_of_two_topics_at_once_are_refused(tmp_path: Path) -> None:
    one = split_golden(tmp_path / "one", files=1, topic_id="one")
    other = split_golden(tmp_path / "other", files=1, topic_id="other")
    (other / "__consumer_offsets-7").rename(other / "__consumer_offsets-8")
    check_segments(str(one))
    with pytest.raises(ConfigError, match="segments of two topics"):
        check_segments(f"{one},{other}")


class FakeTracker:
    """Spark's status tracker: jobs by number, each (tasks done, tasks)."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, int]] = {}

    def getJobIdsForGroup(self, _: str | None) -> list[int]:  # Spark's name
        return [*self.jobs]

    def getJobInfo(self, job: int) -> Any:  # Spark's name
        done, tasks = self.jobs[job]
        return SimpleNamespace(status="SUCCEEDED" if done == tasks else "RUNNING", stageIds=[job])

    def getStageInfo(self, stage: int) -> Any:  # Spark's name
        done, tasks = self.jobs[stage]
        return SimpleNamespace(numTasks=tasks, numCompletedTasks=done)


def test_the_bar_moves_while_a_batch_is_written_and_never_back() -> None:
    tracker = FakeTracker()
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    counter = ProgressCounter(session)
    tracker.jobs[1] = (4, 4)  # of an earlier batch
    counter.todo = 1_000
    counter.begin_batch(1_000)
    shown, job = [counter.done], 1
    for step in STEPS:
        counter.begin_step(step)
        for _ in range(2):
            job += 1
            for done in range(11):
                tracker.jobs[job] = (done, 10)
                shown.append(counter.done)
    counter.end_batch()
    shown.append(counter.done)
    assert shown[0] == 0
    assert shown[-1] == 1_000
    assert shown == sorted(shown)
    # Without the tasks of the writing, the bar would stand at a half for all of the writing.
    assert max(after - before for before, after in pairwise(shown)) <= 50
    counter.begin_step("read")  # no batch runs
    assert counter.done == 1_000
