"""All tables are those of one process that nobody disturbed, whatever was killed, paused or started twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.spark.job import batches, record_tasks
from koff.spark.job.log_source import SMALL_BATCH
from koff.spark.job.record_tasks import MOST_OTHERS
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import TakenOver, claim_batch, read_newest_plan
from tests.spark.life import CLUSTER, Life, list_everything, live, make_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIFE = Life.script()


class Killed(BaseException):
    """What ends a process at once."""


class Disturbed(Tables):
    """Tables of a process that something happens to before or after a write."""

    def __init__(self, spark: SparkSession, root: str, happens: Callable[[str], None]) -> None:
        super().__init__(spark, root)
        self._happens = happens

    def add_files(self, name: str, *args: Any, **options: Any) -> bool:
        self._happens(f"before {name}")
        added = super().add_files(name, *args, **options)
        self._happens(f"after {name}")
        return added


@pytest.fixture(scope="module")
def calm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What one process writes."""
    tables = create(spark, tmp_path_factory.mktemp("calm"))
    live(tables, LIFE)
    return list_everything(tables)


def create(spark: SparkSession, folder: Path) -> Tables:
    tables = Tables(spark, str(folder / "t"))
    tables.create_tables()
    return tables


def assert_same(tables: Tables, calm: dict[str, list[str]]) -> None:
    found = list_everything(tables)
    for name, rows in calm.items():
        assert found[name] == rows, name


def test_a_calm_life_has_rows_in_every_table(calm: dict[str, list[str]]) -> None:
    assert all(calm.values()), {name: len(rows) for name, rows in calm.items()}
    assert len(calm["records"]) == sum(map(len, LIFE.records))


def test_tasks_write_the_same_as_the_driver_itself(
    spark: SparkSession, tmp_path: Path, calm: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the records about groups are too many for the memory of the driver."""
    for number, most in enumerate((MOST_OTHERS, 1)):
        monkeypatch.setattr(record_tasks, "MOST_OTHERS", most)
        tables = create(spark, tmp_path / str(number))
        live(tables, LIFE, large=True)
        assert_same(tables, calm)


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 40))])
def test_a_process_that_is_killed_at_any_write_is_completed_by_the_next(
    spark: SparkSession,
    tmp_path: Path,
    calm: dict[str, list[str]],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # How many records a new process reads from the table at once: all, none, some.
    monkeypatch.setattr(batches, "SMALL_BATCH", (SMALL_BATCH, 0, 100)[seed % 3])
    tables, chance = create(spark, tmp_path), random.Random(seed)
    deaths: list[str] = []
    while len(deaths) < 5:
        left = chance.randrange(1, 14)

        def kill(where: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                deaths.append(where)
                raise Killed

        try:
            live(Disturbed(spark, tables.root, kill), LIFE, large=seed % 2 == 0)
        except Killed:
            continue
        break
    live(tables, LIFE)
    assert deaths
    assert_same(tables, calm)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "where", ["before records", "after records", "before groups", "before lag", "before state"]
)
def test_a_process_that_was_paused_while_another_one_went_on_writes_nothing_when_it_wakes(
    spark: SparkSession,
    tmp_path: Path,
    calm: dict[str, list[str]],
    where: str,
    large: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "SMALL_BATCH", 0 if large else SMALL_BATCH)
    tables = create(spark, tmp_path)
    is_paused = False

    def pause(here: str) -> None:
        nonlocal is_paused
        newest = read_newest_plan(tables, CLUSTER)
        if (
            here == where
            and not is_paused
            and newest is not None
            and newest.number >= (2 if "state" in where else 1)
        ):
            is_paused = True
            live(tables, LIFE, until=4)  # another process goes on

    with pytest.raises(TakenOver, match=r"cluster c: process \d+ on .* writes this cluster \(batch"):
        live(Disturbed(spark, tables.root, pause), LIFE, large=large)
    assert is_paused
    live(tables, LIFE)
    assert_same(tables, calm)


def test_a_process_that_begins_with_several_batches_saves_the_state_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is killed early again and again would begin with ever more batches."""
    tables = create(spark, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(batches.Batches, "save_state", lambda *_: None)
        live(tables, LIFE, until=3)
    live(tables, LIFE, until=3)
    assert {row.number for row in tables.frame("state").collect()} == {3}


def test_of_two_processes_that_begin_at_once_one_stops(
    spark: SparkSession, tmp_path: Path, calm: dict[str, list[str]]
) -> None:
    tables = create(spark, tmp_path)
    live(tables, LIFE, until=2)
    both, stopped = threading.Barrier(2), []

    def start() -> None:
        own = Tables(spark.newSession(), tables.root)
        newest = read_newest_plan(own, CLUSTER)
        assert newest is not None
        mine = make_batches(own, LIFE)
        newest = mine.restore(newest)
        plan = LIFE.plan(newest.number + 1, newest, Owner.create())
        both.wait(200)
        try:
            claim_batch(own, plan)
        except TakenOver as error:
            stopped.append(str(error))
        else:
            mine.carry_out(plan)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(400)
    assert len(stopped) == 1
    live(tables, LIFE)
    assert_same(tables, calm)
