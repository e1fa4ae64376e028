"""The page when the API is late, wrong or gone, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from koff.kafkatest import wait_until
from koff.serve import ServeConf, Server
from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.watcher import Events
from tests.chromium import Tab, found
from tests.unit.serve.page.shown import Shown, list_names, open_page, read, wait_for

pytestmark = [
    pytest.mark.skipif(not found(), reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(300),
]
ERROR = "document.getElementById('error')"
IS_WRONG, IS_WELL = f"!{ERROR}.hidden", f"{ERROR}.hidden"


@contextmanager
def answering(tab: Tab, answer: str) -> Iterator[None]:
    """Lets each request of the page have this answer (JavaScript, of `url`), until the block ends."""
    tab.evaluate(
        "window.real ??= window.fetch;"
        f" window.fetch = async (url, options) => {{ url = String(url); return {answer}; }}; 0"
    )
    refresh(tab)
    yield
    tab.evaluate("window.fetch = window.real; 0")
    refresh(tab)


def refresh(tab: Tab) -> None:
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            "new Response('<h1>Bad gateway</h1>', { status: 502 })",
            "koff responds with 502",
        ),
        (
            'new Response(\'{"detail": "no progress for 20 s"}\', { status: 503 })',
            "no progress for 20 s",
        ),
        (
            "new Response('<h1>Log in</h1>')",
            "what responds is not koff: perhaps a proxy between",
        ),
        (
            "new Response('{}')",
            "a response of koff cannot be shown (",
        ),
        (
            "await new Promise((_, reject) => setTimeout(() => reject(new Error('late')), 50))",
            "koff does not respond (late)",
        ),
    ],
    ids=["502", "503", "HTML", "wrong", "late"],
)
def test_a_wrong_response_is_said_what_is_shown_stays_and_it_ends_with_the_fault(
    tab: Tab, page: str, answer: str, text: str
):
    open_page(tab, page)
    names = list_names(tab)
    with answering(tab, answer):
        wait_for(tab, IS_WRONG)
        (shown,) = read(tab, "#error")
        assert shown.startswith("What is shown is of ")
        assert text in shown
        assert list_names(tab) == names
    wait_for(tab, IS_WELL)
    assert tab.complaints(page) == []


def test_what_arrives_late_is_not_shown_at_another_address(tab: Tab, page: str):
    open_page(tab, page)
    slow = (
        "await new Promise((resolve) => {"
        " (window.held ??= []).push(() => resolve(window.real(url, options))); })"
    )
    with answering(tab, f"url.includes('/groups/g') ? {slow} : await window.real(url, options)"):
        tab.evaluate("location.hash = '#/group/d/g'")
        wait_for(tab, "window.held?.length > 0")
        tab.evaluate("location.hash = '#/clusters'")
        wait_for(tab, "document.querySelectorAll('.cluster').length === 2")
        tab.evaluate("held.forEach((send) => send())")
        refresh(tab)
        wait_for(tab, IS_WELL)
    assert tab.evaluate("document.title") == "koff"
    assert tab.evaluate("document.getElementById('group').hidden")
    assert tab.complaints(page) == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_makes_nothing_stale(tab: Tab, page: str, hours: int):
    open_page(tab, page)
    tab.evaluate(f"(() => {{ const now = Date.now; Date.now = () => now() + {hours} * 3600e3; }})()")
    # `showAge` runs each second: look at it more than once
    said = tab.evaluate(
        "new Promise((resolve) => { const said = []; const look = setInterval(() => {"
        f" said.push({ERROR}.hidden);"
        " if (said.length > 8) { clearInterval(look); resolve(said); } }, 250); })"
    )
    assert all(said)
    assert read(tab, "#live") != ["no contact"]


def test_what_is_old_is_called_old_whatever_the_clock_says(tab: Tab, page: str):
    open_page(tab, page)
    with answering(tab, "await new Promise(() => {})"):
        # The clock is set back: only the monotonic clock shows that nothing has come for long.
        tab.evaluate(
            "(() => { const [now, real] = [Date.now, performance.now.bind(performance)];"
            " Date.now = () => now() - 3600e3; performance.now = () => real() + 60e3; })()"
        )
        wait_for(tab, IS_WRONG)
        assert read(tab, "#error")[0].endswith("koff has not responded since")
        assert read(tab, "#live") == ["no contact"]


def open_page_with_streams(tab: Tab, address: str) -> None:
    """Opens the page, which keeps its streams of events in `streams`."""
    tab.open("about:blank", colors="light")
    script = tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="window.streams = []; window.EventSource = class extends EventSource {"
        " constructor(...all) { super(...all); streams.push(this); } };",
    )
    try:
        open_page(tab, address)
    finally:
        tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])


def test_a_stream_that_drops_is_replaced_by_polling_and_comes_back(tab: Tab):
    events = Events()
    with Server(Shown(), ServeConf("127.0.0.1:0"), events=events) as server:
        open_page_with_streams(tab, server.url)
        wait_for(tab, "document.getElementById('live').textContent === 'live'")
        tab.evaluate("streams[0].close()")
        wait_for(tab, "document.getElementById('live').textContent === 'every 5 s'")
        text = "group g: OK to ERR"
        events.log.add(
            [ClusterEvent("d", "status_changed", Severity.ERROR, text, group="g")], 1_800_000_000_000
        )
        wait_for(tab, f"document.querySelector('#events li a')?.textContent === {json.dumps(text)}")
        # A minute later the page tries again.
        tab.evaluate(
            "(() => { const now = performance.now.bind(performance);"
            " performance.now = () => now() + 61e3; })()"
        )
        wait_for(tab, "document.getElementById('live').textContent === 'live'")


def test_an_event_that_cannot_be_read_is_skipped(tab: Tab, page: str):
    open_page_with_streams(tab, page)
    wait_until(lambda: tab.evaluate("streams.length === 1"), what="the stream")
    tab.evaluate("streams[0].dispatchEvent(new MessageEvent('rebalanced', { data: '{' }))")
    assert tab.complaints(page) == []
