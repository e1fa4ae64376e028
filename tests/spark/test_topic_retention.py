"""How long topics keep records: what brokers return, and what is known when they do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.client.wire.brokers import Brokers
from koff.config.clusters import WatchedCluster
from koff.errors import ConnectError
from koff.kafkatest import KafkaCluster
from koff.monitor.duties.retention import AGAIN_S, DENIED_S, RETRY_S
from koff.spark.job import topic_retention
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.planner import Planner
from koff.spark.job.samples import Sample
from koff.spark.job.topic_retention import TopicRetention
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import Plan
from tests.unit.builders import commit

SETTINGS = {
    "t": {"cleanup.policy": "delete", "retention.ms": "60000"},
    "compacted": {"cleanup.policy": "compact", "retention.ms": "60000"},
    "denied": "TOPIC_AUTHORIZATION_FAILED",
}


class Broker:
    """The double of `fetch_topic_configs`, and a clock."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = dict(SETTINGS)
        self.asked: list[list[str]] = []
        self.error: ConnectError | None = None
        self.now_s = 0.0
        self.retention = TopicRetention(cast(Brokers, self), lambda: self.now_s)

    def respond(
        self, brokers: object, topics: Sequence[str], names: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Any]:
        assert brokers is self
        self.asked.append(list(topics))
        if self.error is not None:
            raise self.error
        return {name: self.settings[name] for name in topics}


def decode(plan: Plan) -> Sample:
    assert plan.sample is not None
    return Sample.decode(plan.sample)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(topic_retention, "fetch_topic_configs", made.respond)
    return made


def test_a_topic_that_deletes_has_its_retention_and_one_that_compacts_keeps_records_for_ever(
    broker: Broker,
) -> None:
    assert broker.retention.fetch(SETTINGS, {}) == {"t": 60.0, "compacted": math.inf}


def test_topics_are_requested_now_and_then_and_a_new_one_at_once(broker: Broker) -> None:
    for now_s, topics, asked in (
        (0.0, ["t"], [["t"]]),
        (1.0, ["t", "compacted"], [["compacted"]]),
        (AGAIN_S - 1, ["t", "compacted"], []),
        (AGAIN_S, ["t", "compacted"], [["t"]]),
    ):
        broker.now_s, broker.asked = now_s, []
        broker.retention.fetch(topics, {})
        assert broker.asked == asked, now_s


def test_a_topic_whose_settings_koff_may_not_see_is_requested_once_an_hour(broker: Broker) -> None:
    for broker.now_s in (0.0, RETRY_S, DENIED_S - 1, DENIED_S):
        broker.retention.fetch(["denied"], {})
    assert len(broker.asked) == 2


def test_after_an_error_what_was_known_stays_and_a_later_sample_tries_again(broker: Broker) -> None:
    broker.error = ConnectError("no broker responds")
    before = {"t": 30.0, "gone": 5.0}
    assert broker.retention.fetch(["t", "compacted"], before) == {"t": 30.0}
    broker.error, broker.now_s = None, RETRY_S
    assert broker.retention.fetch(["t", "compacted"], before) == {"t": 60.0, "compacted": math.inf}


def test_what_a_state_lacks_is_told_again_without_another_request(broker: Broker) -> None:
    for _ in range(2):  # the batch with the first one was not written
        assert broker.retention.fetch(["t"], {}) == {"t": 60.0}
    assert len(broker.asked) == 1


def test_a_sample_has_what_the_state_does_not_know_of_topics_until_it_was_applied(
    kafka: KafkaCluster,
) -> None:
    topic, log = kafka.create_topic(config={"retention.ms": "240000"}), kafka.create_topic()
    state, conf, owner = ClusterState("c", 30.0), ClusterConf(kafka.bootstrap), Owner("here 1 1", "n")
    key, value = commit("g", topic, 0, 1)
    state.tracker.apply(0, [key], [value], seen_at_ms=0, is_live=False)
    with Cluster(conf).connect() as cluster:
        planner = Planner(
            WatchedCluster("c", conf, offsets_topic=log),
            cluster,
            max_offsets=9,
            interval_s=30.0,
            limit_s=150.0,
        )
        for _ in range(2):  # the first batch was not written
            first = planner.plan(owner, None, state, wants_sample=True)
            sample = decode(first)
            assert sample.retention_s == {topic: 240.0}
            assert topic in (sample.topic_ids or {})
        state.note_topics(sample.topic_ids)
        state.apply_sample(sample)
        sample = decode(planner.plan(owner, first, state, wants_sample=True))
        assert (sample.retention_s, sample.topic_ids) == (None, None)
