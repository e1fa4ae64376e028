"""How long topics keep their records: when koff asks, and what it makes of the answers."""

from math import inf, isnan, nan

import pytest

from koff.monitor.duties import retention
from koff.monitor.duties.retention import (
    AGAIN_S,
    DENIED_S,
    LOOK_S,
    PAUSE_S,
    RETRY_S,
    SETTINGS,
    FetchTopicConfigs,
    RecordRetention,
    TopicConfigsFetched,
    read_retention_s,
)
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending
from koff.tracker import Tracker
from tests.unit.builders import apply, commit


class Asked:
    """The retention of the topics `t` and `u`, to which a group has committed."""

    def __init__(self) -> None:
        self.topics, self.tracker, self.outbox = {"t", "u"}, Tracker(), Outbox()
        apply(self.tracker, *(commit("group", topic, 0, 5) for topic in sorted(self.topics)))
        self.retention = RecordRetention(self.tracker, self.outbox, lambda: self.topics)
        self.asks: list[Pending[FetchTopicConfigs]] = []

    def request(self, second: float) -> tuple[str, ...]:
        """The topics that are asked."""
        self.retention.request(Moment(second, 0))
        self.asks += [ask for ask in self.outbox.list_open(FetchTopicConfigs) if ask not in self.asks]
        sent = [request for request in self.outbox.take_requests() if isinstance(request, FetchTopicConfigs)]
        assert all(request.names == SETTINGS for request in sent)
        return sent[0].topics if sent else ()

    def answer(self, second: float, **configs: dict[str, str] | str) -> None:
        ask = self.asks[-1]
        self.outbox.close(ask.request.id)
        self.retention.receive(TopicConfigsFetched(ask.request.id, configs), ask, Moment(second, 0))

    def known(self) -> dict[str, float]:
        partitions = self.tracker.take_snapshot(1000).partitions
        known = zip(partitions.topic, partitions.retention_s.tolist(), strict=True)
        return {topic: retention_s for topic, retention_s in known if not isnan(retention_s)}


def keep(retention_ms: int, policy: str = "delete") -> dict[str, str]:
    return {"retention.ms": str(retention_ms), "cleanup.policy": policy}


def test_a_topic_is_asked_soon_and_then_now_and_then():
    asked = Asked()
    assert asked.request(100) == ("t", "u")
    asked.answer(100, t=keep(60_000), u=keep(-1))
    assert asked.known() == {"t": 60, "u": inf}
    asked.topics.add("new")
    assert asked.request(100 + LOOK_S - 1) == ()
    assert asked.request(100 + LOOK_S) == ("new",)
    assert asked.request(100 + AGAIN_S - 1) == ()
    assert asked.request(100 + AGAIN_S - 1 + LOOK_S) == ("t", "u")


def test_what_is_not_known_any_more_stays_and_is_asked_again():
    asked = Asked()
    asked.request(100)
    asked.answer(100, t=keep(60_000), u=keep(60_000))
    assert asked.request(100 + AGAIN_S) == ("t", "u")
    asked.answer(100 + AGAIN_S, t="TOPIC_AUTHORIZATION_FAILED")
    assert asked.known() == {"t": 60, "u": 60}
    assert asked.request(100 + AGAIN_S + RETRY_S) == ("u",)
    asked.retention.give_up(asked.asks[-1], "late", Moment(800, 0))
    assert asked.request(800 + RETRY_S - 1) == ()
    assert asked.request(800 + RETRY_S + LOOK_S) == ("u",)
    asked.answer(900, u=keep(30_000))
    assert asked.known() == {"t": 60, "u": 30}
    asked.topics = {"t"}
    assert asked.request(100 + AGAIN_S + DENIED_S) == ("t",)
    asked.answer(5000, t=keep(90_000))
    assert asked.known() == {"t": 90}


def test_it_is_settled_when_all_was_answered():
    asked = Asked()
    assert not asked.retention.is_settled
    asked.request(100)
    assert not asked.retention.is_settled
    asked.answer(100)
    assert asked.retention.is_settled


def test_many_topics_are_asked_one_request_after_another(monkeypatch):
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    asked = Asked()
    assert [asked.request(100), asked.request(100 + PAUSE_S)] == [("t",), ("u",)]


@pytest.mark.parametrize(
    ("configs", "retention_s"),
    [
        (keep(1500), 1.5),
        (keep(1500, "compact, delete"), 1.5),
        (keep(1500, "compact"), inf),
        (keep(1500, ""), inf),
        (keep(-1), inf),
        ({"retention.ms": "1500"}, nan),
        ({"cleanup.policy": "delete"}, nan),
        ({"retention.ms": "soon", "cleanup.policy": "delete"}, nan),
        ("UNKNOWN_TOPIC_OR_PARTITION", nan),
    ],
)
def test_the_settings_say_how_long_a_record_is_kept(configs, retention_s):
    found = read_retention_s(configs)
    assert found == retention_s or (found is None and isnan(retention_s))
