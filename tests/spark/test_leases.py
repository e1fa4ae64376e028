"""Of two processes that would write the same tables, one stops and says why; a late one writes nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.spark.job.batch_writer import BatchWriter, write_once
from koff.spark.job.segments_backfill import backfill_segments
from koff.spark.rows.packing import PACKED, PACKED_DDL, pack_batches
from koff.spark.tables import leases as module
from koff.spark.tables.leases import ALL, Lease, LeaseHeld, LeaseLost, hold_leases
from koff.spark.tables.maintenance import maintain_tables
from koff.spark.tables.schemas import TABLES, Tables
from tests.spark.test_decoding import decode_batch, raw
from tests.unit.builders import commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_maintenance_and_backfills_do_not_run_beside_a_job(tables: Tables) -> None:
    segments = str(Path(__file__).parents[1] / "golden" / "segments" / "none.log")
    with hold_leases(tables, ["both"], "a job"):
        with pytest.raises(LeaseHeld, match="cluster both: a job on"):
            backfill_segments(tables, segments, "both")
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


def test_a_process_that_was_silent_for_too_long_writes_nothing(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = "late"

    def append_commit(lease: Lease, offset: int) -> None:
        decoded = [decode_batch(raw([commit("g", "t", 0, offset)]), cluster)]
        rows = [row for batch in pack_batches(decoded) for row in batch.to_pylist()]
        frame = tables.spark.createDataFrame(
            [[row[name] for name in PACKED.names] for row in rows], PACKED_DDL
        )
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
