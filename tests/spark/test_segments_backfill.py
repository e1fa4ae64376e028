"""A backfill of segments goes in batches, and one that was interrupted continues where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.errors import ConfigError, KoffError
from koff.spark.job.batches import Batches
from koff.spark.job.segments_backfill import SegmentsBatch, backfill_segments, check_segments
from koff.spark.rows.decoding import DataLost
from koff.spark.source.log_segments import SegmentsOptions, SegmentsReader
from koff.spark.source.segment_files import Segments, plan_batches
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.progress import read_newest_plan

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
    assert list_parts(plan_batches(logs, 100)) == [
        [(0, 0, 2)],
        [(0, 2, 3)],
        [(1, 0, 1)],
        [(2, 0, 2)],
    ]
    assert list_parts(plan_batches(logs, 10_000)) == [[(0, 0, 3), (1, 0, 1), (2, 0, 2)]]


def test_a_log_may_begin_with_an_empty_file() -> None:
    """A partition without records has one such file."""
    assert list_parts(plan_batches([make_log(0, o0=0), make_log(1, o0=0, o5=40)], 100)) == [
        [(0, 0, 1), (1, 0, 2)]
    ]


def test_the_batches_give_the_rows_of_the_whole_and_of_wanted_offsets_only(tmp_path: Path) -> None:
    path = str(split_golden(tmp_path, files=5))

    def read(files: Sequence[Segments] = (), **offsets: Any) -> list[dict[str, Any]]:
        options = SegmentsOptions.parse({"path": path})
        source = SegmentsReader(replace(options, files=tuple(files), **offsets))
        found = [
            row for share in source.partitions() for part in source.read(share) for row in part.to_pylist()
        ]
        return sorted(found, key=lambda row: row["log_offset"])

    (whole,) = SegmentsReader(SegmentsOptions.parse({"path": path, "tasks": "1"})).partitions()
    batches = plan_batches(whole.segments, 1)
    assert len(batches) == 5
    parts = [read(batch) for batch in batches]
    assert [row for part in parts for row in part] == read()
    first, *_, last = (row["log_offset"] for row in parts[0])
    wanted = read(batches[0], offsets={7: (first + 1, last)})
    assert wanted == [row for row in parts[0] if first < row["log_offset"] < last] != []
    (files,) = batches[0]
    (tmp_path / "__consumer_offsets-7" / Path(files.files[0]).name).unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        read(batches[0])


def make_tables(spark: SparkSession, folder: Path) -> Tables:
    tables = Tables(spark, str(folder))
    tables.create_tables()
    return tables


@pytest.mark.timeout(600)
def test_an_interrupted_backfill_does_not_read_again_what_is_in_the_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(split_golden(tmp_path / "copy", files=6))
    calm, torn = (make_tables(spark, tmp_path / name) for name in ("calm", "torn"))
    whole = backfill_segments(calm, path, "c")
    assert whole.records == calm.frame("records").count() > 0

    # The process is killed after the first of six batches, and the next one before the records of a batch.
    def die(done: SegmentsBatch) -> None:
        if done.number == 1:
            raise KoffError("killed")

    with pytest.raises(KoffError, match="killed"):
        backfill_segments(torn, path, "c", die, most_bytes=1)
    with monkeypatch.context() as patch:
        patch.setattr(Batches, "carry_out", die_at_once)
        with pytest.raises(KoffError, match="killed"):
            backfill_segments(torn, path, "c", most_bytes=1)
    again = backfill_segments(torn, path, "c", most_bytes=1)
    assert 0 < again.records < whole.records
    left_out = ("number", "day")
    for name in ("records", "groups"):
        rows = [sorted(map(repr, each.frame(name).drop(*left_out).collect())) for each in (calm, torn)]
        assert rows[0] == rows[1], name
    assert backfill_segments(torn, path, "c") == (0, 0)
    newest = read_newest_plan(torn, "c")
    assert newest is not None
    assert newest.nexts == {7: OPEN_FROM}


def die_at_once(*_: object, **__: object) -> None:
    raise KoffError("killed")


@pytest.mark.timeout(600)
def test_segments_of_another_topic_or_after_a_gap_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    tables = make_tables(spark, tmp_path / "t")
    one = split_golden(tmp_path / "one", files=4, topic_id="nxZ4NwH0RxqKOgw25xA3Ow")
    files = sorted((one / "__consumer_offsets-7").glob("*.log"))
    for file in files[1:]:
        file.rename(tmp_path / file.name)
    backfill_segments(tables, str(one), "c")
    assert {row[0] for row in tables.frame("progress").select("topic_id").collect()} == {
        "nxZ4NwH0RxqKOgw25xA3Ow"
    }
    other = split_golden(tmp_path / "other", files=2, topic_id="AAAAAAH0RxqKOgw25xA3Ow")
    with pytest.raises(DataLost, match="was created again"):
        backfill_segments(tables, str(other), "c")
    before = tables.frame("records").count()
    (tmp_path / files[3].name).rename(files[3])
    files[0].unlink()
    with pytest.raises(
        DataLost, match=r"partition 7 has offsets up to \d+, and the segments begin at \d+: copy"
    ):
        backfill_segments(tables, str(one), "c")
    assert tables.frame("records").count() == before


def test_segments_of_two_topics_at_once_are_refused(tmp_path: Path) -> None:
    one = split_golden(tmp_path / "one", files=1, topic_id="one")
    other = split_golden(tmp_path / "other", files=1, topic_id="other")
    (other / "__consumer_offsets-7").rename(other / "__consumer_offsets-8")
    check_segments(str(one))
    with pytest.raises(ConfigError, match="segments of two topics"):
        check_segments(f"{one},{other}")
