"""A browser, and a server with made-up clusters."""

import pytest

from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.chromium import browser, found
from tests.unit.serve.page.shown import Shown


@pytest.fixture(scope="module")
def page():
    events = Events()
    with Server(Shown(), ServeConf("127.0.0.1:0"), events=events) as server:
        text = "group g: its lag <b>grows</b>"
        events.log.add(
            [ClusterEvent("d", "rebalanced", Severity.WARNING, text, group="g")], 1_800_000_300_000
        )
        yield server.url


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if not found():
        pytest.skip("needs Chromium: apt-get install chromium")
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab
