"""What the page at `/` costs with many groups, in Chromium: first paint, memory, scrolling. Prints JSON.

    python -m bench.page [--groups 20000] [--partitions 6]

The groups are made up, and a real server serves them. `server_rss_mib` is the memory of this process, the
rest is of Chromium.
"""

import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import structlog

from koff.kafkatest import wait_until
from koff.serve.api.queries import read_memory_bytes
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.tracker import Tracker
from tests.chromium import Tab, browser
from tests.unit.builders import commit
from tests.unit.serve.views import NOW_MS, Source, take_view

_MIB = 2**20
_ROWS = "document.querySelectorAll('#groups tbody .row').length"
_SCROLL = """new Promise((resolve) => {
  const frames = [];
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    scrollBy(0, 40);
    if (frames.length < 120) requestAnimationFrame(step);
    else resolve({ median: frames.sort((a, b) => a - b)[60], longest: frames.at(-1) });
  };
  requestAnimationFrame(step);
})"""
"""Scrolls for 120 frames: how long each took, in ms."""
_REFRESHES = """new Promise((resolve) => {
  const taken = [];
  new PerformanceObserver((list) => taken.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "measure" });
  const more = setInterval(() => document.dispatchEvent(new Event("visibilitychange")), 500);
  setTimeout(() => (clearInterval(more), resolve(taken.sort((a, b) => a - b))), 10250);
})"""
"""What the page's own code takes to show each of twenty refreshes, in ms."""
_LONG_TASKS = """new Promise((resolve) => {
  const tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "longtask" });
  setTimeout(() => resolve(tasks), 16000);
})"""
"""The tasks of more than 50 ms within 16 s, in which the page refreshes three times."""


def build_source(groups: int, partitions: int) -> Source:
    """Groups with lags from 0 on, each on its own partitions, and a course of them."""
    tracker = Tracker()
    for group in range(groups):
        topic = f"topic-{group % 200:03}"
        pairs = [commit(f"group-{group:05}", topic, each, 1000) for each in range(partitions)]
        tracker.apply(group % 50, [key for key, _ in pairs], [value for _, value in pairs])
    ends = {(f"topic-{topic:03}", each): 1000 + topic for topic in range(200) for each in range(partitions)}
    tracker.add_samples(ends=ends)
    view = take_view(tracker)
    changes = ClusterChanges()
    for step in range(4):
        changes.compare(view, NOW_MS + step * 15_000)
    return Source(view)


def measure(tab: Tab, url: str, groups: int) -> dict[str, Any]:
    """The times of the page in the browser: `_s` are seconds, `_ms` milliseconds."""
    tab.open("about:blank", colors="light")
    begun = time.perf_counter()
    tab.open(url, colors="light")
    wait_until(
        lambda: tab.evaluate(_ROWS) == min(groups, 100), timeout_s=120, what="the first page of groups"
    )
    first_groups_s = time.perf_counter() - begun
    paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    long_tasks, refreshes = tab.evaluate(_LONG_TASKS), tab.evaluate(_REFRESHES)
    begun = time.perf_counter()
    tab.evaluate(
        "(() => { const field = document.querySelector('[name=name]'); field.value = 'group-00007';"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    wait_until(lambda: tab.evaluate(_ROWS) == 1, timeout_s=60, what="the search")
    search_s = time.perf_counter() - begun
    tab.evaluate("location.hash = '#/'")
    wait_until(lambda: tab.evaluate(_ROWS) == min(groups, 100), timeout_s=60, what="all groups")
    frames = tab.evaluate(_SCROLL)
    tab.call("HeapProfiler.collectGarbage")
    heap = tab.call("Runtime.getHeapUsage")["usedSize"]
    return {
        "first_paint_ms": round(paint or 0),
        "first_groups_s": round(first_groups_s, 2),
        "search_s": round(search_s, 2),
        "long_tasks_ms_in_16_s": [round(each) for each in long_tasks],
        "refresh_median_ms": round(refreshes[len(refreshes) // 2], 1),
        "refresh_longest_ms": round(refreshes[-1], 1),
        "scroll_frame_median_ms": round(frames["median"], 1),
        "scroll_frame_longest_ms": round(frames["longest"], 1),
        "heap_mib": round(heap / _MIB, 1),
        "elements": tab.evaluate("document.querySelectorAll('*').length"),
    }


@click.command()
@click.option("--groups", default=20_000)
@click.option("--partitions", default=6)
def main(groups: int, partitions: int) -> None:
    """Prints the figures."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    source = build_source(groups, partitions)
    conf = ServeConf("127.0.0.1:0")
    with (
        Server(source, conf, events=Events()) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browser(Path(profile)) as tab,
    ):
        figures = measure(tab, server.url, groups)
    memory = round((read_memory_bytes() or 0) / _MIB)
    print(json.dumps({"groups": groups, **figures, "server_rss_mib": memory}, indent=2))


if __name__ == "__main__":
    main()
