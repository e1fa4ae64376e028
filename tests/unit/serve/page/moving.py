"""A cluster whose groups fall behind and catch up as a test says, and the page of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from koff.kafkatest import wait_until
from koff.serve.access import AccessConf
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView
from tests.chromium import Tab
from tests.unit.builders import apply, commit
from tests.unit.serve.page.shown import list_names
from tests.unit.serve.views import NOW_MS, Source, take_view

SPAN_S = 1200


def build_view(late_s: Mapping[str, int], cluster: str = "c") -> ClusterView:
    """A view of groups that are so many seconds late. One offset is produced each second."""
    tracker = Tracker()
    for name, seconds in late_s.items():
        apply(tracker, commit(name, name, 0, SPAN_S - seconds, at=NOW_MS - 1_000))
    for second in range(SPAN_S, -1, -20):
        ends = {(name, 0): SPAN_S - second for name in late_s}
        tracker.add_samples(ends=ends, at_ms=NOW_MS - second * 1000)
    return take_view(tracker, cluster)


class Moving(Source):
    """A source of such views. `lateness` says how late the groups are from now on."""

    def __init__(self, late_s: Mapping[str, int]) -> None:
        super().__init__(build_view(late_s))

    def change(self, late_s: Mapping[str, int]) -> None:
        self.views = [build_view(late_s)]


@contextmanager
def serving(source: Source, *, tokens_file: Path | None = None) -> Iterator[str]:
    """The address of a page of the source."""
    conf = ServeConf("127.0.0.1:0", AccessConf(tokens_file=tokens_file))
    with Server(source, conf, events=Events()) as server:
        yield server.url


def refresh(tab: Tab) -> None:
    """Lets the page request everything now, and waits until it has shown that."""
    newest = "performance.getEntriesByName('koff refresh')[0]?.detail ?? 0"
    # In one turn of the page: a refresh of its own that ends meanwhile is not the one.
    before = tab.evaluate(
        f"(() => {{ const before = {newest}; document.dispatchEvent(new Event('visibilitychange'));"
        " return before; })()"
    )
    wait_until(lambda: tab.evaluate(newest) > before, what="a refresh")


def stop_clock(tab: Tab) -> None:
    """Lets the monotonic clock of the page stand still, but for `pass_ms`."""
    tab.evaluate("(() => { const at = performance.now(); performance.now = () => at; })()")


def pass_ms(tab: Tab, milliseconds: int) -> None:
    """Sets the monotonic clock of the page forward, in place of waiting."""
    tab.evaluate(
        "(() => { const now = performance.now.bind(performance);"
        f" performance.now = () => now() + {milliseconds}; }})()"
    )


def wait_for_names(tab: Tab, names: list[str]) -> None:
    wait_until(lambda: list_names(tab) == names, timeout_s=60, what=f"the order {names}")
