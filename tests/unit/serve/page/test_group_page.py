"""The page of one group, and of a topic: what is wrong, what to do, and what shows it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.tracker import Objective, Tracker
from koff.view.cluster_view import ClusterFacts, ClusterView, TopicFacts
from koff.view.earlier import WINDOWS_S, Earlier, LateShare
from koff.view.lag_history import STEPS
from koff.view.owners import Owner, Owners
from tests.unit.builders import apply, commit
from tests.unit.serve.page.moving import serving
from tests.unit.serve.page.shown import open_page, read, wait_for
from tests.unit.serve.views import NOW_MS, Source, take_view
from tests.unit.view.test_causes import Life

MANY = 1000
RUNBOOK = "https://wiki.example/{cause}?of={cluster}/{group}"


def build_slow() -> ClusterView:
    """Group g, whose member a stands still. Its objective is 40 s."""
    life = Life()
    life.objectives = (Objective(re.compile("^g$"), 40.0),)
    life.pass_s(240, reads={0: 0, 1: 0})
    return replace(
        life.take_view(),
        cluster="d",
        facts=ClusterFacts(1, {"t": TopicFacts(4, 1)}),
        runbook=RUNBOOK,
        owners=Owners((Owner(re.compile("g"), "search", "#search"),)),
    )


def test_a_group_says_what_is_wrong_what_helps_and_who_is_slow(tab):
    with serving(Source(build_slow())) as url:
        open_page(tab, f"{url}/#/group/d/g")
        wait_for(tab, "document.querySelectorAll('#group .plot canvas').length === 3")
        (verdict,) = read(tab, "#group > .verdict")
        assert verdict.startswith("ERR ")
        address = "document.querySelector('#group a[target]').href"
        assert tab.evaluate(address) == "https://wiki.example/slow_member?of=d/g"
        assert "search, #search" in read(tab, "#group dd")
        (cause,) = read(tab, ".cause")
        assert cause.startswith("slow member explains 100 %")
        assert "What helps: look at the host of the member" in cause
        late, _, rates = read(tab, "figcaption")
        assert late.endswith("objective 40 s")
        assert rates == "Records a second, last hour: consumed at most 40, produced at most 40"
        assert read(tab, "#group .u-legend .u-label")[2] == "objective"
        facts = dict(zip(read(tab, "#group dt"), read(tab, "#group dd"), strict=True))
        assert facts["Allowed"] == "40 s: its objective"
        assert facts["Consumed"] == "20 offsets a second"
        assert facts["Produced"] == "40 offsets a second"
        assert facts["Forecast"] == "at these rates it never catches up"
        partitions = read(tab, "#group [aria-label='Partitions, table'] tbody td:nth-child(2)")
        assert sorted(partitions[:2]) == ["0", "1"]  # the worst first
        a, b = read(tab, "#group [aria-label='Members, table'] tbody tr")
        assert a.split("\t")[0] == "a"
        assert "slower than others" in a
        assert "slower than others" not in b
        assert tab.complaints(url) == []


class WeekKept:
    """An archive in which each day was as the one before: a lag of 7, and late for half of the budget."""

    def find_earlier(self, group: str, end_ms: int, before_s: int) -> Earlier:
        return Earlier(np.full(STEPS, 7.0), np.full(STEPS, 2.0))

    def find_late(self, group: str, now_ms: int) -> list[LateShare]:
        return [LateShare(window_s, 0.005, 1.0) for window_s in WINDOWS_S]


def test_a_group_is_compared_with_other_days_and_shows_what_is_left_of_its_budget(tab):
    view = build_slow()
    view.activity.archive = WeekKept()
    with serving(Source(view)) as url:
        open_page(tab, f"{url}/#/group/d/g")
        wait_for(tab, "document.querySelectorAll('#group .plot canvas').length === 3")
        late, lag, _ = read(tab, "figcaption")
        assert late.endswith("objective 40 s, a day before 2 s, a week before 2 s")
        assert lag.endswith("a day before 7, a week before 7")
        head, first, *_ = read(tab, ".budget p, .budget li")
        assert head == "50 % is left of the 1 % of 30 days in which it may miss its objective."
        assert first == "1 h: late for 0.5 %, burn rate 0.5; 100 % is known"
        assert tab.evaluate("document.querySelector('.budget progress').value") == pytest.approx(0.5)
        assert tab.complaints(url) == []


def test_a_thousand_partitions_are_seen_at_a_glance(tab):
    tracker, skewed = Tracker(), range(400, 420)
    apply(
        tracker,
        *(commit("g", "t", each, 100 if each in skewed else 990, at=NOW_MS - 1_000) for each in range(MANY)),
    )
    for second in range(1000, -1, -50):
        ends = {("t", each): 1000 - second for each in range(MANY)}
        tracker.add_samples(ends=ends, at_ms=NOW_MS - second * 1000)
    with serving(Source(take_view(tracker))) as url:
        open_page(tab, f"{url}/#/group/c/g")
        wait_for(tab, f"document.querySelectorAll('.map i').length === {MANY}")
        levels = tab.evaluate("[...document.querySelectorAll('.map i')].map((each) => each.className)")
        late = [number for number, level in enumerate(levels) if level in ("level-3", "level-4")]
        assert late == list(skewed)
        assert f"Time lag of {MANY} partitions: 0 nothing, 980 up to half" in tab.evaluate(
            "document.querySelector('.map').ariaLabel"
        )
        rows = read(tab, "#group [aria-label='Partitions, table'] tbody tr")
        assert len(rows) == 500
        assert all("WARN" in row or "ERR" in row for row in rows[: len(skewed)])
        colors = tab.evaluate(
            "['level-1', 'level-4'].map((name) => document.querySelector(`.key .${name}`))"
            ".map((each) => getComputedStyle(each).backgroundColor)"
        )
        assert colors[0] != colors[1]
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1100


def test_a_topic_names_who_does_not_read_it_any_more(tab):
    events, text = Events(), "group old: no member subscribes to t any more"
    left = ClusterEvent(
        "d", "topic_left", Severity.INFO, text, group="old", topic="t", details={"topics": ["t"]}
    )
    with Server(Source(build_slow()), ServeConf("127.0.0.1:0"), events=events) as server:
        events.log.add([left, replace(left, group="else", details={"topics": ["u"]})], NOW_MS)
        open_page(tab, f"{server.url}/#/topic/d/t")
        wait_for(tab, "document.querySelectorAll('#topics h2').length === 4")
        assert read(tab, "#topics h2")[1:3] == ["Readers", "Does not read it any more"]
        assert read(tab, "#topics li a") == ["old"]
