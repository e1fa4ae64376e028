"""Columns that a person chooses, and what is seen as a file."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from koff.view.owners import Owner, Owners
from tests.chromium import Tab
from tests.unit.serve.page.moving import Moving, build_view, serving
from tests.unit.serve.page.shown import click, open_page, read, running_first, wait_for
from tests.unit.serve.views import Source

NAMES = {"=1+1": 300, 'with "quotes", and more': 200, "plain": 0}
CATCH = (
    "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text));"
    " return 'data:,'; }; HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };"
)


@pytest.fixture
def url(tab):
    with serving(Moving(NAMES)) as url:
        open_page(tab, url)
        tab.evaluate("localStorage.clear()")
        yield url
        tab.evaluate("localStorage.clear()")


def list_heads(tab: Tab) -> list[str]:
    return read(tab, "#groups th:not(.more)")


def test_columns_that_are_chosen_stay_chosen(tab, url):
    open_page(tab, url)
    fixed = ["Verdict", "Group", "What is wrong", "Time lag", "Last hour"]
    assert list_heads(tab) == [*fixed, "Lag"]
    tab.evaluate("document.getElementById('columns').open = true")
    for text in ("Lag", "Members", "Allowed"):
        click(tab, "#chooser label", text)
    wait_for(tab, "document.querySelectorAll('#groups th').length === 8")
    assert list_heads(tab) == [*fixed, "Members", "Allowed"]
    open_page(tab, url)
    assert list_heads(tab) == [*fixed, "Members", "Allowed"]
    assert read(tab, "#groups tbody .row:first-child .extra") == ["0", "2 min"]
    assert tab.evaluate("document.querySelector('#chooser [value=members]').checked")


def test_the_owner_is_a_column_and_a_filter(tab, url):
    owners = Owners((Owner(re.compile("^pay"), "payments", "#pay"),))
    with serving(Source(replace(build_view({"pay-1": 300, "other": 300}), owners=owners))) as owned:
        open_page(tab, owned)
        tab.evaluate("document.getElementById('columns').open = true")
        click(tab, "#chooser label", "Owner")
        wait_for(tab, "document.querySelectorAll('#groups th').length === 8")
        assert "payments" in read(tab, "#groups tbody .row .extra")
        with running_first(tab, CATCH):
            open_page(tab, f"{owned}/#/?label=owner%3Dpayments")
            click(tab, "[data-save]", "CSV")
            wait_for(tab, "saved.length === 2")
        (group,) = csv.DictReader(io.StringIO(max(tab.evaluate("saved"), key=len)))
        assert (group["group"], group["owner"]) == ("pay-1", "payments")
        tab.evaluate("localStorage.clear()")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_what_is_seen_is_saved_as_a_file(tab, url, kind):
    with running_first(tab, CATCH):
        open_page(tab, f"{url}/#/?status=WARN")
        click(tab, "[data-save]", kind.upper())
        wait_for(tab, "saved.length === 2")
    name, text = sorted(tab.evaluate("saved"), key=lambda each: not each.startswith("koff-groups"))
    assert name == f"koff-groups.{kind}"
    if kind == "json":
        groups = json.loads(text)
        assert [group["group"] for group in groups] == list(NAMES)[:2]
    else:
        groups = list(csv.DictReader(io.StringIO(text)))
        # A program for tables must not compute the name of a group.
        assert [group["group"] for group in groups] == ["'=1+1", 'with "quotes", and more']
        assert list(groups[0]) == ["cluster", "group", "status", "sentence", "time_lag_s", "lag"]
    assert [str(group["lag"]) for group in groups] == ["300", "200"]
    assert groups[0]["sentence"].startswith("Late")
