"""Of two processes that would write the same tables, one stops and says why; a late one writes nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from koff.kafkatest import wait_until
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.segments_backfill import backfill_segments
from koff.spark.rows.packing import pack_batches
from koff.spark.tables import leases as module
from koff.spark.tables.coverage import Coverage, Span
from koff.spark.tables.leases import ALL, Lease, LeaseHeld, LeaseLost, hold_leases
from koff.spark.tables.maintenance import maintain_tables
from koff.spark.tables.schemas import TABLES, Tables
from koff.spark.tables.session_settings import write_once
from tests.spark.test_decoding import decode_batch, raw
from tests.spark.test_parity import golden
from tests.unit.builders import commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SEGMENTS = str(Path(__file__).parents[1] / "golden" / "segments" / "none.log")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables for all tests: each has a cluster of its own."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("leases") / "t"))
    tables.create_tables()
    return tables


def test_a_second_process_is_told_who_writes_and_what_to_do(tables: Tables) -> None:
    with hold_leases(tables, ["a"], "a job"):
        for cluster in ("a", ALL):
            with pytest.raises(LeaseHeld, match=r"a job on .* \(process \d+\) writes into .*: stop it first"):
                Lease(tables, cluster, "another job").acquire()
        with hold_leases(tables, ["b"], "a job for another cluster"):
            pass
    with hold_leases(tables, ["a"], "the next job"):
        pass


@pytest.mark.parametrize(("age_s", "live"), [(50, True), (70, False), (-50, True), (-3600, False)])
def test_a_lease_ends_in_time_also_if_the_clock_was_set_back(age_s: float, live: bool) -> None:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    assert module._Row(1, "a job", "another host", 1, "nonce", False, at).is_live() is live


def test_of_processes_that_want_the_lease_at_once_one_gets_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All see that the lease is free before one of them writes."""
    found, meeting = Lease._find_newest, threading.Barrier(3)

    def find_together(lease: Lease, cluster: str) -> Any:
        newest = found(lease, cluster)
        if newest is None and cluster == "race":
            meeting.wait(60)
        return newest

    monkeypatch.setattr(Lease, "_find_newest", find_together)
    leases = [Lease(tables, "race", f"job {number}") for number in range(3)]
    results: list[Lease | Exception] = []

    def acquire(lease: Lease) -> None:
        try:
            lease.acquire()
            results.append(lease)
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=acquire, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    (winner,) = (each for each in results if isinstance(each, Lease))
    losers = [each for each in results if not isinstance(each, Lease)]
    assert [type(each) for each in losers] == [LeaseHeld] * 2, losers
    winner.check()
    winner.release()


def test_a_process_that_read_the_leases_too_early_is_refused_seconds_later(tables: Tables) -> None:
    first, late = Lease(tables, "stale", "the first"), Lease(tables, "stale", "the late one")
    has_read, may_go_on, check_row = threading.Event(), threading.Event(), late._raise_if_live

    def wait_after_check(row: Any) -> None:
        check_row(row)
        has_read.set()
        assert may_go_on.wait(120)

    late._raise_if_live = wait_after_check  # type: ignore[method-assign, assignment]  # only the test holds it back
    results: list[Exception | None] = []

    def acquire_late() -> None:
        try:
            late.acquire()
            results.append(None)
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=acquire_late)
    thread.start()
    assert has_read.wait(120)
    first.acquire()
    second = int(time.time())
    wait_until(lambda: int(time.time()) > second, what="the next second")
    may_go_on.set()
    thread.join(120)
    (error,) = results
    assert isinstance(error, LeaseHeld)
    assert "the first on" in str(error)
    first.check()
    first.release()


def test_maintenance_and_backfills_do_not_run_beside_a_job(tables: Tables) -> None:
    with hold_leases(tables, ["both"], "a job"):
        with pytest.raises(LeaseHeld, match="cluster both: a job on"):
            backfill_segments(tables, SEGMENTS, "both")
        with pytest.raises(LeaseHeld, match="a job on"):
            next(maintain_tables(tables))
    with hold_leases(tables, [ALL], "maintenance"), pytest.raises(LeaseHeld, match="maintenance on"):
        Lease(tables, "both", "a job").acquire()


def test_the_lease_of_a_process_that_was_killed_on_this_machine_is_free_at_once(tables: Tables) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    row = (7, "a job", socket.gethostname(), ended.pid, "x", False, datetime.now(UTC))
    frame = tables.spark.createDataFrame([("killed", *row)], f"cluster STRING, {TABLES['leases'].columns}")
    tables.append_rows("leases", frame)
    with hold_leases(tables, ["killed"], "the next job"):
        pass
    elsewhere = (1 << 40, "a job", "elsewhere", ended.pid, "x", False, datetime.now(UTC))
    frame = tables.spark.createDataFrame([("killed", *elsewhere)], frame.schema)
    tables.append_rows("leases", frame)
    with pytest.raises(LeaseHeld, match="a job on elsewhere"):
        Lease(tables, "killed", "the next job").acquire()


def make_silent(lease: Lease) -> None:
    """The lease is now that of a process that was paused for a long time: another one may take it."""
    module._ours.discard(lease._nonce)


def append_row(tables: Tables, name: str, cluster: str, transaction: tuple[str, int]) -> None:
    """Appends a row without values; columns that may not be null are 0, "", false or `NOW`."""
    schema = tables.frame(name).schema
    fillers = {"string": "", "integer": 0, "long": 0, "boolean": False, "timestamp": NOW, "date": NOW.date()}
    values = {each.name: None if each.nullable else fillers[each.dataType.typeName()] for each in schema}
    row = tuple((values | {"cluster": cluster})[each] for each in schema.names)
    tables.append_rows(name, tables.spark.createDataFrame([row], schema), transaction)


def test_a_new_owner_shuts_a_late_one_out_of_every_table(tables: Tables) -> None:
    """Also out of a table that is new: all but the leases are behind the fence."""
    names = sorted(TABLES.keys() - {"leases"})
    late, heir = Lease(tables, "fence", "late"), Lease(tables, "fence", "heir")
    late.acquire()
    make_silent(late)
    heir.acquire()
    for lease in (late, heir):
        for name in names:
            append_row(tables, name, "fence", lease.next_transaction())
    counts = {name: tables.cluster_frame(name, "fence").count() for name in names}
    assert counts == dict.fromkeys(names, 1)
    with pytest.raises(LeaseLost, match=r"heir on .* now writes into"):
        late.check()
    heir.check()
    late.release()
    heir.release()


def test_a_late_owner_is_shut_out_also_by_the_owner_after_one_that_gave_up(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, next_owner = Lease(tables, "gave up", "late"), Lease(tables, "gave up", "next")
    late.acquire()
    make_silent(late)
    with hold_leases(tables, ["other"], "another job"), monkeypatch.context() as patch:
        patch.setattr(Lease, "_list_excluded", lambda _: ["other"])
        with pytest.raises(LeaseHeld, match="another job on"):
            Lease(tables, "gave up", "one that gives up").acquire()
    next_owner.acquire()
    append_row(tables, "commits", "gave up", late.next_transaction())
    assert tables.cluster_frame("commits", "gave up").isEmpty()
    late.release()
    next_owner.release()


def test_rows_are_written_after_the_leases_were_lost(tables: Tables) -> None:
    for count in (1, 2):
        with hold_leases(tables, ["lost"], "a job") as leases:
            append_row(tables, "commits", "lost", leases["lost"].next_transaction())
            leases["lost"].check()
        assert tables.cluster_frame("commits", "lost").count() == count
        tables.delta_table("leases").delete("cluster = 'lost'")


SPANS = [Span(7, 0, 1 << 20)]
DERIVED = ("commits", "groups", "assignments", "quarantine", "current", "group_states")


def make_frame(tables: Tables, cluster: str, records: pa.RecordBatch) -> DataFrame:
    """The packed rows of raw records."""
    packed = pack_batches([decode_batch(records, cluster)])
    return tables.spark.createDataFrame(pa.Table.from_batches(packed))


def count_rows(tables: Tables, cluster: str) -> dict[str, int]:
    return {name: tables.cluster_frame(name, cluster).count() for name in DERIVED}


def write_groups(tables: Tables, lease: Lease, **options: Any) -> None:
    """Writes what real groups of every kind wrote, as one batch."""
    *_, times_ms, keys, values = zip(*sorted(golden(), key=lambda record: record[2]), strict=True)
    records = raw(list(zip(keys, values, strict=True)))
    records = records.set_column(2, records.schema.field(2), pa.array(times_ms, records.schema.types[2]))
    with write_once(tables.spark, *lease.next_transaction()):
        BatchWriter(tables, lease.cluster, **options).write(make_frame(tables, lease.cluster, records), {})


@pytest.fixture(scope="module")
def undisturbed(tables: Tables) -> dict[str, int]:
    with hold_leases(tables, ["calm"], "undisturbed") as leases:
        write_groups(tables, leases["calm"])
    rows = count_rows(tables, "calm")
    assert all(rows[name] for name in DERIVED if name != "quarantine"), rows
    return rows


@pytest.mark.parametrize("step", ["begin", "commits", "groups"])
def test_a_late_writer_changes_nothing_and_the_next_owner_writes_what_is_missing(
    tables: Tables, undisturbed: dict[str, int], step: str
) -> None:
    """The lease is lost before the batch, or in the midst of it."""
    cluster, before = f"late at {step}", dict[str, int]()
    late, heir = Lease(tables, cluster, "late"), Lease(tables, cluster, "heir")

    def take_over(at: str) -> None:
        if at == step:
            make_silent(late)
            heir.acquire()
            before.update(count_rows(tables, cluster))

    late.acquire()
    coverage = Coverage(tables, cluster, late)
    take_over("begin")
    if step == "begin":
        with pytest.raises(LeaseLost):
            coverage.begin(SPANS)
    else:
        coverage.begin(SPANS)
    write_groups(tables, late, begin_step=take_over)
    assert count_rows(tables, cluster) == before
    with pytest.raises(LeaseLost):
        late.check()  # so Spark does not record the batch as written

    found = Coverage(tables, cluster, heir)
    found.load()
    begun = found.list_begun()
    assert begun == ({} if step == "begin" else {7: [(0, 1 << 20)]})
    write_groups(tables, heir, overlapping=bool(begun), begun=begun)
    heir.check()
    assert count_rows(tables, cluster) == undisturbed
    late.release()
    heir.release()


def test_a_process_that_was_silent_for_too_long_writes_nothing(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = "late"

    def append_commit(lease: Lease, offset: int) -> None:
        frame = make_frame(tables, cluster, raw([commit("g", "t", 0, offset)]))
        with write_once(tables.spark, *lease.next_transaction()):
            BatchWriter(tables, cluster).write(frame, {})

    late, heir = Lease(tables, cluster, "late"), Lease(tables, cluster, "heir")
    late.acquire()
    append_commit(late, 1)
    monkeypatch.setattr(module, "LEASE_S", 0.0)  # from now on every lease has run out
    heir.acquire()
    append_commit(late, 2)
    append_commit(heir, 3)
    append_commit(late, 4)
    rows = tables.cluster_frame("commits", cluster).select("committed").collect()
    assert sorted(row[0] for row in rows) == [1, 3]
    with pytest.raises(LeaseLost, match=rf"cluster {cluster}: heir on .* now writes into"):
        late.check()
    heir.check()
    late.release()
    heir.release()
