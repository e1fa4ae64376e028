"""The event log: ids, what it keeps, and readers that wait."""

import asyncio
import threading

import pytest

from koff.serve.events import event_log as event_log_module
from koff.serve.events.event_log import EventLog
from tests.unit.serve.events.test_webhook import make_event

START_MS = 1_795_225_081_984


@pytest.fixture
def log() -> EventLog:
    return EventLog(START_MS)


def list_texts(log: EventLog, after: int = 0, most: int = 100) -> list[str]:
    return [kept.event.text for kept in log.read(after, most).events]


def test_events_get_ids_that_grow_and_the_time(log):
    first, second = log.add([make_event(1), make_event(2)], START_MS + 1500)
    assert (first.id, second.id) == (f"{START_MS}-1", f"{START_MS}-2")
    assert first.time == "2026-11-21T01:38:03.484Z"
    assert log.last == 2


def test_a_reader_gets_what_is_newer_in_order(log):
    log.add([make_event(number) for number in range(1, 6)], START_MS)
    assert list_texts(log, 2, 2) == ["event 3", "event 4"]
    assert list_texts(log, 5) == []
    assert log.read(2, 2).missed == 0


def test_the_oldest_are_dropped_by_number_and_readers_are_told(log, monkeypatch):
    monkeypatch.setattr(event_log_module, "MOST_EVENTS", 3)
    log.add([make_event(number) for number in range(1, 6)], START_MS)
    page = log.read(0, 2)
    assert (page.missed, [kept.number for kept in page.events], page.last) == (2, [3, 4], 5)
    assert log.read(2, 2).missed == 0


def test_the_oldest_are_dropped_by_size(log, monkeypatch):
    monkeypatch.setattr(event_log_module, "MOST_BYTES", 1000)
    log.add([make_event(number, details={"why": "x" * 200}) for number in range(1, 10)], START_MS)
    assert list_texts(log) == ["event 8", "event 9"]
    log.add([make_event(10, details={"why": "x" * 2000})], START_MS)
    page = log.read(0, 10)
    assert (page.events, page.missed) == ([], 10)


def test_ids_of_another_process_and_what_is_no_id(log):
    log.add([make_event()], START_MS)
    assert log.parse_id(f"{START_MS}-1") == 1
    assert log.parse_id(f"{START_MS}-2") is None  # it was not given yet
    assert log.parse_id("1700000000000-1") is None
    for text in ("", "1", "-1", "a-b", "1-1 ", "1" * 99 + "-1", "\u0661-1"):
        with pytest.raises(ValueError, match="is not the id"):
            log.parse_id(text)


def test_a_reader_waits_until_there_is_an_event_or_the_end(log):
    async def read() -> list[str]:
        await log.wait(0, 60)
        texts = list_texts(log)
        threading.Timer(0.01, log.close).start()
        await log.wait(1, 60)
        assert log.is_closed
        await log.wait(1, 60)  # at once
        return texts

    threading.Timer(0.01, log.add, [[make_event()], START_MS]).start()
    assert asyncio.run(asyncio.wait_for(read(), 30)) == ["event 1"]
    assert log._waiting == set()


def test_a_reader_that_waits_long_enough_goes_on(log):
    asyncio.run(asyncio.wait_for(log.wait(0, 0.001), 30))
    assert log._waiting == set()
