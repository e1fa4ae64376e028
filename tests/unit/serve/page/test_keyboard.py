"""The page by the keyboard alone, in a real browser."""

import pytest

from koff.kafkatest import wait_until
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.chromium import Tab
from tests.unit.builders import apply, commit
from tests.unit.serve.page.shown import Shown, click, focused, list_names, open_page, press, read, wait_for
from tests.unit.serve.views import Source, fill_tracker, take_view


def open_focused(tab: Tab, url: str) -> None:
    tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
    open_page(tab, url)


def walk(tab: Tab, most: int = 120) -> list[str]:
    """What Tab reaches, in order, until it leaves the document or begins again."""
    seen: list[str] = []
    for _ in range(most):
        press(tab, "Tab")
        here = focused(tab)
        if here == "BODY" or (seen and here == seen[0]):
            break
        seen.append(here)
    return seen


def wait_for_focus(tab: Tab, name: str) -> None:
    wait_until(lambda: focused(tab) == name, timeout_s=60, what=f"the focus on {name}")


def test_tab_goes_through_the_page_in_the_order_in_which_it_is_read(tab, page):
    open_focused(tab, page)
    names = list_names(tab)
    seen = walk(tab)
    assert seen[:7] == ["Skip to the content", "koff", "Groups", "Incidents", "Topics", "Clusters", "UTC"]
    assert seen[7:14] == ["Keys", "All groups", "2 ERR", "0 WARN", "3 UNKNOWN", "3 OK", "0 withheld"]
    fields = seen.index("name")
    assert seen[fields : fields + 6] == ["name", "sort", "cause", "state", "cluster", "lagging"]
    assert seen[fields + 6] == "Groups, table"  # the region scrolls
    assert seen[fields + 7 : fields + 11] == ["Verdict", "Group", "Time lag", "Lag"]
    rows = seen[fields + 11 : fields + 11 + 2 * len(names)]
    assert rows[::2] == names
    assert rows[1::2] == [f"More of {name}" for name in names]
    assert seen[-4:] == ["metrics", "API", "ready?", "healthy?"]


def test_the_first_tab_skips_to_the_content(tab, page):
    open_focused(tab, page)
    press(tab, "Tab")
    press(tab, "Enter")
    wait_for_focus(tab, "main")
    assert tab.evaluate("location.hash") == ""
    press(tab, "Tab")
    assert focused(tab) == "All groups"


@pytest.mark.parametrize("how", ["Escape", "Back"])
def test_enter_opens_a_group_and_one_returns_to_it_in_the_same_list(tab, page, how):
    open_focused(tab, f"{page}/#/?cluster=c&sort=name&order=desc")
    wait_for(tab, "document.querySelector('#groups tbody .go') !== null")
    names = list_names(tab)
    second = "document.querySelectorAll('#groups tbody .go')[1]"
    tab.evaluate(f"{second}.focus()")
    press(tab, "Enter")
    wait_for(tab, "document.querySelector('#group h2') !== null")
    assert tab.evaluate("document.querySelector('#group h2').textContent") == names[1]
    wait_for_focus(tab, "main")
    assert tab.evaluate("document.querySelector('#group a').getAttribute('href')").startswith("#/?cluster=c")
    if how == "Escape":
        press(tab, "Escape")
    else:
        tab.evaluate("history.back()")
    wait_for(tab, "document.getElementById('group').hidden")
    assert tab.evaluate("location.hash") == "#/?cluster=c&sort=name&order=desc"
    wait_for_focus(tab, names[1])
    assert list_names(tab) == names


def test_escape_returns_from_a_topic_to_the_topics(tab, page):
    open_focused(tab, f"{page}/#/topics?cluster=c&name=t")
    wait_for(tab, "document.querySelector('#topics tbody a') !== null")
    tab.evaluate("document.querySelector('#topics tbody a').focus()")
    press(tab, "Enter")
    wait_for(tab, "document.querySelector('#topics h2') !== null")
    press(tab, "Escape")
    wait_for_focus(tab, "t")
    assert tab.evaluate("location.hash") == "#/topics?cluster=c&name=t"


def test_escape_on_the_address_of_a_group_shows_all_groups(tab, page):
    open_focused(tab, f"{page}/#/group/d/g")
    wait_for(tab, "document.querySelector('#group h2') !== null")
    press(tab, "Escape")
    wait_for(tab, "location.hash === '#/'")
    wait_for(tab, "document.querySelectorAll('#groups tbody .row').length === 8")


@pytest.mark.parametrize("address", ["", "#/group/d/g", "#/events", "#/topics", "#/topic/c/t", "#/clusters"])
def test_a_slash_reaches_the_search_from_everywhere(tab, page, address):
    open_focused(tab, f"{page}/{address}")
    press(tab, "/")
    wait_for_focus(tab, "name")
    wait_for(tab, "!document.getElementById('filters').hidden")
    press(tab, "/")  # now it is a letter
    wait_for(tab, "document.activeElement.value === '/'")


def test_the_focus_stays_while_the_page_refreshes(tab, page):
    open_focused(tab, page)
    tab.evaluate("document.querySelector('#groups th button').focus()")
    tab.evaluate("window.before = document.getElementById('fresh').textContent")
    wait_for(tab, "document.getElementById('fresh').textContent !== window.before")
    assert focused(tab) == "Verdict"


@pytest.mark.parametrize(
    "clipboard",
    ["undefined", "{ writeText: () => Promise.reject(new DOMException('Write permission denied.')) }"],
    ids=["none", "forbidden"],
)
def test_the_copy_button_works_without_the_right_to_the_clipboard(tab, page, clipboard):
    open_focused(tab, f"{page}/#/group/d/g")
    wait_for(tab, "document.querySelector('#group [data-copy]') !== null")
    tab.evaluate(
        f"Object.defineProperty(navigator, 'clipboard', {{ configurable: true, value: {clipboard} }});"
        "document.addEventListener('copy', () => (window.copied = getSelection().toString()"
        " || document.activeElement.value)); document.querySelector('#group [data-copy]').focus()"
    )
    press(tab, "Enter")
    wait_for(tab, "window.copied !== undefined")
    assert tab.evaluate("window.copied") == read(tab, ".commands code")[0]
    wait_until(lambda: tab.evaluate("document.activeElement.dataset.copy !== undefined"), what="the focus")
    assert tab.complaints(page) == []


def test_the_copy_button_says_that_it_did_not_work(tab, page):
    open_focused(tab, f"{page}/#/group/d/g")
    wait_for(tab, "document.querySelector('#group [data-copy]') !== null")
    tab.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { configurable: true, value: undefined });"
        "document.execCommand = () => false; window.said = [];"
        "new MutationObserver(() => said.push(document.querySelector('#group [data-copy]').textContent))"
        ".observe(document.getElementById('group'), { subtree: true, childList: true })"
    )
    click(tab, "#group [data-copy]", "Copy")
    wait_for(tab, "said.includes('Select it, and copy')")


@pytest.mark.parametrize("name", [" ", "\u200b", "\t\n"])
def test_a_name_of_blanks_can_be_seen_and_opened(tab, name):
    tracker = fill_tracker()
    apply(tracker, commit(name, "t", 0, 1), partition=1)
    with Server(Source(take_view(tracker)), ServeConf("127.0.0.1:0")) as server:
        open_focused(tab, server.url)
        shown = tab.evaluate(
            "[...document.querySelectorAll('#groups tbody .go')].map((each) => each.textContent)"
        )
        (blank,) = [each for each in shown if each != "g"]
        assert blank.startswith(('"', "\\"))
        click(tab, "#groups tbody .go", blank)
        wait_for(tab, "document.querySelector('#group h2') !== null")
        assert tab.evaluate("document.querySelector('#group h2').textContent") == blank


def test_the_order_of_a_column_turns_by_the_keyboard_and_the_focus_stays(tab, page):
    open_focused(tab, page)
    tab.evaluate("document.querySelectorAll('#groups th button')[1].focus()")
    press(tab, "Enter")
    wait_for(tab, "document.querySelector('#groups th[aria-sort=ascending] button')?.textContent === 'Group'")
    assert focused(tab) == "Group"


def test_a_page_of_a_stopped_server_can_still_be_walked(tab):
    with Server(Shown(), ServeConf("127.0.0.1:0")) as server:
        open_focused(tab, server.url)
        names = list_names(tab)
    wait_for(tab, "!document.getElementById('error').hidden")
    assert set(walk(tab)) >= {name.strip() for name in names}
