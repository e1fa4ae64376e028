"""A thread, a file or a connection that a test leaves open fails it."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.used_resources import expect_nothing_left


def open_thread(_: Path) -> Callable[[], object]:
    done = threading.Event()
    threading.Thread(target=done.wait, daemon=True).start()
    return done.set


def open_file(folder: Path) -> Callable[[], object]:
    return (folder / "left").open("w").close


def open_connection(_: Path) -> Callable[[], object]:
    return socket.socket().close


@pytest.mark.parametrize(
    ("open_one", "what"), [(open_thread, "thread"), (open_file, "left"), (open_connection, "socket")]
)
def test_what_is_left_open_is_named_and_what_is_closed_soon_is_not(open_one, what, tmp_path, monkeypatch):
    with expect_nothing_left():
        open_one(tmp_path)()
    monkeypatch.setattr("tests.used_resources.PAUSE_S", 0.0005)
    left = []
    with pytest.raises(pytest.fail.Exception, match=what), expect_nothing_left():
        left.append(open_one(tmp_path))
    left[0]()
