"""The thread that keeps the lags of each minute in the archive of the state directory."""

from __future__ import annotations

import threading
import time
from math import isnan
from pathlib import Path

import structlog

from koff.client.closing import Closing
from koff.monitor.lag_archive import MINUTE_S, GroupMinute, LagArchive
from koff.view.activity import RecentActivity

log = structlog.get_logger(component="monitor.archive")
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
        """Ends the thread."""
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
