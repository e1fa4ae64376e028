"""The groups that nobody uses, in the view of the clusters."""

import pytest

from koff.tracker import Tracker
from tests.unit.builders import apply, commit
from tests.unit.serve.api.clusters import Clusters
from tests.unit.serve.page.moving import serving
from tests.unit.serve.page.shown import open_page, read, wait_for
from tests.unit.serve.views import NOW_MS, Source, take_view

DAY_MS = 86_400_000


@pytest.fixture
def view():
    tracker = Tracker()
    for days in (4, 1, 6):
        apply(tracker, commit(f"idle-{days}-days", "t", 0, 4, at=NOW_MS - days * DAY_MS))
    tracker.add_samples(ends={("t", 0): 10}, at_ms=NOW_MS)
    return take_view(tracker, "c")


@pytest.mark.timeout(300)
def test_a_cluster_names_them_with_what_deleting_each_loses(tab, view):
    with serving(Source(view)) as url:
        open_page(tab, f"{url}/#/clusters")
        wait_for(tab, "document.querySelector('.cluster details') !== null")
        assert read(tab, ".cluster summary") == ["To clean up: 2 groups"]
        tab.evaluate("document.querySelector('.cluster details').open = true")
        first, second = read(tab, ".cluster details li")
        assert first.startswith("idle-6-days: has no members, and has committed nothing for 6 d.")
        assert "Deleting it loses its offsets in 1 partition; 6 records wait there." in second
        command = tab.evaluate("document.querySelector('.cluster details button').dataset.copy")
        assert "--group idle-6-days --delete" in command
        assert tab.complaints(url) == []


def test_the_api_lists_them_by_how_long_they_are_idle(view):
    clusters = Clusters(view)
    found = clusters.get("unused", query=f"cluster=c&limit=1&idle_s={2 * 86_400}")
    assert (found["total"], found["next_offset"]) == (2, 1)
    assert [each["name"] for each in found["unused"]] == ["idle-6-days"]
    assert clusters.get("clusters", "c", "unused", query=f"idle_s={30 * 86_400}")["unused"] == []
