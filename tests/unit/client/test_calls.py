"""Calls in threads: a thread is used again, and keeps nothing of what it has done."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import pytest

from koff.client import calls
from koff.client.calls import call_in_thread, get_result
from koff.kafkatest.wait import wait_until


@pytest.fixture(autouse=True)
def own_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wait_until_idle(0)  # those of other tests have ended
    monkeypatch.setattr(calls, "_IDLE_S", 2.0)
    yield
    monkeypatch.undo()
    wait_until_idle(0)


def wait_until_idle(count: int) -> None:
    wait_until(lambda: len(calls._idle) == count, every_s=0.001, what=f"{count} threads that wait for calls")


def test_calls_one_after_another_are_made_by_one_thread():
    threads = set()
    for _ in range(20):
        threads.add(get_result(call_in_thread(threading.get_ident)))
        wait_until_idle(1)
    assert len(threads) == 1


def test_no_call_waits_for_another_one():
    together = threading.Barrier(5, timeout=60)
    under_way = [call_in_thread(together.wait) for _ in range(5)]
    assert sorted(get_result(each, 60) for each in under_way) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("first_ends_well", [True, False])
def test_a_thread_that_waits_keeps_nothing_of_its_call(first_ends_well: bool):
    class Used:
        def call(self) -> None:
            if not first_ends_well:
                raise RuntimeError("of the test")

    used = Used()
    call_in_thread(used.call).exception(60)
    wait_until_idle(1)
    is_kept = weakref.ref(used)
    del used
    assert is_kept() is None


def test_a_thread_ends_when_no_call_has_come_for_a_while(monkeypatch):
    monkeypatch.setattr(calls, "_IDLE_S", 0.01)
    thread = get_result(call_in_thread(threading.current_thread))
    wait_until(lambda: not thread.is_alive(), what="the end of the thread")
    assert get_result(call_in_thread(threading.current_thread)) is not thread
