"""Groups, topics and a cluster with names that mean something in an address, behind a proxy."""

import json
from dataclasses import replace

import pytest

from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, TopicFacts
from tests.unit.builders import apply, commit
from tests.unit.serve.page.proxy import run_proxy
from tests.unit.serve.page.shown import click, list_names, open_page, read, wait_for
from tests.unit.serve.views import Source, take_view

NAMES = ("", ".", "..", "../..", "a/../b", "//", "%", "%2E%2E", "%2F", "#", "?group=x&a", "a+b c", "\\")


@pytest.fixture(scope="module")
def url():
    tracker = Tracker()
    apply(tracker, *(commit(name, name, 0, 4) for name in NAMES))
    tracker.add_samples(ends={(name, 0): 10 for name in NAMES})
    facts = ClusterFacts(1, {name: TopicFacts(1, 1) for name in NAMES})
    view = replace(take_view(tracker, ".."), facts=facts)
    with Server(Source(view), ServeConf("127.0.0.1:0")) as server, run_proxy(server.url) as url:
        yield url


def test_all_are_listed(tab, url):
    for address in ("#/?sort=name", "#/?sort=name&cluster=.."):
        open_page(tab, f"{url}{address}")
        assert list_names(tab) == [name or '""' for name in sorted(NAMES)]
    open_page(tab, f"{url}#/topics?cluster=..")
    wait_for(tab, f"document.querySelectorAll('#topics tbody tr').length === {len(NAMES)}")
    open_page(tab, f"{url}#/clusters")
    wait_for(tab, "document.querySelector('.cluster h3')?.textContent === '..'")
    assert tab.evaluate("document.getElementById('error').hidden")


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_opened_and_its_address_too(tab, url, name):
    shown = name or '""'
    open_page(tab, url)
    click(tab, "#groups tbody .go", shown)
    title = "document.querySelector('#group h2')?.textContent"
    wait_for(tab, f"{title} === {json.dumps(shown)}")
    open_page(tab, tab.evaluate("location.href"))
    wait_for(tab, f"{title} === {json.dumps(shown)}")
    click(tab, "#group td a", shown)  # the topic has the same name
    wait_for(tab, "document.querySelectorAll('#topics .scroll').length === 2")
    assert read(tab, "#topics h2")[0] == shown
    assert read(tab, "#topics .scroll tbody a") == [shown]
    assert tab.evaluate("document.getElementById('error').hidden")


def test_signs_that_cannot_be_seen_or_turn_the_text_are_shown_by_their_numbers(tab):
    names = {"a\u202eb": r"a\u{202e}b", "x\u200by": r"x\u{200b}y", "l\nm": r"l\nm", "\x1b[2J": r"\u{1b}[2J"}
    tracker = Tracker()
    apply(tracker, *(commit(name, name, 0, 4) for name in names))
    with Server(Source(take_view(tracker)), ServeConf("127.0.0.1:0")) as server:
        open_page(tab, server.url)
        assert set(list_names(tab)) == set(names.values())
        click(tab, "#groups a", r"a\u{202e}b")
        wait_for(tab, "document.querySelector('#group h2') !== null")
        assert read(tab, "#group h2")[0] == r"a\u{202e}b"
        assert tab.evaluate("document.title").startswith(r"a\u{202e}b")
        text = (
            "document.body.innerText + [...document.querySelectorAll('[aria-label]')].map((e) => e.ariaLabel)"
        )
        assert not tab.evaluate(f"/[\\u202a-\\u202e\\u200b\\u001b]/.test({text})")
