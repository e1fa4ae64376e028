"""Incidents as stories, what a screen reader hears, and the address of a moment."""

from dataclasses import replace

import pytest

from koff.serve.events.event import ClusterEvent, Kind, Severity
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.view.cluster_view import ClusterView
from tests.unit.serve.page.shown import click, open_page, read, wait_for
from tests.unit.serve.views import Source
from tests.unit.view.test_causes import Life


def build_view() -> ClusterView:
    """A group g that was late twice: the first incident is over, the second lasts."""
    life = Life()
    life.pass_s(300, reads={1: 0})
    life.pass_s(400)
    life.pass_s(200, reads={0: 0, 1: 0, 2: 0, 3: 0})
    return replace(life.take_view(), cluster="d")


@pytest.fixture(scope="module")
def view():
    return build_view()


@pytest.fixture(scope="module")
def events():
    return Events()


@pytest.fixture(scope="module")
def url(view, events):
    with Server(Source(view), ServeConf("127.0.0.1:0"), events=events) as server:
        yield server.url


def tell(events: Events, kind: Kind, text: str, severity: Severity = Severity.ERROR) -> None:
    events.log.add([ClusterEvent("d", kind, severity, text, group="g")], 1_800_000_700_000)


def test_an_incident_is_one_entry_with_its_beginning_its_changes_its_end_and_its_length(tab, url, view):
    open_page(tab, f"{url}/#/events")
    lasting, over = read(tab, ".story")
    past = view.activity.incidents.past[0]
    assert past.closed_ms is not None
    assert "so far" in lasting
    assert f"lasted {(past.closed_ms - past.opened_ms) // 60_000} min" in over
    assert "UTC" in over
    assert "stands at offset" in over
    begin, end = tab.evaluate(
        "[...document.querySelectorAll('.story')[1].querySelectorAll('p time')]"
        ".map((each) => Date.parse(each.dateTime))"
    )
    assert (begin, end) == (past.opened_ms, past.closed_ms)
    assert tab.evaluate("!document.querySelector('.story details').open")
    click(tab, ".story:nth-child(2) summary", "2 changes")
    steps = read(tab, ".story:nth-child(2) ol li")
    assert "stuck partition: " in steps[0]
    assert steps[-1].endswith("over")
    assert read(tab, "#stories") == ["2 incidents"]


def test_what_happened_during_an_incident_is_a_part_of_its_story(tab, url, view, events):
    past = view.activity.incidents.past[0]
    for at_ms, text in ((past.opened_ms - 30_000, "led to it"), (past.opened_ms - 90_000, "long before")):
        event = ClusterEvent("d", "rebalanced", Severity.INFO, f"group g: {text}", group="g")
        events.log.add([event], at_ms)
    open_page(tab, f"{url}/#/events")
    assert [text.partition("group g: ")[2] for text in read(tab, ".event")] == ["long before"]
    tab.evaluate("document.querySelectorAll('.story')[1].querySelector('details').open = true")
    steps = read(tab, ".story:nth-child(2) ol li")
    assert steps[0].endswith("led to it")
    assert len(steps) == 3


@pytest.mark.parametrize(
    ("query", "stories"),
    [
        ("", 2),
        ("?name=t-1", 1),
        ("?name=g", 2),
        ("?name=absent", 0),
        ("?worst=WARN", 0),
        ("?open=true", 1),
        ("?open=false", 1),
        ("?cluster=d", 2),
    ],
)
def test_incidents_are_filtered(tab, url, query, stories):
    open_page(tab, f"{url}/#/events{query}")
    assert len(read(tab, ".story")) == stories


def test_the_address_of_an_incident_opens_its_group_at_that_time(tab, url, view, events):
    tell(events, "rebalanced", "group g: rebalanced", Severity.INFO)
    open_page(tab, f"{url}/#/events")
    opened_ms = view.activity.incidents.past[0].opened_ms
    tab.evaluate("document.querySelectorAll('.story .then')[1].click()")
    wait_for(tab, "document.querySelectorAll('#group .plot canvas').length === 3")
    assert tab.evaluate("location.hash") == f"#/group/d/g?at={opened_ms}"
    assert read(tab, "#group .note")[0].startswith("The plots show the half hour around ")
    assert read(tab, ".marks") == ["R rebalanced"] * 3
    open_page(tab, f"{url}/#/group/d/g?at=1700000000000")
    wait_for(tab, "document.querySelector('#group .note') !== null")
    assert read(tab, "#group .note")[0].startswith("koff keeps the lags of the last hour only")


def test_times_are_local_with_the_zone_and_utc_on_demand(tab, url):
    tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    try:
        open_page(tab, f"{url}/#/events")
        assert "GMT+5:30" in read(tab, ".story time")[0]
        click(tab, "#zone", "UTC")
        assert read(tab, ".story time")[0].endswith("UTC")
        open_page(tab, f"{url}/#/events")
        assert read(tab, ".story time")[0].endswith("UTC")
        assert read(tab, "#zone") == ["local time"]
    finally:
        tab.evaluate("localStorage.clear()")
        tab.call("Emulation.setTimezoneOverride", timezoneId="")


def test_a_screen_reader_hears_new_incidents_and_nothing_else(tab, url, events):
    tell(events, "incident_opened", "group g: an old one")
    open_page(tab, url)
    wait_for(tab, "document.getElementById('live').textContent === 'live'")
    live = "[aria-live], [role=status], [role=alert], [role=log], output"
    assert tab.evaluate(f"[...document.querySelectorAll('{live}')].map((each) => each.id)") == ["heard"]
    assert read(tab, "#heard") == [""]
    tell(events, "offsets_reset", "group g: went back")
    wait_for(tab, "document.querySelector('#events .event')?.innerText.includes('went back')")
    assert tab.evaluate("document.getElementById('heard').textContent") == ""
    tell(events, "incident_opened", "group g: a new one")
    wait_for(tab, "document.getElementById('heard').textContent === 'group g: a new one'")
