"""Takes the pictures of the README from live data: `python docs/take_screenshots.py`. Needs Chromium.

Runs `koff demo`, and takes pictures of its page once the incidents of the demo are named.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from koff.kafkatest import wait_until
from tests.chromium import Tab, browser

IMAGES = Path(__file__).parent / "images"
INCIDENTS = 3
NARROW = 360
POINTS = 3
"""A sparkline has a point each two minutes."""


def take(tab: Tab, name: str, height: float | None = None) -> None:
    """A picture of the whole page in the tab, or of the upper part if the page is narrow."""
    box = {"x": 0.0, "y": 0.0, "width": NARROW, "height": height} if height else None
    (IMAGES / f"{name}.png").write_bytes(tab.screenshot(box))


def show(tab: Tab, address: str, **options: Any) -> None:
    """Loads an address of the page: a new part after # alone would not load it again."""
    tab.open("about:blank", **options)
    tab.open(address, **options)


def find_in_output(demo: subprocess.Popen[str], name: str) -> str:
    """The address of the page, or of Kafka, which the demo prints."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if found := re.search(rf"^ +{name} +(\S+)", line):
            # The demo goes on printing: without a reader, it would wait.
            Thread(target=list, args=(demo.stdout,), daemon=True).start()
            return found[1]
    raise RuntimeError("the demo has ended")


def main() -> None:
    """Takes all pictures."""
    command = [sys.executable, "-m", "koff", "demo", "--seconds", "480"]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo,  # noqa: S603 - our own command
        browser(Path(profile)) as tab,
    ):
        url = find_in_output(demo, "page")
        tab.open(url, colors="light")
        late = "document.querySelectorAll('#groups .row :is(.ERR, .WARN)').length"
        wait_until(lambda: tab.evaluate(late) >= INCIDENTS, timeout_s=120, what="the incidents")
        courses = "document.querySelector('#groups polyline')?.getAttribute('points').split(' ').length ?? 0"
        wait_until(lambda: tab.evaluate(courses) >= POINTS, timeout_s=420, what="the courses of the lags")
        take(tab, "groups")
        address = tab.evaluate("[...document.links].find((link) => link.text === 'stuck').href")
        show(tab, url, colors="dark", width=NARROW)
        wait_until(lambda: tab.evaluate(late), what="the list")
        take(tab, "groups-narrow", height=1200)
        show(tab, f"{url}#/events", colors="light")
        wait_until(lambda: tab.evaluate("document.querySelectorAll('.story').length"), what="the incidents")
        take(tab, "incidents")
        show(tab, address, colors="dark")
        plotted = "document.querySelectorAll('.cause, .plot canvas').length >= 3"
        wait_until(lambda: tab.evaluate(plotted), what="the group")
        is_live = "document.getElementById('live').textContent === 'live'"
        wait_until(lambda: tab.evaluate(is_live), what="the stream of events")
        take(tab, "group")
        demo.terminate()


if __name__ == "__main__":
    main()
