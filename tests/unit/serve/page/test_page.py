"""The page at `/` in a real browser, on a real server with made-up clusters."""

import gzip
import json
from importlib.resources import files

import pytest

from koff.kafkatest import wait_until
from koff.serve.events.event import KINDS, ClusterEvent, Severity
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.serve.page.files import PATHS
from tests.unit.serve.api.clusters import ODD, take_view
from tests.unit.serve.page.proxy import run_proxy
from tests.unit.serve.page.shown import Shown, click, list_names, open_page, read, running_first, wait_for
from tests.unit.serve.requests import request
from tests.unit.serve.views import Source

MOST_BYTES = 150_000


def test_the_groups_are_there_with_their_causes(tab, page):
    open_page(tab, page)
    assert read(tab, "#clusters li") == []  # koff knows all clusters
    names = list_names(tab)
    assert len(names) == 8
    assert names[:2] == ["lost", "g"]  # by how late they are, as a share of what is allowed
    first = read(tab, "#groups tbody .row:nth-child(2) td")
    assert first[:2] == ["ERR", "g"]
    assert "stands at offset 3,000" in first[2]
    assert first[3:7] == ["4 min", "", "2,400", "d"]
    label = tab.evaluate("document.querySelector('#groups tbody svg').getAttribute('aria-label')")
    assert label == "lag in the last hour: from 0 to 2,400"
    assert tab.complaints(page) == []


def test_a_name_is_only_ever_text(tab, page):
    open_page(tab, page)
    assert any("<script>" in name for name in list_names(tab))
    shown = ODD.replace("\n", r"\n")
    click(tab, "#groups a", shown)
    wait_for(tab, "document.querySelector('#group h2') !== null")
    assert tab.evaluate("document.querySelector('#group h2').textContent") == shown
    assert read(tab, "#events li") == ["nothing since koff started"]
    assert tab.complaints(page) == []


def test_one_group_has_its_causes_partitions_members_and_events(tab, page):
    open_page(tab, f"{page}/#/group/d/g")
    wait_for(tab, "document.querySelectorAll('#group .scroll table').length === 2")
    (cause,) = read(tab, ".cause")
    assert cause.startswith("stuck partition explains 100 % of the lag (2,400 offsets)")
    assert "What helps: look at the record" in cause
    assert len(read(tab, "#group .scroll tbody tr")) == 6  # four partitions, two members
    wait_for(tab, "document.querySelectorAll('#group .plot canvas').length === 3")
    assert any("--describe --members --verbose" in text for text in read(tab, ".commands code"))
    assert read(tab, "figcaption") == [
        "Time lag, last hour: now 4 min, at most 4 min, allowed 2 min",
        "Lag, last hour: now 2,400, at most 2,400",
        "Records a second, last hour: consumed at most 40, produced at most 40",
    ]
    assert read(tab, ".marks") == ["R rebalanced"] * 3
    (story,) = read(tab, "#events > li")
    assert story.startswith("ERR ")
    assert "stands at offset 3,000" in story
    tab.evaluate("document.querySelector('.story details').open = true")
    assert read(tab, ".story ol li")[0].endswith("group g: its lag <b>grows</b>")
    assert tab.evaluate("document.title") == "g \u2013 koff"
    assert tab.complaints(page) == []


@pytest.mark.parametrize("width", [320, 1400])
def test_the_times_below_a_plot_differ_and_do_not_touch(tab, page, width):
    script = (
        "window.times = new Map(); const draw = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {"
        " const { width } = this.measureText(text);"
        " if (text.includes(':')) times.set(`${text} ${x}`, [text, x, width, this.canvas]);"
        " draw.call(this, text, x, y); };"
    )
    with running_first(tab, script):
        open_page(tab, f"{page}/#/group/d/g", width=width)
        wait_for(tab, "times.size >= 2")
    first = "[...times.values()].filter((each, _, all) => each[3] === all[0][3])"
    labels, limit = tab.evaluate(
        f"[{first}.map((each) => each.slice(0, 3)).sort((a, b) => a[1] - b[1]), {first}[0][3].width]"
    )
    assert len({text for text, _, _ in labels}) == len(labels)
    ends = [0, *(x + width / 2 for _, x, width in labels)]
    begins = [*(x - width / 2 for _, x, width in labels), limit]
    assert all(begin > end for begin, end in zip(begins, ends, strict=True)), labels


def test_the_address_has_the_filters(tab, page):
    open_page(tab, page)
    tab.evaluate(
        "(() => { const field = document.querySelector('[name=name]'); field.value = 'simp';"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    wait_for(tab, "document.querySelectorAll('#groups tbody .row').length === 1")
    assert list_names(tab) == ["simple"]
    assert tab.evaluate("location.hash") == "#/?name=simp"
    open_page(tab, f"{page}/#/?cause=stuck_partition")
    assert list_names(tab) == ["g"]
    assert tab.evaluate("document.querySelector('[name=cause]').value") == "stuck_partition"


def test_a_click_on_a_column_sorts_and_another_turns_the_order(tab, page):
    open_page(tab, page)
    for expected in ("ascending", "descending"):
        click(tab, "#groups th button", "Group")
        wait_for(
            tab, f"document.querySelector('#groups th[aria-sort={expected}] button')?.textContent === 'Group'"
        )
        names = sorted(list_names(tab), reverse=expected == "descending")
        wait_until(lambda names=names: list_names(tab) == names, timeout_s=60, what=expected)  # type: ignore[misc]  # bound at once


def test_topics_have_their_slowest_readers(tab, page):
    open_page(tab, f"{page}/#/topics")
    wait_for(tab, "document.querySelectorAll('#topics tbody tr').length === 2")
    assert read(tab, "#topics tbody tr:first-child td")[:6] == ["t", "3", "3.2", "5", "lost", "620"]
    click(tab, "#topics a", "t")
    wait_for(tab, "document.querySelectorAll('#topics h2').length === 3")
    assert read(tab, "#topics h2")[0] == "t"
    assert read(tab, "#topics .scroll tbody tr:first-child td:first-child")[0] == "lost"
    assert tab.complaints(page) == []


def test_clusters_say_how_many_groups_are_in_error_and_how_koff_is(tab, page):
    open_page(tab, f"{page}/#/clusters")
    wait_for(tab, "document.querySelectorAll('.cluster').length === 2")
    assert read(tab, ".cluster h3") == ["c", "d"]
    assert "MiB of memory" in " ".join(read(tab, "#overview p"))
    click(tab, ".cluster:last-child .counts a", "1 ERR")
    wait_for(tab, "document.querySelectorAll('#groups tbody .row').length === 1")
    assert list_names(tab) == ["g"]


def test_nothing_of_one_group_is_seen_at_the_address_of_another(tab, page):
    open_page(tab, f"{page}/#/group/d/g")
    wait_for(tab, "document.querySelector('#group h2') !== null")
    tab.evaluate("location.hash = '#/group/d/absent'")
    wait_for(tab, "!document.getElementById('error').hidden")
    assert read(tab, "#error") == ["there is no group named 'absent'"]
    assert read(tab, "#group") == ["\u2026"]
    assert read(tab, "#live") != ["no contact"]


def test_the_page_works_behind_a_prefix_and_a_proxy_without_streams(tab, page):
    with run_proxy(page) as url:
        open_page(tab, f"{url}#/group/d/g")
        wait_for(tab, "document.querySelectorAll('#group .plot canvas').length === 3")
        assert read(tab, "#live") == ["every 5 s"]
        assert len(read(tab, "#events > li")) == 1
        fetched = [
            event["params"]["request"]["url"]
            for event in tab.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        assert fetched
        assert all(each.startswith((url, "data:")) for each in fetched)


def test_an_event_arrives_at_once_and_a_stream_that_ends_is_replaced_by_polling(tab):
    events = Events()
    with Server(Shown(), ServeConf("127.0.0.1:0"), events=events) as server:
        open_page(tab, server.url)
        wait_for(tab, "document.getElementById('live').textContent === 'live'")
        event = ClusterEvent("d", "records_lost", Severity.ERROR, "group g: records lost", group="g")
        events.log.add([event], 1_800_000_000_000)
        wait_for(tab, "document.querySelector('#events .event a')?.textContent === 'group g: records lost'")


def test_the_page_works_without_events(tab):
    with Server(Shown(), ServeConf("127.0.0.1:0")) as server:
        open_page(tab, server.url)
        assert read(tab, "#live") == ["every 5 s"]
        assert len(list_names(tab)) == 8


def test_a_response_that_fails_leaves_what_is_shown_and_says_so(tab, page):
    open_page(tab, page)
    names = list_names(tab)
    tab.evaluate("window.fetch = () => Promise.reject(new Error('no answer'))")
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(tab, "!document.getElementById('error').hidden")
    (text,) = read(tab, "#error")
    assert text.startswith("What is shown is of ")
    assert text.endswith("koff does not respond (no answer)")
    assert read(tab, "#live") == ["no contact"]
    assert list_names(tab) == names


def test_the_page_listens_to_every_kind_of_event():
    script = files("koff.serve.page").joinpath("api.js").read_text()
    listed = script.partition("const KINDS = [")[2].partition("]")[0]
    assert set(json.loads(f"[{listed}]")) == set(KINDS)


def test_all_files_together_are_small(page):
    with Server(Source(take_view()), ServeConf("127.0.0.1:0")) as server:
        sizes = {}
        for path in PATHS:
            _, headers, packed = request(server, path, Accept_Encoding="gzip")
            assert headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed) == request(server, path)[2]
            sizes[path] = len(packed)
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_files_have_a_strict_policy_and_are_sent_once(page):
    with Server(Source(take_view()), ServeConf("127.0.0.1:0")) as server:
        for path in PATHS:
            status, headers, body = request(server, path)
            assert (status, headers["x-content-type-options"]) == (200, "nosniff")
            assert "default-src 'none'" in headers["content-security-policy"]
            assert body
            assert request(server, path, If_None_Match=headers["etag"])[0] == 304
