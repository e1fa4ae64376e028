"""Looks at a cluster: one, or with --watch one after the other."""

import sys
import time
from collections.abc import Callable, Iterator

import click

from koff.cli.progress_bar import show_status_line
from koff.cli.standard_streams import can_erase
from koff.monitor.conf import MonitorConf
from koff.monitor.watch import take_views
from koff.serve.events.changes import ClusterChanges, look_at
from koff.view.cluster_view import ClusterView


def take_looks(
    conf: MonitorConf,
    *,
    interval_s: float,
    timeout_s: float,
    erases: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[ClusterView]:
    """Views of the cluster with verdicts, as `take_views` takes them.

    Shows on standard error what is awaited. With `erases`, the terminal is erased before each view.
    """
    changes = ClusterChanges()
    with show_status_line() as progress:
        for view in take_views(
            conf, interval_s=interval_s, timeout_s=timeout_s, progress=progress, is_stopped=is_stopped
        ):
            progress("")
            if erases and can_erase(sys.stdout):
                click.clear()
            yield look_at(view, changes, time.time_ns() // 1_000_000)[0]
