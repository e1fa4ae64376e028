"""A topic that was deleted and created again is noticed by its id, once, and never by old metadata."""

from __future__ import annotations

import gc
from collections.abc import Collection

import pytest

from koff.client import topic_watch
from koff.client.topic_watch import TopicWatch
from koff.errors import ConnectError
from koff.kafkatest import wait_until


class Ids:
    """What brokers return as the ids of topics. `requests` are the names that were requested."""

    def __init__(self, **ids: str) -> None:
        self.ids: dict[str, str] = ids
        self.requests: list[set[str]] = []
        self.is_down = False

    def fetch(self, names: Collection[str]) -> dict[str, str]:
        self.requests.append(set(names))
        if self.is_down:
            raise ConnectError("away")
        return {name: self.ids[name] for name in names if name in self.ids}


def check(watch: TopicWatch) -> bool:
    watch.check_if_due()
    return True


def test_another_id_is_another_topic_and_an_id_of_before_is_old_metadata():
    brokers = Ids(t="one")
    watch = TopicWatch(brokers.fetch)
    topic = watch.watch("t")
    seen = []
    for topic_id in ("one", "one", "two", "one", "", "two", "three"):
        brokers.ids["t"] = topic_id
        watch.check_now()
        seen.append(topic.recreations)
    assert seen == [0, 0, 1, 1, 1, 1, 2]


def test_without_a_response_and_without_the_topic_nothing_has_changed():
    brokers = Ids(t="one")
    watch = TopicWatch(brokers.fetch)
    topic = watch.watch("t")
    watch.check_now()
    brokers.is_down = True
    watch.check_now()
    brokers.is_down, brokers.ids = False, {}
    watch.check_now()
    assert topic.recreations == 0


def test_ids_are_fetched_now_and_then_and_at_once_for_a_new_topic(monkeypatch: pytest.MonkeyPatch):
    brokers = Ids()
    watch = TopicWatch(brokers.fetch)
    held = [watch.watch("t")]
    for _ in range(100):
        watch.check_if_due()
    wait_until(lambda: brokers.requests, what="the first request")
    held.append(watch.watch("t"))
    watch.check_if_due()
    assert brokers.requests == [{"t"}]
    held.append(watch.watch("other"))
    wait_until(lambda: check(watch) and len(brokers.requests) == 2, what="the second request")
    monkeypatch.setattr(topic_watch, "CHECK_S", 0.0)
    held.append(watch.watch("third"))
    wait_until(lambda: check(watch) and len(brokers.requests) > 3, what="further requests")


def test_a_topic_that_nobody_reads_any_more_is_not_requested():
    brokers = Ids()
    watch = TopicWatch(brokers.fetch)
    kept, dropped = watch.watch("kept"), watch.watch("dropped")
    del dropped
    gc.collect()
    watch.check_now()
    assert brokers.requests == [{kept.name}]
