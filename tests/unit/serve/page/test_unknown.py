"""What koff does not know is never shown as 0: a cluster that is away, a withheld lag, the first minute."""

import math
from dataclasses import replace

import numpy as np

from koff.kafkatest import wait_until
from koff.lag import Reason
from koff.tracker import Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from tests.unit.serve.api.clusters import AWAY, withhold
from tests.unit.serve.page.moving import build_view, pass_ms, refresh, serving
from tests.unit.serve.page.shown import open_page, read, wait_for
from tests.unit.serve.views import NOW_MS, Source

SINCE_MS = 1_800_000_240_000


def build_away() -> ClusterView:
    return replace(AWAY, activity=RecentActivity(unready_since_ms=SINCE_MS))


def test_a_cluster_that_cannot_be_reached_is_unknown_since_then_and_never_0(tab):
    with serving(Source(build_view({"a": 0}), build_away())) as url:
        open_page(tab, url)
        (said,) = read(tab, "#clusters li")
        time = tab.evaluate("document.querySelector('#clusters time').dateTime")
        assert said.startswith("away: unknown since ")
        assert said.endswith("(no broker responds)")
        assert time == "2027-01-15T08:04:00.000Z"
        all_, known, away = [" ".join(text.split()) for text in read(tab, "#strip li")]
        assert "without 1 unknown cluster" in all_
        assert known.startswith("c 0 ERR")
        assert away == "away ? ERR ? WARN ? UNKNOWN ? OK ? withheld unknown"
        open_page(tab, f"{url}/#/clusters")
        wait_for(tab, "document.querySelectorAll('.cluster').length === 2")
        (away,) = [text for text in read(tab, ".cluster") if text.startswith("away")]
        assert "unknown since" in away
        assert not any(word in away for word in ("none", "0 ", "nothing"))
        assert tab.complaints(url) == []


def test_without_any_known_cluster_nothing_is_counted(tab):
    with serving(Source(build_away())) as url:
        open_page(tab, url)
        (strip,) = [" ".join(text.split()) for text in read(tab, "#strip li")]
        assert strip == "All groups ? ERR ? WARN ? UNKNOWN ? OK ? withheld"
        assert read(tab, "#count") == ["no group is known that fits"]


def test_a_withheld_lag_shows_the_newest_known_one_with_its_age_and_why(tab):
    view = withhold({("lost", "t", 0): Reason.END_NOT_CURRENT})
    for age_s, lag, late_s in ((120, 600.0, 90.0), (15, math.nan, math.nan)):
        view.activity.history.add(
            ["lost"], np.array([lag]), np.array([late_s]), np.zeros(1), NOW_MS - age_s * 1000
        )
    with serving(Source(view)) as url:
        open_page(tab, url)
        row = "[...document.querySelectorAll('.row')].find((each) => each.innerText.includes('lost'))"
        late, lag = tab.evaluate(f"[...{row}.querySelectorAll('.old')].map((each) => each.innerText)")
        assert (late, lag) == ("1 min 30 s, 2 min old", "600, 2 min old")
        assert (
            tab.evaluate(f"{row}.querySelector('.old').title") == "not known now: a lag of it is not current"
        )
        assert tab.evaluate(f"{row}.querySelector('.why').innerText").startswith("Unknown: some of its lags")
        open_page(tab, f"{url}/#/group/c/lost")
        wait_for(tab, "document.querySelectorAll('#group .facts .old').length === 2")


def reading(not_current: int, behind: int) -> ClusterView:
    stats = MonitorStats(internal_partitions=50, not_current=not_current, behind=behind, up=False)
    why = Readiness(False, f"not ready: {behind} offsets are to be read")
    return ClusterView("c", Tracker().take_snapshot(NOW_MS), why, stats)


def test_the_first_load_says_how_far_koff_has_read_and_how_long_it_takes(tab):
    source = Source(reading(19, 10_000))
    with serving(source) as url:
        open_page(tab, url)
        assert read(tab, "#loading") == ["c: reading 31 of 50 partitions."]
        source.views = [reading(9, 2_000)]
        pass_ms(tab, 8_000)
        refresh(tab)
        wait_until(lambda: "41 of 50 partitions, about" in read(tab, "#loading")[0], what="the time left")
        source.views = [build_view({"a": 0})]
        wait_for(tab, "document.getElementById('loading').hidden")  # by itself
        assert read(tab, "#groups .name a") == ["a"]


def test_a_skeleton_is_there_until_the_first_response(tab):
    with serving(Source(build_view({"a": 0}))) as url:
        hold = "window.fetch = () => new Promise(() => {}); 0"
        added = tab.call("Page.addScriptToEvaluateOnNewDocument", source=hold)
        tab.open("about:blank", colors="light")
        tab.open(url, colors="light")
        wait_for(tab, "document.getElementById('skeleton').checkVisibility()")
        assert tab.evaluate("document.getElementById('main').ariaBusy") == "true"
        tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
        open_page(tab, url)
        wait_for(tab, "!document.getElementById('skeleton').checkVisibility()")
        assert tab.evaluate("document.getElementById('main').ariaBusy") == "false"


def test_a_page_without_a_network_says_of_when_it_is(tab):
    with serving(Source(build_view({"a": 0}))) as url:
        open_page(tab, url)
        conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        tab.call("Network.emulateNetworkConditions", offline=True, **conditions)
        try:
            wait_for(tab, "document.getElementById('error').innerText.endsWith('This computer is offline')")
            assert read(tab, "#error")[0].startswith("What is shown is of ")
            assert read(tab, "#groups .name a") == ["a"]
            assert read(tab, "#heard") == read(tab, "#error")
        finally:
            tab.call("Network.emulateNetworkConditions", offline=False, **conditions)
        wait_for(tab, "document.getElementById('error').hidden")
