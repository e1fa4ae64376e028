"""What is kept of groups for longer than an hour."""

import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from koff.kafkatest import wait_until
from koff.monitor.lag_archive import FILE, KEPT_S, MINUTE_S, Archivist, GroupMinute, LagArchive, list_minute
from koff.view.activity import RecentActivity
from koff.view.earlier import WINDOWS_S, find_left
from koff.view.lag_history import STEPS

DAY_S = 86_400
NOW_S = 1_795_222_800  # the beginning of an hour


def keep(
    archive: LagArchive, at_s: int, name: str = "g", lag: int = 1, *, is_late: bool | None = None
) -> None:
    archive.add(at_s, {name: GroupMinute(lag, 1500, is_late)})


def test_the_same_hour_of_another_day_is_found_in_the_steps_of_the_last_hour(tmp_path: Path):
    archive = LagArchive(tmp_path)
    for minute in range(60):
        keep(archive, NOW_S - 3600 + minute * MINUTE_S + 59, lag=minute)
    found = LagArchive(tmp_path).find_earlier("g", (NOW_S + DAY_S) * 1000, DAY_S)
    assert found.lag.tolist() == np.repeat(np.arange(60), 4).tolist()
    assert set(found.time_lag_s.tolist()) == {1.5}
    later = archive.find_earlier("g", (NOW_S + DAY_S + 1800) * 1000, DAY_S)
    assert np.isnan(later.lag[STEPS // 2 :]).all()
    assert later.lag[STEPS // 2 - 1] == 59
    assert archive.find_earlier("g", NOW_S * 1000, DAY_S) is None
    assert archive.find_earlier("h", (NOW_S + DAY_S) * 1000, DAY_S) is None


def test_an_unknown_time_lag_stays_unknown(tmp_path: Path):
    archive = LagArchive(tmp_path)
    archive.add(NOW_S - 1, {"g": GroupMinute(5, None, None)})
    found = archive.find_earlier("g", (NOW_S + DAY_S) * 1000, DAY_S)
    assert found.lag[-1] == 5
    assert np.isnan(found.time_lag_s).all()


def test_the_budget_counts_the_minutes_in_which_a_group_with_an_objective_was_late(tmp_path: Path):
    archive = LagArchive(tmp_path)
    for minute in range(60):
        keep(archive, NOW_S - 3600 + minute * MINUTE_S, is_late=minute >= 54)
        keep(archive, NOW_S - 3600 + minute * MINUTE_S, "free")
    shares = archive.find_late("g", (NOW_S - 1) * 1000)
    assert [share.window_s for share in shares] == list(WINDOWS_S)
    assert [share.late for share in shares] == [pytest.approx(0.1)] * len(WINDOWS_S)
    assert [share.known for share in shares] == [pytest.approx(3600 / window_s) for window_s in WINDOWS_S]
    assert shares[0].burn_rate == pytest.approx(10)
    assert find_left(shares) == pytest.approx(1 - 10 / 720)
    assert archive.find_late("free", NOW_S * 1000) == []


def test_minutes_of_more_than_a_week_are_forgotten_a_few_at_a_time(tmp_path: Path):
    archive = LagArchive(tmp_path)
    for minute in range(10):
        keep(archive, NOW_S + minute * MINUTE_S)
    keep(archive, NOW_S + KEPT_S + DAY_S)  # a clock that is far ahead
    with sqlite3.connect(tmp_path / FILE) as database:
        ((kept,),) = database.execute("select count(*) from minutes")
    assert kept == 8
    for minute in range(3):
        keep(archive, NOW_S + KEPT_S + DAY_S + minute * MINUTE_S)
    assert archive.find_earlier("g", (NOW_S + 3600) * 1000, 0) is None


def test_groups_that_are_gone_for_a_week_are_forgotten_or_for_a_month_with_an_objective(
    tmp_path: Path,
):
    archive = LagArchive(tmp_path)
    keep(archive, NOW_S, "short")
    keep(archive, NOW_S, "gone", is_late=True)
    names = {}
    with sqlite3.connect(tmp_path / FILE) as database:
        for day in range(33):
            keep(archive, NOW_S + day * DAY_S, "g", is_late=False)
            names[day] = {name for (name,) in database.execute("select name from groups")}
        assert (names[7], names[8]) == ({b"g", b"gone", b"short"}, {b"g", b"gone"})
        assert (names[31], names[32]) == ({b"g", b"gone"}, {b"g"})
        assert database.execute("select min(slot) from slots").fetchone()[0] > NOW_S // 600


@pytest.mark.parametrize("name", ["with\nlines", "\ud800", "ünïcode", "'; drop table groups"])
def test_any_name_is_kept(tmp_path: Path, name: str):
    archive = LagArchive(tmp_path)
    keep(archive, NOW_S - 1, name, lag=7)
    archive.close()
    again = LagArchive(tmp_path)
    keep(again, NOW_S + 59, name, lag=8)
    found = again.find_earlier(name, (NOW_S + 60) * 1000, 0)
    assert found.lag[[-8, -1]].tolist() == [7, 8]


def test_a_damaged_file_is_begun_again_and_a_removed_one_too(tmp_path: Path):
    archive = LagArchive(tmp_path)
    keep(archive, NOW_S)
    archive.close()
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    archive = LagArchive(tmp_path)
    keep(archive, NOW_S + 60)  # is lost
    assert archive.find_earlier("g", (NOW_S + 120) * 1000, 0) is None
    keep(archive, NOW_S + 120)
    assert archive.find_earlier("g", (NOW_S + 180) * 1000, 0) is not None
    for file in tmp_path.iterdir():
        file.unlink()
    keep(archive, NOW_S + 180)
    assert archive.find_earlier("g", (NOW_S + 240) * 1000, 0) is not None


def test_a_folder_that_cannot_be_written_costs_the_comparison_only(tmp_path: Path):
    archive = LagArchive(tmp_path / "missing")
    keep(archive, NOW_S)
    assert archive.find_earlier("g", (NOW_S + 60) * 1000, 0) is None
    assert archive.find_late("g", NOW_S * 1000) == []
    (tmp_path / "missing").mkdir()
    keep(archive, NOW_S)
    assert archive.find_earlier("g", (NOW_S + 60) * 1000, 0) is not None


def test_a_minute_of_a_group_takes_less_than_forty_bytes(tmp_path: Path):
    archive = LagArchive(tmp_path)
    groups = {f"group-{number}": GroupMinute(number * 1_000_003, 40_000_000, None) for number in range(2000)}
    for minute in range(60):
        archive.add(NOW_S + minute * MINUTE_S, groups)
    archive.close()
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < 40 * 60 * 2000


def test_only_the_user_of_koff_can_read_the_names(tmp_path: Path):
    archive = LagArchive(tmp_path)
    keep(archive, NOW_S)
    assert {file.stat().st_mode & 0o077 for file in tmp_path.iterdir()} == {0}


def test_the_newest_known_lags_are_kept(tmp_path: Path):
    activity = RecentActivity()
    values = np.array([5.0, np.nan]), np.array([np.nan, 1.0]), np.zeros(2)
    activity.history.add(["g", "unknown"], *values, NOW_S * 1000)
    assert list_minute(activity, NOW_S + 30) == {"g": GroupMinute(5, None, None)}
    assert list_minute(activity, NOW_S + 90) == {}


def test_a_record_of_an_impossible_time_costs_no_other_group_its_minute(tmp_path):
    activity = RecentActivity()
    values = np.array([1e30, 5.0]), np.array([np.inf, 1.0]), np.zeros(2)
    activity.history.add(["odd", "g"], *values, NOW_S * 1000)
    archive = LagArchive(tmp_path)
    archive.add(NOW_S - 1, list_minute(activity, NOW_S))
    for name, lag in (("g", 5), ("odd", 1e18)):
        found = archive.find_earlier(name, NOW_S * 1000, 0)
        assert found.lag[-1] == lag


def test_a_minute_that_fails_costs_no_later_one(tmp_path, monkeypatch):
    monkeypatch.setattr("koff.monitor.lag_archive.MINUTE_S", 0.1)
    minutes = iter([{"g": GroupMinute(2**70, None, None)}])  # SQLite has no such number
    later = {"h": GroupMinute(5, None, None)}
    monkeypatch.setattr("koff.monitor.lag_archive.list_minute", lambda *_: next(minutes, later))
    activity = RecentActivity()
    with Archivist(tmp_path, activity):
        archive = activity.archive
        wait_until(lambda: archive.find_earlier("h", time.time_ns() // 1_000_000 + 60_000, 0) is not None)
        assert archive.find_earlier("g", time.time_ns() // 1_000_000 + 60_000, 0) is None


def test_the_archivist_writes_at_the_end_of_a_minute_and_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("koff.monitor.lag_archive.MINUTE_S", 0.1)
    activity = RecentActivity()
    with Archivist(tmp_path, activity):
        values = np.array([5.0]), np.array([1.0]), np.zeros(1)
        activity.history.add(["g"], *values, time.time_ns() // 1_000_000)
        archive = activity.archive
        wait_until(lambda: archive.find_earlier("g", time.time_ns() // 1_000_000 + 60_000, 0) is not None)
    # The disk may be busy for longer than a process waits at its end.
    wait_until(
        lambda: "koff-archive" not in {thread.name for thread in threading.enumerate()},
        timeout_s=30,
        what="the end of the thread",
    )
