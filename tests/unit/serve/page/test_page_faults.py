"""The page when the API is late, wrong or gone, in a real browser."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from koff.kafkatest import wait_until
from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.chromium import Tab
from tests.unit.serve.page.shown import Shown, list_names, open_page, read, running_first, wait_for

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
        (
            "new Response(new ReadableStream({ start: (body) => body.error(new TypeError('cut')) }))",
            "koff does not respond (",
        ),
    ],
    ids=["502", "503", "HTML", "wrong", "late", "cut"],
)
def test_a_wrong_response_is_said_what_is_shown_stays_and_it_ends_with_the_fault(tab, page, answer, text):
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


def test_what_arrives_late_is_not_shown_at_another_address(tab, page):
    open_page(tab, page)
    slow = (
        "await new Promise((resolve) => {"
        " (window.held ??= []).push(() => resolve(window.real(url, options))); })"
    )
    with answering(tab, f"url.includes('/group?') ? {slow} : await window.real(url, options)"):
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


def test_many_events_and_slow_responses_do_not_keep_the_page_from_being_refreshed(tab):
    with Server(Shown(), ServeConf("127.0.0.1:0"), events=Events()) as server:
        open_page_with_streams(tab, server.url)
        wait_for(tab, "document.getElementById('live').textContent === 'live'")
        tab.evaluate(
            "setInterval(() => streams.at(-1).dispatchEvent(new MessageEvent('rebalanced', {"
            " data: JSON.stringify({ id: '', cluster: 'd', text: 'group g' }) })), 50);"
            "const real = window.fetch; window.fetch = async (...all) => {"
            " await new Promise((resolve) => setTimeout(resolve, 1000)); return await real(...all); }; 0"
        )
        for _ in range(3):
            tab.evaluate("window.before = document.getElementById('fresh').textContent")
            wait_for(tab, "document.getElementById('fresh').textContent !== window.before")


def test_what_is_not_wanted_any_more_is_not_waited_for(tab, page):
    open_page(tab, page)
    hanging = (
        "await new Promise((_, reject) => { const { signal } = options;"
        " (window.waiting ??= new Set()).add(signal);"
        " signal.onabort = () => { waiting.delete(signal); reject(signal.reason); }; })"
    )
    with answering(tab, hanging):
        for name in ("a", "ab", "abc"):
            tab.evaluate("window.first = [...waiting][0]; 0")
            tab.evaluate(f"location.hash = '#/?name={name}'")
            wait_for(tab, "first.aborted && waiting.size && [...waiting].every((each) => !each.aborted)")
        assert tab.evaluate("document.getElementById('error').hidden")
    wait_for(tab, "document.getElementById('count').textContent === 'no group fits'")


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_makes_nothing_stale(tab, page, hours):
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


def test_what_is_old_is_called_old_whatever_the_clock_says(tab, page):
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


def open_page_with_streams(tab: Tab, address: str, *, silent: int = 0) -> None:
    """Opens the page, which keeps its streams of events in `streams`. The first `silent` bring nothing."""
    script = (
        "window.streams = []; window.EventSource = class extends EventSource {"
        " constructor(...all) { super(...all); streams.push(this); }"
        " addEventListener(...all) {"
        f" if (streams.indexOf(this) >= {silent}) super.addEventListener(...all); }} }};"
    )
    with running_first(tab, script):
        open_page(tab, address)


def test_a_stream_that_drops_is_replaced_by_polling_and_comes_back(tab):
    events = Events()
    with Server(Shown(), ServeConf("127.0.0.1:0"), events=events) as server:
        open_page_with_streams(tab, server.url)
        wait_for(tab, "document.getElementById('live').textContent === 'live'")
        tab.evaluate("streams[0].close()")
        wait_for(tab, "document.getElementById('live').textContent === 'every 5 s'")
        text = "group g: OK to ERR"
        events.log.add(
            [ClusterEvent("d", "records_lost", Severity.ERROR, text, group="g")], 1_800_000_000_000
        )
        wait_for(tab, f"document.querySelector('#events .event a')?.textContent === {json.dumps(text)}")
        # A minute later the page tries again.
        tab.evaluate(
            "(() => { const now = performance.now.bind(performance);"
            " performance.now = () => now() + 61e3; })()"
        )
        wait_for(tab, "document.getElementById('live').textContent === 'live'")


def test_a_stream_that_is_open_and_brings_nothing_is_replaced(tab):
    """As after a sleep of the computer: nobody tells the browser that the connection is gone."""
    events = Events()
    with Server(Shown(), ServeConf("127.0.0.1:0"), events=events) as server:
        open_page_with_streams(tab, server.url, silent=1)
        wait_for(tab, "document.getElementById('live').textContent === 'live'")
        for number, opened in ((1, 2), (2, 2)):
            text = f"group g: change {number}"
            event = ClusterEvent("d", "records_lost", Severity.ERROR, text, group="g")
            events.log.add([event], 1_800_000_000_000)
            shown = f"document.querySelector('#events .event a')?.textContent === {json.dumps(text)}"
            wait_for(tab, f"{shown} && streams.length === {opened} && streams.at(-1).readyState === 1")
        assert tab.evaluate("streams[0].readyState") == 2  # closed


def test_an_event_that_cannot_be_read_is_skipped(tab, page):
    open_page_with_streams(tab, page)
    wait_until(lambda: tab.evaluate("streams.length === 1"), what="the stream")
    tab.evaluate("streams[0].dispatchEvent(new MessageEvent('rebalanced', { data: '{' }))")
    assert tab.complaints(page) == []
