"""What the tests of the page show, and how they read it in the browser."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from koff.kafkatest import wait_until
from tests.chromium import Tab
from tests.unit.serve.api.clusters import take_view
from tests.unit.serve.views import Source
from tests.unit.view.test_causes import Life


class Shown(Source):
    """The clusters c (groups of every kind) and d (a group g, one partition of which stands still)."""

    def __init__(self) -> None:
        life = Life()
        life.pass_s(240, reads={1: 0})
        super().__init__(take_view(), replace(life.take_view(), cluster="d"))


def read(tab: Tab, selector: str) -> list[str]:
    """The texts of the elements that match."""
    script = f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
    return list(tab.evaluate(script))


def wait_for(tab: Tab, script: str) -> None:
    wait_until(lambda: tab.evaluate(script), timeout_s=60, what=script)


def open_page(tab: Tab, url: str, *, colors: str = "light", width: int = 1100) -> None:
    tab.open("about:blank", colors=colors, width=width)  # a new address alone would not load the page again
    tab.open(url, colors=colors, width=width)
    wait_for(tab, "document.getElementById('fresh').textContent !== ''")


@contextmanager
def running_first(tab: Tab, script: str) -> Iterator[None]:
    """Lets this script run before those of each page that is opened in the block."""
    added = tab.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    try:
        yield
    finally:
        tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


def click(tab: Tab, selector: str, text: str) -> None:
    elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
    tab.evaluate(f"{elements}.find((each) => each.textContent === {json.dumps(text)}).click()")


def list_names(tab: Tab) -> list[str]:
    return read(tab, "#groups tbody .name a")


_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "/": 191,
    "?": 191,
    "j": 74,
    "k": 75,
    "ArrowUp": 38,
    "ArrowDown": 40,
}


def press(tab: Tab, key: str, *, shift: bool = False) -> None:
    """Presses and releases a key."""
    text = "\r" if key == "Enter" else key if len(key) == 1 else ""
    for kind in ("keyDown", "keyUp"):
        tab.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            code=key,
            windowsVirtualKeyCode=_KEYS[key],
            modifiers=8 if shift else 0,
            **({"text": text} if kind == "keyDown" and text else {}),
        )


def focused(tab: Tab) -> str:
    """The element with the focus: its text, or its name or id."""
    return str(
        tab.evaluate(
            "(({ innerText, name, id, tagName, ariaLabel }) =>"
            " name || (tagName === 'MAIN' ? id : tagName === 'BODY' ? tagName"
            " : ariaLabel || innerText.trim().replace(/\\s+/g, ' ')))"
            "(document.activeElement)"
        )
    )
