"""How far a long command is: a bar on standard error while that is a terminal; and what it came to."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from koff.spark.job.cluster_stream import Progress

Look = Callable[[], tuple[int, int]]
"""Gives how much is done, and how much there is to do: 0 as long as that is not known."""
Words = Callable[[int, int, float], str]
"""Says it: done, to do, and done each second."""
_EACH_S = 0.5


@contextmanager
def bar(label: str, look: Look, words: Words) -> Iterator[None]:
    """While inside, shows how far it is and how long the rest takes; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    told: dict[str, Any] = {"label": label, "file": sys.stderr, "width": 0, "update_min_steps": 0}
    with click.progressbar(length=1, item_show_func=lambda text: text or "", **told) as shown:
        ended = threading.Event()
        showing = threading.Thread(target=_show, args=(shown, look, words, ended), name="koff-progress")
        showing.start()
        try:
            yield
        finally:
            ended.set()
            showing.join()


def _show(shown: Any, look: Look, words: Words, ended: threading.Event) -> None:
    began, over = time.monotonic(), False
    while not over:
        over = ended.wait(_EACH_S)
        done, todo = look()
        if not todo:
            continue
        shown.length, shown.current_item = todo, words(done, todo, done / (time.monotonic() - began))
        if done:
            shown.update(min(done, todo) - shown.pos)
        else:
            shown.render_progress()  # an update would make a time left of nothing done


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Takes texts while inside: each is shown in place of the one before; none where there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: click.echo(f"\r\033[K{text}", nl=False, err=True)
    finally:
        click.echo("\r\033[K", nl=False, err=True)


def offsets(done: int, todo: int, per_s: float) -> str:
    """Words of a log."""
    return f"{done:,} of {todo:,} offsets, {per_s:,.0f}/s"


def megabytes(done: int, todo: int, per_s: float) -> str:
    """Words of files."""
    return f"{done / 1e6:,.1f} of {todo / 1e6:,.1f} MB, {per_s / 1e6:,.1f} MB/s"


class Taken:
    """Counts what a backfill takes into `tables`, for its last line."""

    def __init__(self, tables: str) -> None:
        self._tables = tables
        self._batches: list[tuple[int, int]] = []

    def add(self, records: int, commits: int) -> None:
        """So many records, so many of them commits."""
        self._batches.append((records, commits))

    def batch(self, done: Progress) -> None:
        """What a stream has written."""
        self.add(done.records, done.commits)

    def logged(self, done: Progress) -> None:
        """The same, with a line in the log."""
        from koff.spark.job.job import log_progress

        log_progress(done)
        self.batch(done)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Prints the line when what is inside has come to its end."""
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        records, commits = (sum(each) for each in zip((0, 0), *self._batches, strict=True))
        click.echo(
            f"{records:,} records, {commits:,} of them commits, in {seconds:,.1f} s "
            f"({records / seconds:,.0f} records/s), into {self._tables}",
            err=True,
        )
