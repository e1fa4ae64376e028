"""The sentences at the top of a report, and what a time lag is where none is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from koff.spark.report import compute_numbers
from koff.spark.report.history import History
from koff.spark.report.page import render_page
from koff.spark.report.period import Period
from koff.spark.report.queries import TABLES
from koff.spark.report.story import describe_period, describe_trend, name_clusters
from koff.spark.tables.delta_tables import Tables
from tests.spark.table_rows import append

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
TOTALS = {"largest_lag": 900, "longest_s": None, "consumed": 0, "lost": 0}


def make_numbers(*lags: int | None, longest_s: float | None = 90.0, lost: int = 0) -> dict[str, Any]:
    """The numbers of one group with a sample each minute."""
    group = {"cluster": "europe", "group": "payments"}
    known = [lag for lag in lags if lag is not None]
    worst = {**group, "largest_lag": max(known), "last_lag": lags[-1], "longest_s": longest_s, "unknown": 0}
    return {
        "summary": [{**TOTALS, "groups": 2, "clusters": 1, "cluster_names": "europe", "lost": lost}],
        "worst_by_lag": [worst] if max(known) else [],
        "lag_over_time": [{**group, "step_ms": n * MINUTE_MS, "lag": lag} for n, lag in enumerate(lags)],
        "retention": [],
        "resets_total": [{"events": 0}],
        "idle_total": [],
    }


@pytest.mark.parametrize(
    ("lags", "trend"),
    [
        ((900, 500, 100), "falling"),
        ((0, 0, 900), "growing"),
        ((900, 900, 910), "steady"),
        ((900, 0, *[300] * 16, 300), "steady"),  # only the last eighth counts
        ((900, 100), ""),
        ((900, 100, None), ""),
    ],
)
def test_the_trend_compares_the_end_with_the_time_shortly_before(
    lags: tuple[int | None, ...], trend: str
) -> None:
    numbers = make_numbers(*lags)
    assert describe_trend(numbers["worst_by_lag"][0], numbers) == trend


def test_the_sentences_name_the_worst_group_its_end_and_what_was_lost() -> None:
    assert describe_period(make_numbers(900, 500, 100, lost=12)) == [
        "payments had the largest lag: 900 records. At the end its lag was 100, and falling. "
        "Its longest time lag was 1 min 30 s.",
        "Retention deleted 12 records that groups had not committed.",
    ]
    numbers = make_numbers(900, 100)
    retention = {"cluster": "europe", "group": "audit", "hours": 0.0}
    numbers["retention"] = [retention]
    assert describe_period(numbers)[1] == "Retention has already overtaken audit."
    retention["hours"] = 12.2
    assert (
        describe_period(numbers)[1] == "Retention will overtake audit in 12 h, at the speed of the last day."
    )
    [text] = describe_period(make_numbers(900, 100, None, longest_s=None))
    assert text.endswith("At the end its lag was not known.")
    assert describe_period(make_numbers(0, 0)) == ["None of 2 groups had lag."]
    nothing = make_numbers(0)
    nothing["summary"][0]["groups"] = 0
    assert describe_period(nothing) == ["There are no samples of lag in this period."]


def test_clusters_are_named_up_to_three() -> None:
    numbers = make_numbers(0)
    assert name_clusters(numbers) == "Cluster europe"
    numbers["summary"][0] |= {"clusters": 4, "cluster_names": "a, b, c"}
    assert name_clusters(numbers) == "Clusters a, b, c and 1 more"


def test_a_time_lag_of_zero_elsewhere_does_not_stand_for_one_that_is_not_known(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    now = datetime(2026, 3, 2, 10, tzinfo=UTC)

    def sample(group: str, partition: int, lag: int, seconds: float | None, minute: int) -> dict[str, Any]:
        place = {"group": group, "topic": "t", "partition": partition, "at": now + timedelta(minutes=minute)}
        return {**place, "lag": lag, "time_lag_s": seconds}

    append(
        tables,
        "lag",
        sample("unknown", 0, 5, None, 1),  # beside a partition without lag, and after a time without lag
        sample("unknown", 1, 0, 0.0, 1),
        sample("unknown", 0, 0, 0.0, 0),
        sample("idle", 0, 0, 0.0, 1),
    )
    begin_ms = int(now.timestamp() * 1000)
    period = Period(begin_ms, begin_ms + 600_000)
    history = History(spark, tables.root, period)
    numbers = compute_numbers(history)
    [summary] = numbers["summary"]
    assert numbers["worst_by_lag"][0]["longest_s"] is None
    assert (summary["longest_s"], summary["cluster_names"]) == (None, "c")
    append(tables, "lag", sample("unknown", 0, 5, 40.0, 2))
    history = History(spark, tables.root, period)
    assert compute_numbers(history)["summary"][0]["longest_s"] == 40


def test_the_page_says_unknown_where_no_time_lag_is_known() -> None:
    numbers = make_numbers(900, 500, 100, longest_s=None)
    numbers = {name: [] for name in TABLES} | numbers | {"worst_by_lag": []}
    numbers |= {f"{name}_total": [{"groups": 0, "events": 0}] for name in ("changes", "resets")}
    numbers["summary"][0] |= {"losing_groups": 0}
    page = render_page(numbers, Period(0, 3_600_000), title="x", made_ms=0)
    assert "<li><b>unknown</b> the longest time lag</li>" in page
    assert "1970-01-01 00:00 UTC to 1970-01-01 01:00 UTC" in page
    assert "Cluster europe." in page
