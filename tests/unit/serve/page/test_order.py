"""The list of groups keeps still: in a real browser, with groups that move."""

import json

import pytest

from koff.kafkatest import wait_until
from tests.chromium import Tab
from tests.unit.serve.page.moving import Moving, pass_ms, refresh, serving, stop_clock, wait_for_names
from tests.unit.serve.page.shown import focused, list_names, open_page, read, wait_for

WELL = dict.fromkeys("abcdef", 0)
SOME_LATE = {**WELL, "d": 300, "e": 200}


@pytest.fixture
def source():
    return Moving(SOME_LATE)


@pytest.fixture
def url(source, tab):
    tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
    with serving(source) as url:
        open_page(tab, url)
        leave_list(tab)
        yield url


def leave_list(tab: Tab) -> None:
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=400, y=5)
    tab.evaluate("document.activeElement.blur()")


def enter_list(tab: Tab) -> None:
    box = tab.evaluate("document.querySelector('#groups tbody').getBoundingClientRect().toJSON()")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"] + 20, y=box["y"] + 10)
    wait_for(tab, "document.querySelector('#list').matches(':hover')")


def arrange(tab: Tab, url: str, before: str, wanted: str) -> str:
    """`arrange` of order.js. A row is a letter and the first letter of its status: `aE bO`."""
    names = {"E": "ERR", "W": "WARN", "U": "UNKNOWN", "O": "OK"}
    rows = [[{"key": row[0], "status": names[row[1]]} for row in text.split()] for text in (before, wanted)]
    script = f"import('{url}/page/order.js').then(({{ arrange }}) => arrange(...{json.dumps(rows)}).join(''))"
    return str(tab.evaluate(script))


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        ("aE bE cO", "bE aE cO", "abc"),  # the same verdicts: nothing moves
        ("aE bE cO", "cE bE aE", "cab"),
        ("aE bW cO dO", "aE bW dW cO", "abdc"),
        ("aE bW cO", "bW aO cO", "bac"),
        ("aE bO cO", "aE cO", "ac"),
        ("aE cO", "aE bE dU cO", "abdc"),
        ("", "aE bO", "ab"),
    ],
)
def test_a_row_moves_only_if_its_severity_changes(tab, url, before, wanted, expected):
    assert arrange(tab, url, before, wanted) == expected


def test_the_worst_group_is_first_after_its_incident_has_begun(tab, url, source):
    assert list_names(tab) == ["d", "e", "a", "b", "c", "f"]
    source.change({**SOME_LATE, "f": 250})
    wait_for_names(tab, ["d", "f", "e", "a", "b", "c"])  # by the page's own refreshes


def test_rows_move_at_most_every_ten_seconds(tab, url, source):
    stop_clock(tab)
    source.change({**SOME_LATE, "f": 250})
    refresh(tab)
    wait_for_names(tab, ["d", "f", "e", "a", "b", "c"])
    source.change({**SOME_LATE, "f": 250, "c": 500})
    tab.evaluate("window.moves = 0; new MutationObserver((all) => (moves += all.filter((each) =>"
                 " each.type === 'childList').length)).observe(document.querySelector('#groups tbody'),"
                 " { childList: true })")  # fmt: skip
    refresh(tab)
    assert [text.partition("\t")[0] for text in read(tab, ".row")].count("OK") == 2  # c is late now
    assert tab.evaluate("moves") == 0
    pass_ms(tab, 11_000)
    refresh(tab)
    wait_for_names(tab, ["c", "d", "f", "e", "a", "b"])


@pytest.mark.parametrize("how", ["pointer", "focus", "selection"])
def test_nothing_moves_while_somebody_is_in_the_list(tab, url, source, how):
    names = list_names(tab)
    match how:
        case "pointer":
            enter_list(tab)
        case "focus":
            tab.evaluate("document.querySelector('#groups .go').focus()")
        case "selection":
            tab.evaluate("getSelection().selectAllChildren(document.querySelector('#groups .why'))")
    source.change({**SOME_LATE, "f": 250, "a": 600})
    pass_ms(tab, 11_000)
    refresh(tab)
    paused = "order paused while you are in the list: 2 to move"
    wait_until(lambda: read(tab, "#note") == [paused], what="the note")
    assert list_names(tab) == names
    tab.evaluate("getSelection().removeAllRanges()")
    leave_list(tab)
    refresh(tab)
    wait_for_names(tab, ["a", "d", "f", "e", "b", "c"])
    assert read(tab, "#note") == [""]


def test_focus_selection_and_scroll_survive_a_hundred_refreshes_with_moving_rows(tab, url, source):
    tab.evaluate(
        "document.querySelectorAll('#groups .go')[3].focus(); scrollTo(0, 60);"
        " getSelection().selectAllChildren(document.querySelectorAll('#groups .name')[2])"
    )
    was = focused(tab), tab.evaluate("scrollY"), tab.evaluate("getSelection().toString()")
    letters = list(WELL)
    for number in range(100):
        late = letters[number % len(letters)]
        source.change({**WELL, late: 200 + number, letters[(number * 5 + 1) % len(letters)]: 700})
        pass_ms(tab, 11_000)
        refresh(tab)
        assert (focused(tab), tab.evaluate("scrollY"), tab.evaluate("getSelection().toString()")) == was
    assert was[0] == "b"


def test_the_focus_stays_outside_the_list_while_rows_move(tab, url, source):
    tab.evaluate("document.querySelector('#strip .count').focus()")
    orders = set()
    for number in range(100):
        source.change({**WELL, "abcdef"[number % 6]: 300})
        pass_ms(tab, 11_000)
        refresh(tab)
        orders.add(list_names(tab)[0])
        assert focused(tab) == "0 ERR"
    assert orders == set("abcdef")


def test_a_group_that_is_gone_while_somebody_is_in_the_list_is_called_gone(tab, url, source):
    enter_list(tab)
    source.change({name: late for name, late in SOME_LATE.items() if name != "d"})
    refresh(tab)
    wait_for(
        tab, "document.querySelector('.row.gone .why')?.textContent.startsWith('not on this page any more')"
    )
    assert list_names(tab)[0] == "d"


def test_another_order_that_a_person_chooses_comes_at_once(tab, url):
    enter_list(tab)
    tab.evaluate("location.hash = '#/?sort=name'")
    wait_for_names(tab, list("abcdef"))
