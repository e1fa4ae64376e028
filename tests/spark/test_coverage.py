"""Intervals of offsets, and what the tables are known to have after begun and completed batches."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from koff.spark.source.ranges import Range, drop_covered
from koff.spark.tables import coverage as module
from koff.spark.tables.coverage import Coverage, Span, intersect_spans, merge_intervals, subtract_intervals
from koff.spark.tables.leases import Lease
from koff.spark.tables.schemas import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_intervals_are_those_of_the_sets_of_their_offsets() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        some, others = (
            [(start, start + chance.randint(0, 9)) for start in chance.choices(range(40), k=5)] for _ in "ab"
        )
        offsets, removed = ({n for span in spans for n in range(*span)} for spans in (some, others))
        for found, wanted in (
            (merge_intervals(some), offsets),
            (subtract_intervals(some, others), offsets - removed),
        ):
            assert [n for span in found for n in range(*span)] == sorted(wanted), seed
            assert all(end < start for (_, end), (start, _) in pairwise(found)), seed


def test_ranges_leave_out_what_is_covered() -> None:
    ranges = [Range(0, 0, 10), Range(1, 5, 6)]
    assert drop_covered(ranges, {0: [(2, 4)], 1: [(0, 9)]}) == [Range(0, 0, 2), Range(0, 4, 10)]


def test_spans_meet_intervals_in_the_offsets_that_both_have() -> None:
    spans = [Span(0, 3, 8), Span(1, 0, 5), Span(2, 0, 9)]
    assert intersect_spans({0: [(0, 4), (6, 20)], 1: [(5, 9)]}, spans) == {0: [(3, 4), (6, 8)]}


def test_a_span_is_begun_then_complete_for_its_topic_and_its_filter(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    lease = Lease(tables, "c", "a test")

    def load(topic_id: str | None = "id", filter_text: str = "") -> Coverage:
        coverage = Coverage(tables, "c", lease, topic_id=topic_id, filter_text=filter_text)
        coverage.load()
        return coverage

    first = load()
    first.begin([Span(0, 0, 5), Span(1, 0, 3), Span(2, 4, 4)])
    assert (load().list_complete(), load().list_begun()) == ({}, {0: [(0, 5)], 1: [(0, 3)]})
    first.complete([Span(0, 0, 5), Span(1, 0, 3)])
    first.begin([Span(0, 5, 8)])
    for coverage in (load(), load(None), load("id", "only some groups")):
        assert coverage.list_complete() == {0: [(0, 5)], 1: [(0, 3)]}
        assert coverage.list_begun() == {0: [(5, 8)]}
    other = load("another id")
    assert (other.list_complete(), other.list_begun()) == ({}, {})

    # Complete for a filter is not complete for all.
    some = load(filter_text="only some groups")
    some.begin([Span(3, 0, 9)])
    some.complete([Span(3, 0, 9)])
    some.flush()
    assert load(filter_text="only some groups").list_complete()[3] == [(0, 9)]
    assert load().list_begun() == {0: [(5, 8)], 3: [(0, 9)]}

    # Rewritten with merged spans, the table says the same.
    before = tables.frame("coverage").count()
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    first.complete([Span(0, 5, 8)])
    first = load()
    first.begin([Span(0, 8, 9)])
    assert tables.frame("coverage").count() < before
    assert load().list_complete() == {0: [(0, 5)], 1: [(0, 3)]}
    assert load().list_begun() == {0: [(5, 9)], 3: [(0, 9)]}


def test_rows_of_an_older_koff_count_as_begun(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    for name, partition, offset in (
        ("commits", 0, 41),
        ("commits", 0, 7),
        ("groups", 0, 50),
        ("groups", 1, 3),
    ):
        row = f"SELECT 'c' cluster, {partition} offsets_partition, {offset}L log_offset, current_date() day"
        row += ", 'g' `group`" + (", 't' topic, 0 partition" if name == "commits" else ", false gone")
        spark.sql(row).write.format("delta").mode("append").save(tables.path(name))
    coverage = Coverage(tables, "c", Lease(tables, "c", "a test"), topic_id="id")
    coverage.load()
    assert coverage.list_complete() == {}
    assert coverage.list_begun() == {0: [(0, 51)], 1: [(0, 4)]}
