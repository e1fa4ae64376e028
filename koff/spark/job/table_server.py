"""`--listen`: the daemon's server with the views of all clusters of a job, and the sizes of the tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.spark.job.cluster_stream import Progress
from koff.spark.job.table_status import read_file_sizes
from koff.spark.job.table_view import TableView
from koff.spark.tables.schemas import Tables
from koff.spark.worker_errors import summarize_error
from koff.view.cluster_view import Readiness, StoredTable, Views

if TYPE_CHECKING:
    from koff.spark.job.job import Job

log = structlog.get_logger(component="spark.job")
FIRST_SIZES_S, SIZES_S = 60.0, 600.0
"""The time between two looks at the sizes of the tables. At the first look, new tables are empty."""


class TableViews:
    """A `ViewSource` of all clusters of a job. The job calls `apply_batch` after each batch."""

    def __init__(self, job: Job, tables: Tables) -> None:
        self._job, self._tables = job, tables
        self._views = {name: TableView(name, job.conf.limit_s) for name in job.names}
        self._sizes: Mapping[str, StoredTable] = {}

    def apply_batch(self, done: Progress) -> None:
        """Brings the view of the batch's cluster up to the tables."""
        self._views[done.cluster].apply_batch(done, self._tables)

    def look_at_sizes(self) -> None:
        """Reads the sizes of the tables. If that fails, they are unknown until the next look."""
        try:
            sizes = read_file_sizes(self._tables)
        except Exception as error:
            log.debug("the sizes of the tables are not known", why=summarize_error(error))
            self._sizes = {}
        else:
            self._sizes = {name: StoredTable(*size) for name, size in sizes.items()}

    def take_views(self) -> Views:
        """The views of all clusters. A cluster whose stream has failed has a view, too."""
        for name, view in self._views.items():
            view.note_stream(self._job.failures[name], self._job.why_down.get(name))
        views = tuple(view.take_view() for view in self._views.values())
        if len(views) == 1:
            return Views(views, views[0].readiness, self._sizes)
        ready = sum(view.readiness.ready for view in views)
        # As in the daemon: a cluster that is down does not make the others wait.
        is_ready = ready > 0 and not any(view.is_starting for view in self._views.values())
        head = f"{'ready' if is_ready else 'not ready'}: {ready} of {len(views)} clusters"
        lines = [head, *(f"{view.cluster}: {view.readiness.text}" for view in views)]
        return Views(views, Readiness(is_ready, "\n".join(lines)), self._sizes)

    def find_stall(self) -> str | None:
        """None: a job that fails ends the process, and a batch may take as long as it needs."""
        return None


@contextmanager
def serve_tables(listen: str, job: Job, tables: Tables) -> Iterator[Server | None]:
    """Serves the job's newest state inside this block, and yields the server. If `listen` is "", yields None.

    Enter it before `job.run`: it replaces `job.progress`.
    """
    if not listen:
        yield None
        return
    views = TableViews(job, tables)
    report_progress = job.progress

    def apply_progress(done: Progress) -> None:
        views.apply_batch(done)
        report_progress(done)

    with Server(views, ServeConf(listen)) as server, _call_regularly(views.look_at_sizes):
        job.progress = apply_progress
        log.info("listening", url=server.url)
        yield server


@contextmanager
def _call_regularly(work: Callable[[], None]) -> Iterator[None]:
    """Calls `work` now and again, in a thread of its own, until the block ends."""
    ended = threading.Event()

    def call() -> None:
        work()
        pause_s = FIRST_SIZES_S
        while not ended.wait(pause_s):
            work()
            pause_s = SIZES_S

    # A daemon: a look that hangs in Spark must not keep the process from ending.
    thread = threading.Thread(target=call, name="koff-table-sizes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
