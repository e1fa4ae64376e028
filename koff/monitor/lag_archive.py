"""The lags of groups by the minute, for a week, and how long they missed their objectives: an SQLite file.

One thread writes. Others may read at any time, each with a connection of its own. A minute of a group takes
20 to 40 bytes. Without the file, koff shows no comparison with other days: nothing else depends on it.
"""

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from math import isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog

from koff.client.closing import Closing
from koff.view.activity import RecentActivity
from koff.view.earlier import WINDOWS_S, Earlier, LateShare
from koff.view.lag_history import STEP_S, STEPS

log = structlog.get_logger(component="monitor.archive")
FILE = "archive.sqlite"
MINUTE_S, SLOT_S = 60, 600
"""Lags are kept by the minute; how long groups were late, by ten minutes."""
KEPT_S, SLOTS_KEPT_S = 7 * 86_400 + 7_200, 31 * 86_400
MOST_NAMES = 100_000
"""So many names of groups are known at most: some groups live for minutes, under a new name each time."""
READ_S = 0.5
"""How long a read waits for the writer. A writer that takes longer than `STUCK_S` has a disk that hangs."""
STUCK_S = 5.0
_SCHEMA = """
create table if not exists groups (id integer primary key, name blob not null unique, seen integer not null);
create table if not exists minutes (
  minute integer, id integer, lag integer not null, time_lag_ms integer, primary key (minute, id)
) without rowid;
create table if not exists slots (
  id integer, slot integer, late integer not null, known integer not null, primary key (id, slot)
) without rowid;
"""


class GroupMinute(NamedTuple):
    """What is kept of a group. The time lag may be unknown. `is_late` is None without an objective."""

    lag: int
    time_lag_ms: int | None
    is_late: bool | None


class LagArchive:
    """The archive in a folder. `add` is for one thread; it raises nothing: failures are logged once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._ids: dict[str, int] = {}
        self._database: sqlite3.Connection | None = None
        self._failure = ""
        self._began_s: float | None = None

    def close(self) -> None:
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
        self._database = None

    def add(self, now_s: float, groups: Mapping[str, GroupMinute]) -> None:
        """Keeps the minute of `now_s`, in seconds since 1970, and forgets what is too old."""
        self._began_s = time.monotonic()
        try:
            self._write(int(now_s), groups)
        except (sqlite3.OperationalError, OSError) as failure:
            self._fail(failure)
        except sqlite3.DatabaseError as failure:
            self._fail(failure)
            _remove(self._path)  # it is damaged: koff begins a new one
        else:
            self._failure = ""
        finally:
            self._began_s = None

    def find_earlier(self, group: str, end_ms: int, before_s: int) -> Earlier | None:
        """The hour that ended `before_s` before `end_ms`, in the steps of `Course`. None: nothing is kept."""
        ends_s = end_ms // 1000 - before_s - STEP_S * np.arange(STEPS)[::-1]
        minutes = (ends_s - 1) // MINUTE_S
        query = (
            "select minute, lag, time_lag_ms from groups join minutes using (id) "
            "where name = ? and minute between ? and ?"
        )
        found = self._read(query, group, int(minutes[0]), int(minutes[-1]))
        if not found:
            return None
        lag, time_lag_s = np.full((2, STEPS), np.nan)
        for minute, its_lag, its_time_lag_ms in found:
            lag[minutes == minute] = its_lag
            time_lag_s[minutes == minute] = np.nan if its_time_lag_ms is None else its_time_lag_ms / 1000
        return Earlier(lag, time_lag_s)

    def find_late(self, group: str, now_ms: int) -> list[LateShare]:
        """How long the group missed its objective, in each of `WINDOWS_S`. Empty: nothing is known."""
        sums = []
        query = (
            "select total(late), total(known) from groups join slots using (id) "
            "where name = ? and slot > ? and slot <= ?"
        )
        for window_s in WINDOWS_S:
            slot = now_ms // 1000 // SLOT_S
            ((late, known),) = self._read(query, group, slot - window_s // SLOT_S, slot) or [(0, 0)]
            sums.append(LateShare(window_s, late / known if known else None, known * MINUTE_S / window_s))
        return sums if sums[-1].known else []

    def _write(self, now_s: int, groups: Mapping[str, GroupMinute]) -> None:
        if self._database is None or not self._path.exists():  # somebody may have removed it
            self._open()
        assert self._database is not None
        minute, slot = now_s // MINUTE_S, now_s // SLOT_S
        with self._database as database:
            self._add_names(database, [name for name in groups if name not in self._ids], slot)
            kept = [(self._ids[name], each) for name, each in groups.items() if name in self._ids]
            database.executemany(
                "insert or replace into minutes values (?, ?, ?, ?)",
                [(minute, id_, each.lag, each.time_lag_ms) for id_, each in kept],
            )
            database.executemany(
                "insert into slots values (?, ?, ?, 1) on conflict do update "
                "set late = late + excluded.late, known = known + 1",
                [(id_, slot, each.is_late) for id_, each in kept if each.is_late is not None],
            )
            self._forget(database, now_s, [id_ for id_, _ in kept])

    def _add_names(self, database: sqlite3.Connection, names: Sequence[str], slot: int) -> None:
        for name in names[: max(0, MOST_NAMES - len(self._ids))]:
            query = "insert into groups (name, seen) values (?, ?)"
            self._ids[name] = database.execute(query, (_encode(name), slot)).lastrowid or 0

    def _forget(self, database: sqlite3.Connection, now_s: int, present: Sequence[int]) -> None:
        """Forgets the oldest minutes, a few at a time: a clock that is set far ahead must not cost all."""
        database.execute(
            "delete from minutes where minute < ? and minute <= (select min(minute) + 2 from minutes)",
            ((now_s - KEPT_S) // MINUTE_S,),
        )
        if now_s // MINUTE_S % 60 == 0:
            slot, oldest = now_s // SLOT_S, (now_s - SLOTS_KEPT_S) // SLOT_S
            database.executemany("update groups set seen = ? where id = ?", [(slot, id_) for id_ in present])
            database.execute("delete from slots where slot < ?", (oldest,))
            query = "delete from groups where seen < ? and id not in (select id from slots)"
            database.execute(query, ((now_s - KEPT_S) // SLOT_S,))
            self._ids = _read_ids(database)

    def _open(self) -> None:
        self.close()
        self._path.touch(mode=0o600)
        self._database = sqlite3.connect(self._path, check_same_thread=False, isolation_level="IMMEDIATE")
        self._database.executescript(
            f"pragma journal_mode = wal; pragma synchronous = normal; pragma cache_size = -1000; {_SCHEMA}"
        )
        self._ids = _read_ids(self._database)

    def _read(self, query: str, group: str, *values: int) -> list[tuple[int, ...]]:
        """The rows, or none if the archive cannot be read now: nobody waits for a disk that hangs."""
        began_s = self._began_s
        if self._failure or (began_s is not None and time.monotonic() - began_s > STUCK_S):
            return []
        try:
            address = f"{self._path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, timeout=READ_S, uri=True)) as database:
                return database.execute(query, (_encode(group), *values)).fetchall()
        except sqlite3.Error:
            return []

    def _fail(self, failure: Exception) -> None:
        self.close()
        if str(failure) != self._failure:
            log.warning("lags are not kept for later", file=str(self._path), why=str(failure))
        self._failure = str(failure)


def _read_ids(database: sqlite3.Connection) -> dict[str, int]:
    found = database.execute("select name, id from groups")
    return {bytes(name).decode(errors="surrogatepass"): id_ for name, id_ in found}


def _encode(name: str) -> bytes:
    return name.encode(errors="surrogatepass")


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()


STOP_S = 2.0
MOST = 1e18
"""No number that is kept is larger: any client may set the time of a record, and SQLite has 64 bits."""


class Archivist(Closing):
    """Writes at the end of each minute, until it is closed. A disk that hangs delays nothing else."""

    def __init__(self, folder: Path, activity: RecentActivity) -> None:
        self._activity, self._archive = activity, LagArchive(folder)
        activity.archive = self._archive
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="koff-archive", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        fault = ""
        while not self._stopped.wait(MINUTE_S - time.time() % MINUTE_S):
            now_s = time.time() - 1  # of the minute that has just ended
            try:
                self._archive.add(now_s, list_minute(self._activity, now_s))
            except Exception as error:
                self._archive.close()  # what it has noted of a minute that is not kept is forgotten
                if fault != (fault := repr(error)):
                    log.exception("a fault of koff: please report it")
        self._archive.close()


def list_minute(activity: RecentActivity, now_s: float) -> dict[str, GroupMinute]:
    """The groups whose lag is known at that time, and what is to be kept of them."""
    late = activity.current.list_late()
    known = activity.history.list_known(round(now_s * 1000))
    return {
        name: GroupMinute(
            round(min(lag, MOST)),
            None if isnan(time_lag_s) else round(min(time_lag_s * 1000, MOST)),
            late.get(name),
        )
        for name, lag, time_lag_s in known
    }
