"""The live view on a screen of textual's pilot, with views that the test hands out."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

from koff.cli.live_view import LiveConf, LiveView
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView
from tests.unit.builders import apply, commit
from tests.unit.serve.views import take_view


class Screen:
    """A view on a screen, and the end of the queue from which it takes views."""

    def __init__(self, conf: LiveConf) -> None:
        self.views: queue.Queue[ClusterView | Exception] = queue.Queue()
        self.app = LiveView(self._take_views, conf)

    def _take_views(self, is_stopped: Callable[[], bool]) -> Iterator[ClusterView]:
        while not is_stopped():
            try:
                view = self.views.get(timeout=0.05)
            except queue.Empty:
                continue
            if isinstance(view, Exception):
                raise view
            yield view

    @property
    def text(self) -> str:
        """What is shown."""
        parts = [self.app.query_one(f"#{name}", Static) for name in ("head", "body", "foot")]
        return "\n".join(str(part.content) for part in parts)


def show(
    use: Callable[[Screen, Pilot[int]], Any],
    *,
    size: tuple[int, int] = (100, 24),
    conf: LiveConf | None = None,
) -> LiveView:
    screen = Screen(conf or LiveConf("b:1"))

    async def run() -> None:
        async with screen.app.run_test(size=size) as pilot:
            await use(screen, pilot)

    asyncio.run(run())
    return screen.app


async def wait_until(pilot: Pilot[int], condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await pilot.pause(0.02)


async def wait_for(screen: Screen, pilot: Pilot[int], text: str) -> None:
    await wait_until(pilot, lambda: text in screen.text)


HOSTILE = {
    "[bold red]markup[/]": "[bold red]markup[/]",
    "[/nope]": "[/nope]",
    "quote\"'`$(x)": "quote\"'`$(x)",
    "new\nline\ttab\x1b[31m": "new\\nline\\ttab\\x1b[31m",
    "\u202eright to left": "\\u202eright to left",
    "\u0634\u0631\u0643\u0629": "\u0634\u0631\u0643\u0629",
    "\u65e5\u672c\u8a9e\u30b0\u30eb\u30fc\u30d7": "\u65e5\u672c\u8a9e\u30b0\u30eb\u30fc\u30d7",
    "\U0001f44d\U0001f3fd" * 30: "\u2026",
    "\uff21" * 100: "\uff21\u2026\uff21",
    "a" * 250: "aaa\u2026aaa",
    "\u2764\ufe0f" * 10: "\u2764\ufe0f",
    "\u0915\u094d\u0937\u093f": "\u0915\u094d\u0937\u093f",
    "": "-",
}
"""Names of groups, and what is shown of them."""


def take_view_of_many() -> ClusterView:
    """The groups `HOSTILE`, with the largest lags, and 600 more."""
    tracker = Tracker()
    names = [*HOSTILE, *(f"group-{number:03}" for number in range(600))]
    for number, name in enumerate(names):
        apply(tracker, commit(name, "t", 0, number), partition=number % 50)
    tracker.add_samples(ends={("t", 0): 1000})
    return take_view(tracker)
