"""Takes the picture of the terminal in README from live data: `python docs/take_terminal_picture.py`.

Runs `koff demo`, and the live view of `koff lag --watch` on its Kafka. Takes the picture once incidents are
named. It is an SVG of text: small, and sharp at any size.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from take_screenshots import find_in_output
from textual.widgets import Static

from koff.cli.live_view import LiveConf, LiveView
from koff.client import ClusterConf
from koff.monitor.conf import MonitorConf
from koff.monitor.requests import Display
from koff.monitor.watch import take_views
from koff.tracker import Objective
from koff.view.cluster_view import ClusterView

PICTURE = Path(__file__).parent / "images" / "terminal.svg"
SIZE = (130, 22)
EXPLAINED, TOLD = 3, 3
"""So many groups must have a likely cause, and so many lines below the list say what happened."""
DEADLINE_S = 300


async def take(brokers: str) -> str:
    """The screen as SVG, once it shows enough."""
    display = Display(objectives=(Objective(re.compile("."), 15.0),))  # as of the demo
    conf = MonitorConf(ClusterConf(brokers), end_interval_s=1.0, cluster_name="demo", display=display)

    def take_of_kafka(is_stopped: Callable[[], bool]) -> Iterator[ClusterView]:
        return take_views(conf, interval_s=2.0, timeout_s=60.0, is_stopped=is_stopped)

    view = LiveView(take_of_kafka, LiveConf(brokers))
    async with view.run_test(size=SIZE) as pilot, asyncio.timeout(DEADLINE_S):
        while True:
            await pilot.pause(1.0)
            body = str(view.query_one("#body", Static).content)
            lines = len(str(view.query_one("#foot", Static).content).splitlines()) - 1
            explained = len(re.findall("Stopped: |Stuck: |Late|Blocked: |Records lost: ", body))
            if explained >= EXPLAINED and lines >= TOLD:
                return view.export_screenshot(title="koff lag --watch", simplify=True)


def main() -> None:
    """Takes the picture."""
    command = [sys.executable, "-m", "koff", "demo", "--seconds", "480"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 - our own command
        brokers = find_in_output(demo, "Kafka")
        svg = asyncio.run(take(brokers))
        demo.terminate()
    # Without the fonts of another host: the machine's own will do.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
