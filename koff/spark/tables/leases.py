"""Only one process at a time writes a cluster's rows: the table `leases`, and the fence for a late writer.

A row says that an owner had the lease of a cluster at a time. Its sequence number is one more than that of
the row that its owner has read, and Delta takes each number of a cluster once. So of two processes that want
the lease at once, one gets it. The lease of `ALL` is that of `koff pipeline maintain`, and excludes all
others.

Every write of an owner is a transaction with a version. The versions of a later owner are larger, and Delta
ignores a version in a table that has a larger one. An owner that takes over from a silent one first writes an
empty transaction into each table of `FENCED`: from then on, Delta ignores the silent owner there.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import structlog

from koff.errors import KoffError
from koff.spark.tables.conflicts import is_conflict, retry_conflicts
from koff.spark.tables.log_store import is_single_driver
from koff.spark.tables.schemas import TABLES, Tables, for_each_table, quote_sql
from koff.spark.worker_errors import is_java_gone, summarize_error

log = structlog.get_logger(component="spark.tables.leases")
LEASE_S, HEARTBEAT_S = 60.0, 15.0
"""How long a lease holds after a heartbeat, and the time between two heartbeats."""
ALL = "*"
_FIRST = ("coverage", "group_states", "samples")
FENCED = (*_FIRST, *(name for name in TABLES if name not in (*_FIRST, "leases")))
"""All tables that an owner writes, in the order in which a new owner shuts out a late one.

A late owner may write at the same time: then Delta ignores it in the first tables of this order, and not yet
in the last. `coverage` comes first: while an owner is not ignored there, nothing that it wrote was ignored.
`group_states` and `samples` say that rows of other tables are complete, so they come before these tables.
"""
_BATCH_BITS = 24
"""The version of a transaction is the sequence number of its owner, and in these bits a number of its own."""
_KEPT_ROWS = 2000
"""After this many heartbeats, older rows of the cluster are deleted."""
_ours: set[str] = set()
"""The nonces of the leases of this process."""


class LeaseHeld(KoffError):
    """Another process has the lease."""


class LeaseLost(KoffError):
    """Another process took the lease, because this one was silent for too long."""


class _Row(NamedTuple):
    """A row of the table, without the cluster. `nonce` tells apart two owners with the same process id."""

    sequence: int
    owner: str
    host: str
    process: int
    nonce: str
    released: bool
    at: datetime

    def is_live(self) -> bool:
        """Whether the owner may still write. A process that ended on this machine does not."""
        if self.released or is_outdated(self.at):
            return False
        if self.host != socket.gethostname():
            return True
        return self.nonce in _ours if self.process == os.getpid() else _is_running(self.process)


class Lease:
    """The lease of one cluster. `acquire` starts a thread that renews it, `release` ends it.

    If only one process at a time may write the tables, it excludes the leases of other processes for other
    clusters, too. (Then a race of two processes is found in most cases, not in all: see
    `koff.spark.tables.log_store`.)
    """

    def __init__(self, tables: Tables, cluster: str, owner: str) -> None:
        self.cluster = cluster
        self._app, self._lease_app = f"koff {cluster}", f"koff lease {cluster}"
        self._tables, self._owner, self._nonce = tables, owner, str(uuid4())
        self._excludes_others = is_single_driver(tables.spark, tables.root)
        self._sequence = self._fence = self._batches = 0
        self._renewed_at = 0.0  # monotonic
        self._lost: LeaseLost | None = None
        self._lock = threading.Lock()  # guards a renewal: the thread's, or that of `check`
        self._released = threading.Event()
        self._renewer = threading.Thread(target=self._renew_regularly, name="koff-lease", daemon=True)

    def acquire(self) -> None:
        """Gets the lease, and shuts out a former owner that did not release it. Raises `LeaseHeld`."""
        _ours.add(self._nonce)
        try:
            # The numbers that Delta has seen, also if the rows of the leases were lost. They are read before
            # the row: an owner writes its row first, so a number of another process comes with a live row.
            used = self._find_used_sequence()
            former = self._find_newest(self.cluster)
            self._raise_if_live(former)
            is_silent = not former.released if former else used > 0
            self._fence = self._sequence = max(used, former.sequence if former else 0) + 1
            if not self._append(released=False):
                self._raise_if_live(self._find_newest(self.cluster))
                raise LeaseHeld(
                    f"cluster {self.cluster}: another process had the lease: start this one again"
                )
            # Looked at after the own row is written: of two leases that exclude each other, one at least sees
            # the other.
            try:
                for other in self._list_excluded():
                    self._raise_if_live(self._find_newest(other))
            except LeaseHeld:
                # After a row that says "released", the next owner would not shut out the silent one.
                self._append(released=not is_silent)
                raise
            if is_silent and self.cluster != ALL:
                self._write_fence()
        except BaseException:
            _ours.discard(self._nonce)
            raise
        self._renewer.start()

    def release(self) -> None:
        """Gives the lease up. Errors are only logged: the lease then ends by itself after `LEASE_S`."""
        self._released.set()
        _ours.discard(self._nonce)
        with self._lock:
            if self._lost is not None:
                return
            try:
                self._append(released=True)
            except Exception as error:
                if not is_java_gone(error):
                    log.warning(
                        "the lease was not released", cluster=self.cluster, why=summarize_error(error)
                    )

    def next_transaction(self) -> tuple[str, int]:
        """The application and the version of the next batch, for `write_once`.

        Versions grow from owner to owner: when a later owner has written, Delta ignores an earlier owner.
        """
        self._batches += 1
        return self._app, (self._fence << _BATCH_BITS) + self._batches

    def check(self) -> None:
        """Raises `LeaseLost` unless Delta ignored no write so far, and nobody else can have the lease now."""
        if self._lost is None and time.monotonic() - self._renewed_at > LEASE_S - HEARTBEAT_S:
            self._renew()
        if self._lost is None and self._find_fence(FENCED[0]) > self._fence:
            self._note_lost()
        if self._lost is not None:
            raise self._lost

    def _write_fence(self) -> None:
        transaction = self.next_transaction()
        for name in FENCED:
            nothing = self._tables.frame(name).limit(0)
            # The conflict is with a write of the owner that is shut out: it ends, or is ignored.
            retry_conflicts(partial(self._tables.append_rows, name, nothing, transaction))

    def _find_used_sequence(self) -> int:
        """The largest number that a lease of the cluster had by Delta's transactions; 0 if there was none."""
        fences = for_each_table(self._find_fence, FENCED)
        return max(*fences, self._tables.find_version("leases", self._lease_app))

    def _find_fence(self, name: str) -> int:
        """The sequence number of the last owner that wrote into the table; 0 if there was none."""
        return self._tables.find_version(name, self._app) >> _BATCH_BITS

    def _renew_regularly(self) -> None:
        while not self._released.wait(HEARTBEAT_S) and self._lost is None:
            try:
                self._renew()
            except Exception as error:
                if is_java_gone(error):
                    return
                # `check` renews it again before the next batch is recorded as written.
                log.warning("the lease was not renewed", cluster=self.cluster, why=summarize_error(error))

    def _renew(self) -> None:
        with self._lock:
            if self._released.is_set() or self._lost is not None:
                return
            if self._append(released=False):
                if (self._sequence - self._fence) % _KEPT_ROWS == 0:
                    old = f"cluster = {quote_sql(self.cluster)} AND sequence < {self._sequence - 1}"
                    self._tables.delta_table("leases").delete(old)
                return
            self._note_lost()

    def _note_lost(self) -> None:
        newest = self._find_newest(self.cluster)
        by = f"{newest.owner} on {newest.host} (process {newest.process})" if newest else "another process"
        self._lost = LeaseLost(
            f"cluster {self.cluster}: {by} now writes into {self._tables.root}, because this process was "
            f"silent for more than {LEASE_S:g} s: let only one of them run"
        )

    def _append(self, *, released: bool) -> bool:
        """Appends the next row. Returns whether the lease is ours: nobody else took the sequence number."""
        began = time.monotonic()
        place = (self._owner, socket.gethostname(), os.getpid(), self._nonce)
        row = _Row(self._sequence, *place, released, datetime.now(UTC))
        try:
            frame = self._tables.make_frame("leases", self.cluster, [row])
            self._tables.append_rows("leases", frame, (self._lease_app, row.sequence))
        except Exception as error:
            if not is_conflict(error):
                raise
            log.debug("the lease was written by another process", why=summarize_error(error))
        newest = self._find_newest(self.cluster)
        if newest is None or newest.nonce != self._nonce:
            return False
        self._sequence, self._renewed_at = self._sequence + 1, began
        return True

    def _find_newest(self, cluster: str) -> _Row | None:
        from pyspark.sql import functions as f

        rows = self._tables.cluster_frame("leases", cluster).select(*_Row._fields)
        row = rows.orderBy(f.col("sequence").desc()).first()
        return None if row is None else _Row(*row)

    def _list_excluded(self) -> list[str]:
        """The other leases that exclude this one."""
        if self.cluster != ALL and not self._excludes_others:
            return [ALL]
        rows = self._tables.frame("leases").select("cluster").distinct().collect()
        others = [row[0] for row in rows if row[0] != self.cluster]
        if self.cluster == ALL:
            return others
        # A job holds the leases of all its clusters.
        newest = {other: self._find_newest(other) for other in others}
        return [other for other, row in newest.items() if other == ALL or (row and row.nonce not in _ours)]

    def _raise_if_live(self, other: _Row | None) -> None:
        if other is None or other.nonce == self._nonce or not other.is_live():
            return
        of = "" if self.cluster == ALL else f"cluster {self.cluster}: "
        raise LeaseHeld(
            f"{of}{other.owner} on {other.host} (process {other.process}) writes into {self._tables.root}: "
            f"stop it first; if it was killed, wait {LEASE_S:g} s"
        )


@contextmanager
def hold_leases(tables: Tables, clusters: Sequence[str], owner: str) -> Iterator[dict[str, Lease]]:
    """Holds the leases of these clusters in the body, by cluster. Raises `LeaseHeld`."""
    with ExitStack() as held:
        leases = {}
        for cluster in clusters:
            leases[cluster] = Lease(tables, cluster, owner)
            leases[cluster].acquire()
            held.callback(leases[cluster].release)
        yield leases


def is_outdated(at: datetime) -> bool:
    """Whether a lease that was renewed at this time has ended.

    So has a lease from the future: a clock was set back. If its owner does live, it stops as one that was
    silent for too long, and writes nothing.
    """
    return abs((datetime.now(UTC) - at.astimezone(UTC)).total_seconds()) > LEASE_S


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
