"""What a webhook gets at once, later as a summary, and again."""

from typing import Any

import pytest

from koff.serve.events.event import ClusterEvent, Severity, format_time
from koff.serve.events.notice_queue import MOST_LISTED, MOST_WAITING, THROTTLE_S, NoticeQueue
from koff.serve.events.quiet_hours import QuietHours
from koff.serve.events.webhook_conf import WebhookConf

NIGHT, DAY = 0.0, 12 * 3600.0
"""Times in seconds since 1970: midnight, and noon."""
QUIET = (QuietHours.parse("22:00-07:00"),)
PAGER: dict[str, Any] = {"template": "pagerduty", "routing_key": "k"}


def build_queue(**conf: Any) -> NoticeQueue:
    return NoticeQueue(WebhookConf(url="http://a", **conf))


def begin(key: str, severity: Severity = Severity.WARNING, text: str = "begins") -> ClusterEvent:
    kind: Any = "incident_opened" if severity is Severity.WARNING else "incident_raised"
    return ClusterEvent("c", kind, severity, f"{key} {text}", group=key, key=key, id=f"{key}-{text}")


def end(key: str) -> ClusterEvent:
    fields: dict[str, Any] = {"group": key, "key": key, "id": f"{key}-end", "ends": Severity.WARNING}
    return ClusterEvent("c", "incident_closed", Severity.INFO, f"{key} ends", **fields)


def happen(number: int) -> ClusterEvent:
    return ClusterEvent("c", "records_lost", Severity.ERROR, f"event {number}", id=str(number))


def list_texts(queue: NoticeQueue, at_s: float, now_s: float = 0.0, **how: Any) -> list[list[str]]:
    """The texts of all requests that may be sent now."""
    requests = []
    while taken := queue.take(now_s, at_s, **how):
        requests.append([event.text for event in taken])
    return requests


def test_events_are_sent_in_their_order_and_a_hundred_at_once():
    queue = build_queue()
    queue.add([happen(number) for number in range(250)], 0.0)
    assert [len(texts) for texts in list_texts(queue, DAY)] == [100, 100, 50]


def test_quiet_hours_hold_events_back_and_one_summary_tells_of_them():
    queue = build_queue(quiet_hours=QUIET)
    queue.add([begin("a"), begin("b")], 0.0)
    assert queue.take(0.0, NIGHT) == []
    queue.add([begin("a", Severity.ERROR, "worse"), end("b"), end("before"), happen(1)], 1.0)
    assert queue.take(1.0, NIGHT + 1) == []
    (summary,) = queue.take(2.0, DAY)
    assert (summary.kind, summary.severity, summary.cluster) == ("summary", Severity.ERROR, "c")
    assert summary.time == format_time(round(DAY * 1000))
    assert summary.text.splitlines() == [
        "6 events held back since 1970-01-01T00:00:00.000Z (quiet hours); 1 began and ended meanwhile:",
        "- a worse",
        "- event 1",
        "- before ends",
    ]
    queue.add([begin("c")], 3.0)
    assert list_texts(queue, DAY) == [["c begins"]]


def test_a_summary_without_anything_that_lasts_has_no_list():
    queue = build_queue(quiet_hours=QUIET)
    queue.add([begin("a"), end("a")], 0.0)
    assert queue.take(0.0, NIGHT) == []
    ((text,),) = list_texts(queue, DAY)
    assert text.endswith("(quiet hours); 1 began and ended meanwhile")


def test_a_summary_lists_the_worst_and_counts_the_rest():
    queue = build_queue(quiet_hours=QUIET)
    queue.add([begin(str(number)) for number in range(30)], 0.0)
    queue.add([happen(99)], 0.0)
    assert queue.take(0.0, NIGHT) == []
    ((text,),) = list_texts(queue, DAY)
    head, first, *rest = text.splitlines()
    assert head.startswith("31 events held back")
    assert first == "- event 99"
    assert len(rest) == MOST_LISTED
    assert rest[-1] == "and 11 more"


def test_a_pager_is_told_in_the_morning_of_what_lasts_and_at_once_of_each_end():
    queue = build_queue(quiet_hours=QUIET, **PAGER)
    queue.add([begin("a"), begin("b"), begin("a", Severity.ERROR, "worse"), happen(1)], 0.0)
    assert queue.take(0.0, NIGHT) == []
    queue.add([end("b"), end("before")], 1.0)
    assert list_texts(queue, NIGHT) == [["b ends"], ["before ends"]]
    assert list_texts(queue, DAY) == [["a worse"], ["event 1"]]


def test_more_requests_than_the_throttle_allows_are_one_summary_later():
    queue = build_queue(throttle=2)
    for number in range(5):
        queue.add([happen(number)], 0.0)
        queue.take(float(number), DAY)
    assert queue.take(THROTTLE_S - 1, DAY) == []
    ((text,),) = list_texts(queue, DAY + 600, THROTTLE_S)
    assert text.splitlines()[0].startswith("3 events held back since 1970-01-01T12:00:00.000Z (throttle: 2 ")
    assert text.splitlines()[1:] == ["- event 2", "- event 3", "- event 4"]


def test_a_throttled_pager_gets_each_event_in_its_turn():
    queue = build_queue(throttle=2, **PAGER)
    queue.add([happen(number) for number in range(5)], 0.0)
    found = [list_texts(queue, DAY, THROTTLE_S * turn) for turn in range(3)]
    assert [len(requests) for requests in found] == [2, 2, 1]
    assert sum(found, []) == [[f"event {number}"] for number in range(5)]  # noqa: RUF017 - a few


def test_what_is_held_back_is_told_at_the_stop():
    queue = build_queue(quiet_hours=QUIET)
    queue.add([begin("a")], 0.0)
    assert queue.take(0.0, NIGHT) == []
    ((text,),) = list_texts(queue, NIGHT, is_last=True)
    assert text.splitlines()[1:] == ["- a begins"]
    assert len(queue) == 0


def test_the_oldest_are_dropped_when_too_many_wait():
    queue = build_queue(quiet_hours=QUIET)
    assert queue.add([happen(number) for number in range(MOST_WAITING)], 0.0) == 0
    assert queue.add([happen(MOST_WAITING), happen(MOST_WAITING + 1)], 0.0) == 2
    assert list_texts(queue, DAY)[0][0] == "event 2"


def remind(queue: NoticeQueue, now_s: float, *keys: str, at_s: float = DAY) -> list[list[str]]:
    lasting = {key: lambda key=key: begin(key, Severity.ERROR, "lasts") for key in keys}
    queue.remind(lasting, now_s, at_s)
    return list_texts(queue, at_s, now_s)


def test_an_incident_that_lasts_is_told_again_after_a_while_and_again():
    queue = build_queue(remind_s=60.0)
    assert remind(queue, 0.0, "a") == []
    assert remind(queue, 59.0, "a") == []
    assert remind(queue, 60.0, "a", "b") == [["a lasts"]]
    assert remind(queue, 119.0, "a", "b") == []
    assert remind(queue, 120.0, "a", "b") == [["a lasts", "b lasts"]]
    assert remind(queue, 150.0, "b") == []
    assert remind(queue, 180.0, "a", "b") == [["b lasts"]]  # a is another one


def test_another_notice_of_the_incident_puts_the_reminder_off():
    queue = build_queue(remind_s=60.0)
    assert remind(queue, 0.0, "a") == []
    queue.add([begin("a", Severity.ERROR, "worse")], 50.0)
    assert remind(queue, 60.0, "a") == [["a worse"]]
    assert remind(queue, 109.0, "a") == []
    assert remind(queue, 110.0, "a") == [["a lasts"]]


@pytest.mark.parametrize(("conf", "requests"), [({}, 1), (PAGER, 30)])
def test_many_reminders_at_once_are_one_notice_but_for_a_pager(conf: dict[str, Any], requests: int):
    queue, keys = build_queue(remind_s=60.0, **conf), [str(number) for number in range(30)]
    assert remind(queue, 0.0, *keys) == []
    found = remind(queue, 60.0, *keys)
    assert len(found) == requests
    assert found[0][0].startswith("0 lasts" if conf else "30 incidents last:\n- 0 lasts")


def test_reminders_are_of_incidents_that_the_webhook_is_told_of():
    assert remind(build_queue(remind_s=60.0, min_severity=Severity.ERROR, kinds=("blind",)), 0.0, "a") == []
    for conf, is_told in (({"kinds": ("blind",)}, False), ({"kinds": ("incident_raised",)}, True)):
        queue = build_queue(remind_s=60.0, **conf)
        assert remind(queue, 0.0, "a") == []
        assert bool(remind(queue, 60.0, "a")) == is_told


def test_quiet_hours_hold_one_reminder_back_not_one_for_each_hour():
    queue = build_queue(remind_s=60.0, quiet_hours=QUIET)
    for turn in range(10):
        assert remind(queue, 60.0 * turn, "a", at_s=NIGHT) == []
    assert len(queue) == 1


def test_without_a_time_for_it_nothing_is_told_again():
    queue = build_queue()
    assert remind(queue, 0.0, "a") == remind(queue, 1e9, "a") == []


def test_an_incident_that_another_koff_may_have_told_is_told_without_a_reminder_and_at_night_later():
    queue = build_queue(quiet_hours=QUIET)
    lasting = {key: lambda key=key: begin(key, Severity.ERROR, "lasts") for key in "ab"}
    queue.remind(lasting, 0.0, DAY, untold={"b"})
    assert list_texts(queue, DAY) == [["b lasts"]]
    queue.remind(lasting, 1.0, DAY)
    assert list_texts(queue, DAY) == []
    queue.add([happen(1)], 2.0)
    assert queue.take(2.0, NIGHT) == []
    queue.remind(lasting, 3.0, NIGHT, untold={"a"})
    ((text,),) = list_texts(queue, DAY)
    assert text.splitlines()[1:] == ["- event 1", "- a lasts"]


def test_what_was_told_of_before_the_night_is_not_said_to_have_begun_in_it():
    queue = build_queue(quiet_hours=QUIET)
    queue.add([end("a"), begin("a"), end("a")], 0.0)  # one key, two incidents
    assert queue.take(0.0, NIGHT) == []
    ((text,),) = list_texts(queue, DAY)
    assert text.splitlines()[1:] == ["- a ends"]
