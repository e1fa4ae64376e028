"""The progress of a long command, on standard error if that is a terminal, and its total at the end."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from koff.cli.standard_streams import can_erase

if TYPE_CHECKING:
    from koff.spark.job.cluster_job import Progress

Measure = Callable[[], tuple[int, int]]
"""Returns how much is done, and how much there is to do in all (0 while unknown)."""
Describe = Callable[[int, int, float], str]
"""Formats progress: done, to do in all, done per second."""
_INTERVAL_S = 0.5


@contextmanager
def show_bar(label: str, measure: Measure, describe: Describe) -> Iterator[None]:
    """Shows a progress bar with the time left during the `with` block. Shows nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    options: dict[str, Any] = {"label": label, "file": sys.stderr, "width": 0, "update_min_steps": 0}
    with click.progressbar(length=1, item_show_func=lambda text: text or "", **options) as bar:
        ended = threading.Event()
        thread = threading.Thread(
            target=_update_bar, args=(bar, measure, describe, ended), name="koff-progress"
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _update_bar(bar: Any, measure: Measure, describe: Describe, ended: threading.Event) -> None:
    """Updates the bar until `ended` is set, and once more after that: the bar must show the final state."""
    began, is_last = time.monotonic(), False
    while not is_last:
        is_last = ended.wait(_INTERVAL_S)
        done, todo = measure()
        if not todo:
            continue
        bar.length, bar.current_item = todo, describe(done, todo, done / (time.monotonic() - began))
        if done:
            bar.update(min(done, todo) - bar.pos)
        else:
            bar.render_progress()  # `update` would compute a time left, and there is no rate yet


@contextmanager
def show_status_line() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a text in place of the previous text (nothing without a terminal)."""
    if not can_erase(sys.stderr):
        yield lambda text: None
        return
    try:
        # \r\033[K: back to the start of the line, and erase it
        yield lambda text: click.echo(f"\r\033[K{text}", nl=False, err=True)
    finally:
        click.echo("\r\033[K", nl=False, err=True)


def format_offsets(done: int, todo: int, per_s: float) -> str:
    """Progress through a log."""
    return f"{done:,} of {todo:,} offsets, {per_s:,.0f}/s"


def format_megabytes(done: int, todo: int, per_s: float) -> str:
    """Progress through files."""
    return f"{done / 1e6:,.1f} of {todo / 1e6:,.1f} MB, {per_s / 1e6:,.1f} MB/s"


class WrittenCounts:
    """Counts what a backfill or `run --once` writes into `tables`, and reports the total."""

    def __init__(self, tables: str) -> None:
        self._tables = tables
        self._batches: list[tuple[int, int]] = []

    def add(self, records: int, commits: int) -> None:
        """Adds a number of records. `commits` of them are commits."""
        self._batches.append((records, commits))

    def count_batch(self, progress: "Progress") -> None:
        """Adds what a batch of a stream has written."""
        self.add(progress.records, progress.commits)

    def count_and_log_batch(self, progress: "Progress") -> None:
        """Adds what a batch of a stream has written, and logs it."""
        from koff.spark.job.job import log_progress

        log_progress(progress)
        self.count_batch(progress)

    @contextmanager
    def report_total(self) -> Iterator[None]:
        """Prints the total on standard error when the `with` block ends without an exception."""
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        # (0, 0): without any batch, zip would give no columns to sum
        records, commits = (sum(counts) for counts in zip((0, 0), *self._batches, strict=True))
        click.echo(
            f"{records:,} records, {commits:,} of them commits, in {seconds:,.1f} s "
            f"({records / seconds:,.0f} records/s), into {self._tables}",
            err=True,
        )
