"""The strip of counts, the filters, and the history of the browser."""

import json
import re
from dataclasses import replace

import pytest

from koff.kafkatest import wait_until
from tests.chromium import Tab
from tests.unit.serve.page.moving import Moving, build_view, refresh, serving, wait_for_names
from tests.unit.serve.page.shown import click, focused, list_names, open_page, press, read, wait_for
from tests.unit.serve.views import Source


@pytest.fixture(scope="module")
def url():
    views = build_view({"a1": 0, "a2": 300}, "north"), build_view({"a3": 300, "b1": 0, "b2": 200}, "south")
    with serving(Source(*views)) as url:
        yield url


def wait_for_hash(tab: Tab, address: str) -> None:
    wait_until(lambda: tab.evaluate("location.hash") == address, timeout_s=60, what=address)


def list_strip(tab: Tab) -> list[str]:
    return [" ".join(text.replace("●", "").split()) for text in read(tab, "#strip li")]


def choose(tab: Tab, name: str, value: str) -> None:
    tab.evaluate(
        f"(() => {{ const field = document.querySelector('[name={name}]'); field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('input', { bubbles: true }));"
        " field.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )


def type_text(tab: Tab, text: str) -> None:
    tab.evaluate("document.querySelector('[name=name]').focus()")
    for letter in text:
        tab.call("Input.insertText", text=letter)


def test_the_strip_counts_all_groups_whatever_the_filters_are(tab, url):
    whole = [
        "All groups 0 ERR 3 WARN 0 UNKNOWN 2 OK 0 withheld",
        "north 0 ERR 1 WARN 0 UNKNOWN 1 OK 0 withheld",
        "south 0 ERR 2 WARN 0 UNKNOWN 1 OK 0 withheld",
    ]
    for address in ("", "#/?status=OK", "#/?cluster=north&status=WARN", "#/?withheld=true"):
        open_page(tab, f"{url}/{address}")
        assert list_strip(tab) == whole
    open_page(tab, f"{url}/#/?name=b")
    assert list_strip(tab)[0] == "All groups 0 ERR 1 WARN 0 UNKNOWN 1 OK 0 withheld"


def test_each_count_is_a_filter_and_counts_combine(tab, url):
    open_page(tab, url)
    click(tab, "#strip li:first-child a", "3 WARN")
    wait_for_names(tab, ["a2", "a3", "b2"])
    click(tab, "#strip li:first-child a", "2 OK")
    wait_for_names(tab, ["a2", "a3", "b2", "a1", "b1"])
    wait_for_hash(tab, "#/?status=WARN%2COK")
    assert len(read(tab, "#strip [aria-current=true]")) == 2
    click(tab, "#strip li:nth-child(3) a", "1 OK")
    wait_for_names(tab, ["b1"])
    wait_for_hash(tab, "#/?status=OK&cluster=south")
    click(tab, "#strip a", "All groups")
    wait_for_names(tab, ["a2", "a3", "b2", "a1", "b1"])


def test_back_and_forward_walk_through_filters(tab, url):
    open_page(tab, url)
    steps = [
        (lambda: click(tab, "#strip li:first-child a", "3 WARN"), ["a2", "a3", "b2"], "#/?status=WARN"),
        (lambda: choose(tab, "cluster", "south"), ["a3", "b2"], "#/?status=WARN&cluster=south"),
        (lambda: type_text(tab, "a3"), ["a3"], "#/?status=WARN&cluster=south&name=a3"),
        (lambda: choose(tab, "sort", "name"), ["a3"], "#/?status=WARN&cluster=south&name=a3&sort=name"),
    ]
    seen = [(["a2", "a3", "b2", "a1", "b1"], "")]
    for act, names, address in steps:
        act()
        wait_for_hash(tab, address)
        wait_for_names(tab, names)
        seen.append((names, address))
    for names, address in reversed(seen[:-1]):
        tab.evaluate("history.back()")
        wait_for_hash(tab, address)
        wait_for_names(tab, names)
        typed = tab.evaluate("document.querySelector('[name=name]').value")
        assert typed == ("a3" if "name=a3" in address else "")
    for names, address in seen[1:]:
        tab.evaluate("history.forward()")
        wait_for_hash(tab, address)
        wait_for_names(tab, names)
    assert tab.evaluate("document.querySelector('[name=name]').value") == "a3"
    assert tab.evaluate("document.querySelector('[name=sort]').value") == "name"
    assert tab.complaints(url) == []


def test_what_is_typed_stays_while_the_page_refreshes(tab, url):
    open_page(tab, url)
    type_text(tab, "b")
    wait_for_names(tab, ["b2", "b1"])
    tab.evaluate("document.activeElement.value = 'b9'")  # a letter that was not told yet
    refresh(tab)
    assert tab.evaluate("document.querySelector('[name=name]').value") == "b9"
    assert focused(tab) == "name"


@pytest.mark.parametrize("width", [360, 768, 1024, 1440])
def test_the_list_is_walked_and_opened_by_keys_at_each_width(tab, url, width):
    tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
    open_page(tab, url, width=width)
    for key, expected in (("j", "a2"), ("j", "a3"), ("ArrowDown", "b2"), ("ArrowUp", "a3"), ("k", "a2")):
        press(tab, key)
        assert focused(tab) == expected
    press(tab, "Tab")
    assert focused(tab) == "More of a2"
    press(tab, "Enter")
    wait_for(tab, "document.querySelector('.details') !== null")
    assert "Allowed" in read(tab, ".details")[0]
    assert focused(tab) == "Less of a2"
    press(tab, "j")
    assert focused(tab) == "a3"
    press(tab, "k")
    press(tab, "Enter")
    wait_for_hash(tab, "#/group/north/a2")
    press(tab, "Escape")
    wait_until(lambda: focused(tab) == "a2", what="the focus")
    press(tab, "?")
    wait_for(tab, "document.getElementById('help').open")
    press(tab, "Escape")
    wait_for(tab, "!document.getElementById('help').open")
    press(tab, "/")
    assert focused(tab) == "name"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints(url) == []


@pytest.mark.parametrize("width", [360, 768, 1024, 1440])
def test_each_group_shows_what_one_must_know_at_each_width(tab, width):
    with serving(Moving({"a-group-with-quite-a-long-name-as-people-choose-them": 300})) as url:
        open_page(tab, url, width=width)
        boxes = tab.evaluate(
            "Object.fromEntries(['verdict', 'name', 'why', 'late', 'trend', 'more'].map((name) => {"
            " const cell = document.querySelector(`#groups .row td.${name}`);"
            " const { left, right, width } = cell.getBoundingClientRect();"
            " const cut = cell.scrollWidth > cell.clientWidth + 1;"
            " return [name, { text: cell.innerText, left, right, width, cut }];"
            " }))"
        )
        assert [boxes[name]["text"] for name in ("verdict", "late")] == ["WARN", "4 min 59 s"]
        assert boxes["name"]["text"] == list_names(tab)[0]
        assert boxes["why"]["text"].startswith("Late")
        for name, box in boxes.items():
            assert box["left"] >= 0, name
            assert box["right"] <= width, name
            assert not box["cut"], name
            assert box["width"] > 0, name


def test_groups_are_filtered_by_the_label_of_their_owner(tab, url):
    open_page(tab, url)
    assert not tab.evaluate("document.querySelector('[name=label]').checkVisibility()")
    teams = (re.compile("^(?P<team>[a-z]+)"),)
    view = replace(build_view({"pay-1": 0, "pay-2": 300, "ship-1": 0}), group_labels=teams)
    with serving(Source(view)) as labelled:
        open_page(tab, labelled)
        assert read(tab, "[name=label] option") == ["any", "team=pay", "team=ship"]
        choose(tab, "label", "team=pay")
        wait_for_names(tab, ["pay-2", "pay-1"])
        wait_for_hash(tab, "#/?label=team%3Dpay")
        open_page(tab, f"{labelled}/#/?label=team%3Dship")
        assert list_names(tab) == ["ship-1"]
        assert tab.evaluate("document.querySelector('[name=label]').value") == "team=ship"
