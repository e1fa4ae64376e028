"""The retention of each internal topic is requested for itself, again and again."""

import pytest

from koff.monitor.duties.retention import (
    AGAIN_S,
    ASSUMED_RETENTION_MS,
    SETTING,
    TOMBSTONE_RETRY_S,
    FetchTopicConfigs,
    TombstoneRetention,
    TopicConfigsFetched,
)
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox
from koff.monitor.requests import Failed, Read, Topic
from tests.unit.builders import commit
from tests.unit.monitor.driven import IDS, OFFSETS, Driven

SHARE = "__share_group_state"
DAY_S = 86_400


def know_retention(driven: Driven, topic: str, retention_ms: int) -> None:
    """The newest request for the setting of this topic is answered."""
    asked = [r.id for r in driven.sent if isinstance(r, FetchTopicConfigs) and r.topics == (topic,)]
    driven.give(TopicConfigsFetched(asked[-1], {topic: {SETTING: str(retention_ms)}}))


def test_a_retention_is_requested_soon_until_it_is_known_and_then_now_and_then():
    outbox = Outbox()
    retention = TombstoneRetention("t", outbox)
    retention.request(Moment(0, 0))
    assert retention.is_first_requested
    retention.request(Moment(retention.due_s - 1, 0))
    assert len(outbox.take_requests()) == 1
    retention.request(Moment(retention.due_s, 0))
    assert len(outbox.take_requests()) == 1
    assert retention.retention_ms == ASSUMED_RETENTION_MS
    ask = next(outbox.list_open(FetchTopicConfigs))
    retention.receive(TopicConfigsFetched(1, {"t": {SETTING: "5000"}}), ask, ask.requested)
    sent_s = retention.due_s - AGAIN_S
    assert (retention.retention_ms, sent_s) == (5000, TOMBSTONE_RETRY_S)
    retention.request(Moment(retention.due_s - 1, 0))
    assert not outbox.take_requests()
    retention.request(Moment(retention.due_s, 0))
    assert len(outbox.take_requests()) == 1
    assert (retention.retention_ms, retention.due_s) == (
        5000,
        TOMBSTONE_RETRY_S + AGAIN_S + TOMBSTONE_RETRY_S,
    )


@pytest.mark.parametrize(("share_retention_s", "is_lost"), [(2 * DAY_S, False), (3600, True)])
def test_each_internal_topic_is_read_anew_by_its_own_retention(share_retention_s, is_lost):
    driven = Driven()
    ids = {OFFSETS: Topic(IDS[OFFSETS], 1), SHARE: Topic(IDS["t"], 1)}
    driven.give(TopicsFetched(driven.last(FetchTopics).id, ids))
    driven.respond_offsets(lambda at, kind: 0)
    retentions = {r.topics: r.id for r in driven.sent if isinstance(r, FetchTopicConfigs)}
    driven.give(Failed(retentions[OFFSETS,], "denied"))
    know_retention(driven, SHARE, share_retention_s * 1000)
    driven.report_ends()
    assert [request.topic for request in driven.sent if isinstance(request, Read)] == [OFFSETS, SHARE]
    driven.give(None, after_s=DAY_S)
    reading = [log.topic for log in driven.core.logs.both if list(log.reading())]
    assert reading == ([] if is_lost else [SHARE])


def test_a_retention_that_was_lowered_decides_which_partitions_are_read_anew():
    driven = Driven().read()
    driven.poll(*[commit("a", "t", 0, offset) for offset in range(5)])
    driven.run(round(TOMBSTONE_RETRY_S) + 2)
    know_retention(driven, OFFSETS, DAY_S * 1000)
    driven.give(None, after_s=AGAIN_S)
    assert list(driven.core.logs.offsets.reading())
    know_retention(driven, OFFSETS, 60_000)
    driven.give(None, after_s=10)
    assert not list(driven.core.logs.offsets.reading())
