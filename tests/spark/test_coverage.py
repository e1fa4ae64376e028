"""Intervals of offsets, and what the tables are known to have after begun and completed batches."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from koff.spark.tables import coverage as module
from koff.spark.tables.coverage import (
    Coverage,
    Span,
    drop_covered,
    intersect_spans,
    merge_intervals,
    subtract_intervals,
)
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


def test_spans_leave_out_what_is_covered() -> None:
    spans = [Span(0, 0, 10), Span(1, 5, 6)]
    assert drop_covered(spans, {0: [(2, 4)], 1: [(0, 9)]}) == [Span(0, 0, 2), Span(0, 4, 10)]


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
