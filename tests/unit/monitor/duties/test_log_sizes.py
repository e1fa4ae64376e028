"""The sizes of logs: when they are requested, and how long they are shown."""

from koff.monitor.duties.log_sizes import SHOWN, TIMEOUT_S, FetchLogSizes, LogSizes, LogSizesFetched
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending


class Asked:
    """Sizes that are requested every minute."""

    def __init__(self, interval_s: float | None = 60.0) -> None:
        self.outbox = Outbox()
        self.sizes = LogSizes(interval_s, self.outbox)

    def request(self, second: float) -> int | None:
        """The id of the request that was sent, if one was."""
        self.sizes.request(Moment(second, 0))
        sent = [each.id for each in self.outbox.take_requests() if isinstance(each, FetchLogSizes)]
        return sent[0] if sent else None

    def answer(
        self, second: float, broker: int | None, sizes: dict[str, int] | str, *, final: bool = False
    ) -> None:
        now = Moment(second, 0)
        ask = Pending(FetchLogSizes(1), self.sizes, now, second + 1)
        self.sizes.receive(LogSizesFetched(1, broker, sizes, final=final), ask, now)

    def current(self, second: float) -> dict[int, dict[str, int]]:
        return {broker: dict(sizes) for broker, sizes in self.sizes.list_current(Moment(second, 0)).items()}


def test_nothing_is_requested_unless_it_is_chosen():
    asked = Asked(interval_s=None)
    assert asked.request(1000) is None
    assert (asked.sizes.due_s, asked.current(1000)) == (float("inf"), {})


def test_the_next_request_is_sent_after_the_interval_when_the_last_one_has_ended():
    asked = Asked()
    first = asked.request(0)
    assert first is not None
    assert [asked.request(second) for second in (10, 59, 60)] == [None] * 3
    assert asked.sizes.due_s == 120
    asked.outbox.close(first)
    assert asked.request(120) is not None
    assert [late.request.id for late in asked.outbox.remove_late(Moment(120 + TIMEOUT_S, 0))] != []


def test_a_broker_that_fails_hides_only_its_own_sizes_and_only_after_some_intervals():
    asked = Asked()
    asked.answer(0, 1, {"t": 1})
    asked.answer(0, 2, {"t": 2})
    for second in range(60, 60 * SHOWN + 1, 60):
        asked.answer(second, 1, {"t": second})
        asked.answer(second, 2, "hangs")
    assert asked.current(60 * SHOWN) == {1: {"t": 60 * SHOWN}, 2: {"t": 2}}
    assert asked.current(60 * SHOWN + 1) == {1: {"t": 60 * SHOWN}}
    asked.answer(300, 2, {"t": 3})
    assert asked.current(300)[2] == {"t": 3}


def test_a_broker_that_left_the_cluster_is_forgotten_when_the_others_have_responded():
    asked = Asked()
    asked.request(0)
    for broker in (1, 2, 3):
        asked.answer(0, broker, {"t": broker}, final=broker == 3)
    asked.outbox.close(1)
    asked.request(60)
    asked.answer(60, 4, {"t": 4})
    assert asked.current(60).keys() == {1, 2, 3, 4}
    asked.answer(60, 1, "hangs", final=True)
    assert asked.current(60) == {1: {"t": 1}, 4: {"t": 4}}


def test_an_error_is_logged_once_until_it_changes():
    asked = Asked()
    asked.answer(0, None, "")
    for error in ("denied", "denied", {"t": 1}, "denied", "hangs"):
        asked.answer(0, 1, error)
    events = asked.outbox.take_events()
    assert [(event.text, event.details["why"]) for event in events] == [
        ("log sizes are not known", "denied"),
        ("log sizes are not known", "denied"),
        ("log sizes are not known", "hangs"),
    ]
