"""The report's numbers against the same numbers computed plainly from the rows of a made-up week."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.errors import ConfigError, KoffError
from koff.spark import report as reports
from koff.spark.report.history import History
from koff.spark.report.period import Period, format_iso
from koff.spark.report.queries import TABLES
from koff.spark.report.sections import SECTIONS
from koff.spark.tables.hours import HOUR, compute_hours
from koff.spark.tables.schemas import TABLES as TABLES_OF_KOFF
from tests.spark.report import week
from tests.spark.report.conftest import PERIOD, SINCE_MS, UNTIL_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # the first waits for Spark, the tables and the report
WORST = 8
STEP_MS = 3_600_000
Numbers = dict[str, Any]


@pytest.fixture(scope="module")
def lag_rows() -> list[week.Row]:
    return list(week.lag_rows())


def _by_group(rows: list[week.Row]) -> dict[str, week.Row]:
    return {row["group"]: row for row in rows}


def _lags(rows: list[week.Row]) -> dict[str, dict[int, int]]:
    """Summed lag by group and sample, of groups with any known."""
    lags: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.get("lag") is not None:
            lags[row["group"]][row["number"]] += row["lag"]
    return lags


def test_the_worst_groups_are_those_with_the_largest_sums(found: Numbers, lag_rows: list[week.Row]) -> None:
    lags = _lags(lag_rows)
    largest = sorted(((max(lag.values()), group) for group, lag in lags.items()), reverse=True)[:WORST]
    assert [(row["largest_lag"], row["group"]) for row in found["worst_by_lag"]] == largest
    for row in found["worst_by_lag"]:
        lag = lags[row["group"]]
        assert row["last_lag"] == lag[max(lag)]
        assert row["mean_lag"] == pytest.approx(sum(lag.values()) / len(lag), abs=1)


def test_the_worst_by_seconds_are_those_with_the_longest_time_lag(
    found: Numbers, lag_rows: list[week.Row]
) -> None:
    longest: dict[str, float] = defaultdict(float)
    for row in lag_rows:
        longest[row["group"]] = max(longest[row["group"]], row.get("time_lag_s") or 0.0)
    expected = sorted(longest.values(), reverse=True)[:WORST]
    assert [row["longest_s"] for row in found["worst_by_seconds"]] == expected


def test_each_step_shows_its_largest_lag_and_the_sum_of_the_others(
    found: Numbers, lag_rows: list[week.Row]
) -> None:
    worst = {row["group"] for row in found["worst_by_lag"]}
    expected: dict[tuple[str | None, int], int] = defaultdict(int)
    for group, lag in _lags(lag_rows).items():
        steps: dict[int, int] = defaultdict(int)
        for sample, value in lag.items():
            steps[SINCE_MS + sample // 2 * STEP_MS] = max(steps[SINCE_MS + sample // 2 * STEP_MS], value)
        for step, value in steps.items():
            expected[group if group in worst else None, step] += value
    shown = {(row["group"], row["step_ms"]): row["lag"] for row in found["lag_over_time"]}
    assert shown == expected


def test_consumed_and_produced_sum_up_to_what_offsets_advanced_by(found: Numbers) -> None:
    last = week.SAMPLES - 1
    for life in week.LIVES:
        if life.group in ("search-index", "archive", "fraud"):
            rows = [row for row in found["flow_over_time"] if row["group"] == life.group]
            partitions = range(week.TOPICS[life.topic])
            ends = [week.end(life.topic, p, last) - week.end(life.topic, p, 0) for p in partitions]
            commits = [
                (life.committed(life.topic, p, last) or 0) - (life.committed(life.topic, p, 0) or 0)
                for p in partitions
            ]
            assert sum(row["produced"] for row in rows) == sum(ends)
            assert sum(row["consumed"] for row in rows) == sum(commits)


def test_a_rewind_counts_as_nothing_consumed(found: Numbers) -> None:
    rewound = next(row for row in found["resets_over_time"] if row["kind"] == "rewind")
    flow = {(row["group"], row["step_ms"]): row["consumed"] for row in found["flow_over_time"]}
    assert flow["replay-tool", rewound["step_ms"]] == 0


def test_lost_records_are_what_the_start_passed_beyond_the_commits(
    found: Numbers, lag_rows: list[week.Row]
) -> None:
    lost = 0
    for partition in range(week.TOPICS["audit"]):
        seen = 0  # every offset below it was committed or counted
        for row in lag_rows:
            if row["group"] == "archive" and row["partition"] == partition:
                seen = max(seen, row["committed"])
                lost += max(0, row["start_offset"] - seen)
                seen = max(seen, row["start_offset"])
    assert lost > 1_000_000
    assert [(row["group"], row["lost"]) for row in found["lost_by_group"]] == [("archive", lost)]
    assert sum(row["lost"] for row in found["lost_over_time"]) == lost
    assert found["summary"][0]["lost"] == lost


def test_what_was_lost_before_the_period_is_not_counted_again(
    spark: SparkSession, folder: str, found: Numbers
) -> None:
    """Two halves of the week together lose no more than the whole."""
    middle = SINCE_MS + 5 * 86_400_000
    halves = (Period(SINCE_MS, middle), Period(middle, UNTIL_MS))
    lost = []
    for period in halves:
        history = History(spark, folder, period, "archive")
        lost.append(reports.compute_numbers(history, worst=1)["lost_by_group"][0]["lost"])
    whole = found["lost_by_group"][0]["lost"]
    step = week.TOPICS["audit"] * 2 * 20_000  # what the start may move by between the two
    assert whole - step <= sum(lost) <= whole


def test_rebalances_and_members_are_counted_by_group(found: Numbers) -> None:
    epochs = defaultdict(list)
    for row in week.group_rows():
        epochs[row["group"]].append(row)
    expected = {}
    for group, rows in epochs.items():
        pairs = list(pairwise(rows))
        moved = [len(after["members"] or ()) - len(before["members"] or ()) for before, after in pairs]
        counted = (
            sum(not after["gone"] for _, after in pairs),
            sum(max(0, by) for by in moved),
            sum(max(0, -by) for by in moved),
        )
        if any(counted):
            expected[group] = counted
    shown = {
        row["group"]: (row["rebalances"], row["joined"], row["left"]) for row in found["changes_by_group"]
    }
    assert shown == expected
    assert sum(row["rebalances"] for row in found["changes_over_time"]) == sum(
        n for n, _, _ in expected.values()
    )


def test_a_rewind_and_a_skip_without_members_are_told_with_their_records(found: Numbers) -> None:
    replay = next(life for life in week.LIVES if life.group == "replay-tool")

    def moved(sample: int) -> int:
        now = (replay.committed("payments", 0, sample) or 0) - (
            replay.committed("payments", 0, sample - 1) or 0
        )
        return now * week.TOPICS["payments"]

    [row] = found["resets_by_group"]
    rewind, skip = 2 * week.DAY + 24, 5 * week.DAY + 20
    assert (row["group"], row["rewound"], row["skipped"]) == ("replay-tool", -moved(rewind), moved(skip))
    kinds = [(row["kind"], row["at_ms"], row["partitions"]) for row in found["resets_over_time"]]
    at = [int(week.at(sample).timestamp() * 1000) for sample in (rewind, skip)]
    assert kinds == [("rewind", at[0], 3), ("skip", at[1], 3)]


def test_groups_that_stopped_were_deleted_or_never_committed_are_named(found: Numbers) -> None:
    idle = _by_group(found["idle"])
    kinds = {group: row["kind"] for group, row in idle.items()}
    assert kinds == {"search-index": "no members", "old-etl": "deleted", "newcomer": "never committed"}
    assert idle["search-index"]["silent_h"] == 72.0
    assert idle["newcomer"]["lag"] is None


def test_the_hot_partition_and_the_group_that_it_overwhelms_come_first(found: Numbers) -> None:
    hot = found["hot_partitions"][0]
    assert (hot["topic"], hot["partition"]) == ("clicks", 0)
    assert hot["times_mean"] == pytest.approx(4.5, rel=0.001)
    assert "idle" not in {row["topic"] for row in found["hot_partitions"]}
    [skewed] = found["skewed_groups"]
    assert (skewed["group"], skewed["partition"]) == ("fraud", 0)
    assert skewed["share"] == pytest.approx(skewed["lag"] / (skewed["lag"] + 7 * 40))


def test_error_budgets_count_the_time_in_which_a_partition_was_too_late(
    found: Numbers, lag_rows: list[week.Row]
) -> None:
    late: dict[str, set[int]] = defaultdict(set)
    for row in lag_rows:
        if (row.get("time_lag_s") or 0) > row["allowance_s"]:
            late[row["group"]].add(row["number"])
    expected = sorted(((300.0 * len(samples), group) for group, samples in late.items()), reverse=True)
    worst = {row["group"]: row["over_s"] for row in found["budget"]}
    assert worst == {group: seconds for seconds, group in expected if group in worst}
    assert min(worst.values()) >= sorted(worst.values(), reverse=True)[-1]
    assert all(row["budget_left"] == pytest.approx(1 - 1000 * (1 - row["kept"])) for row in found["budget"])


def test_groups_are_compared_before_and_after_a_deployment(found: Numbers, lag_rows: list[week.Row]) -> None:
    longest: dict[tuple[str, bool], float] = defaultdict(float)
    for row in lag_rows:
        place = row["group"], row["number"] >= 4 * week.DAY
        longest[place] = max(longest[place], row.get("time_lag_s") or 0.0)
    assert len(found["deployment"]) == WORST
    for row in found["deployment"]:
        assert (row["before_s"], row["after_s"]) == (
            longest[row["group"], False],
            longest[row["group"], True],
        )


def test_capacity_compares_the_busiest_hour_with_what_members_consumed(found: Numbers) -> None:
    life = next(life for life in week.LIVES if life.group == "archive")
    week_ms = int(week.BEGIN.timestamp() * 1000)
    rows = {row["group"]: row for row in found["capacity"]}
    row, partitions = rows["archive"], range(week.TOPICS[life.topic])
    ends, commits = (
        [sum(offset(life.topic, p, sample) or 0 for p in partitions) for sample in range(1, week.SAMPLES, 2)]
        for offset in (week.end, life.committed)
    )
    produced, consumed = ([b - a for a, b in pairwise(offsets)] for offsets in (ends, commits))
    assert (row["week_ms"], row["members"]) == (week_ms, 2)
    assert row["peak_per_s"] == pytest.approx(max(produced) / 3600)
    assert row["per_member_per_s"] == pytest.approx(max(consumed) / 2 / 3600)
    assert row["headroom"] == pytest.approx(max(consumed) / max(produced) - 1)
    assert row["headroom"] < -0.5


def test_hours_until_retention_follow_from_the_last_day(found: Numbers, lag_rows: list[week.Row]) -> None:
    hours = {row["group"]: row["hours"] for row in found["retention"]}
    assert set(hours) == {"archive", "ledger"}
    assert hours["archive"] == 0
    last, first = week.SAMPLES - 1, week.SAMPLES - week.DAY
    ledger = {row["number"]: row for row in lag_rows if row["group"] == "ledger" and row["partition"] == 0}
    closing = (ledger[last]["start_offset"] - ledger[first]["start_offset"]) - (
        ledger[last]["committed"] - ledger[first]["committed"]
    )
    left = ledger[last]["committed"] - ledger[last]["start_offset"]
    assert hours["ledger"] == pytest.approx(left / closing * (week.DAY - 1) / 2)


def test_a_report_is_cut_to_its_groups_and_its_time(spark: SparkSession, folder: str) -> None:
    first_day = Period(SINCE_MS, SINCE_MS + 86_400_000)
    counted = "SELECT [group], count(*) rows FROM lag GROUP BY [group] ORDER BY [group]"
    history = History(spark, folder, first_day, "vc-0[01]")
    rows = history.collect(counted)
    of_a_group = week.TOPICS["payments"] * week.DAY
    assert rows == [{"group": group, "rows": of_a_group} for group in ("svc-00", "svc-01")]
    history = History(spark, folder, first_day, "^vc")
    assert history.collect(counted) == []


def test_json_and_csv_carry_the_numbers_of_the_page(found: Numbers, tmp_path: Path) -> None:
    [path] = reports.write_report(found, PERIOD, out=tmp_path / "report.json", form="json")
    document = json.loads(path.read_text())
    assert (document["since"], document["until"]) == (format_iso(SINCE_MS), format_iso(UNTIL_MS))
    assert set(found) < set(document)
    files = {
        path.stem: path for path in reports.write_report(found, PERIOD, out=tmp_path / "csv", form="csv")
    }
    assert set(files) == set(found)
    for name, path in files.items():
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        shown = [
            {key: "" if value is None else str(value) for key, value in row.items()} for row in document[name]
        ]
        assert rows == shown


def test_a_folder_without_tables_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(KoffError, match="koff pipeline run --tables"):
        reports.report(spark, str(tmp_path), since_ms=0, until_ms=1, out=tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("hours", [1, 100, 7 * 24])
def test_written_hours_and_those_computed_after_them_are_the_same_as_all_computed(
    spark: SparkSession, folder: str, tmp_path: Path, hours: int
) -> None:
    lag = spark.read.format("delta").load(f"{folder}/lag")
    written = compute_hours(lag, week.BEGIN, week.BEGIN + hours * HOUR)
    first_after = f"cast((unix_micros(hour) - {SINCE_MS}000) / 1800000000 + 2 AS BIGINT) number"
    written = written.selectExpr("*", first_after, "to_date(hour) day")
    week.write_table(
        written.select(TABLES_OF_KOFF["lag_hourly"].schema.names).toArrow(),
        ["cluster", "day"],
        tmp_path / "lag_hourly",
    )
    for name in ("lag", "records", "groups"):
        (tmp_path / name).symlink_to(Path(folder) / name)
    both, computed = (
        History(spark, each, PERIOD).collect("SELECT * FROM lag_hourly ORDER BY cluster, hour, [group]")
        for each in (str(tmp_path), folder)
    )
    assert len(both) > 1000
    assert both == computed


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"form": "pdf"}, "'pdf' is none of html, json, csv"),
        ({"until_ms": 0}, "check --from and --until"),
        ({"groups": "("}, "not a regular expression"),
        ({"groups": "(?P<kind>pay)"}, "not a regular expression of Java, which Spark matches with: [A-Z]"),
        ({"worst": 0}, "give 1 or more"),
    ],
)
def test_wrong_options_are_named(
    spark: SparkSession, tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    options: dict[str, Any] = {"since_ms": 0, "until_ms": 1, "out": tmp_path / "report"} | wrong
    with pytest.raises(ConfigError, match=said):
        reports.report(spark, str(tmp_path), **options)


def test_an_empty_time_gives_a_report_that_says_so(
    spark: SparkSession, folder: str, found: Numbers, tmp_path: Path
) -> None:
    period = Period(0, 86_400_000)
    history = History(spark, folder, period)
    nothing = reports.compute_numbers(history)
    assert list(nothing) == list(found) == list(TABLES)
    [path] = reports.write_report(nothing, period, out=tmp_path / "report.html", form="html")
    page = path.read_text()
    assert "<figure" not in page
    assert [line for line in page.splitlines() if "<section" in line] == [
        '<section id="nothing" aria-labelledby="nothing-title">'
    ]
    assert all(f"<li>{section.empty_text}</li>" in page for section in SECTIONS)
