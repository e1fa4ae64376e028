"""Which brokers are there: any of them is asked when one does not respond, and another cluster is named."""

import pytest

from koff.monitor.duties.offsets import FetchOffsets
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.requests import Failed, Topic
from tests.unit.monitor.driven import IDS, OFFSETS, Driven


def test_a_cluster_that_was_built_again_has_its_new_id_as_its_name():
    driven = Driven(cluster_id="before")

    def list_topics(cluster_id: str) -> str | None:
        request, topics = driven.last(FetchTopics), {OFFSETS: Topic(IDS[OFFSETS], 1)}
        driven.give(TopicsFetched(request.id, topics, cluster_id=cluster_id))
        driven.give(None, after_s=60.0)
        return driven.take_view().cluster

    assert list_topics("before") == "before"
    assert [event for event in driven.core.take_events() if "another cluster" in event.text] == []
    assert list_topics("after") == "after"
    (event,) = [event for event in driven.core.take_events() if "another cluster" in event.text]
    assert event.details == {"id": "after", "before": "before"}
    # What is saved is that of the new cluster.
    assert driven.core.logs.start.saved.cluster_id == "after"


@pytest.mark.parametrize("has_responded", [True, False])
def test_when_a_request_fails_any_broker_is_asked_at_once_unless_one_has_responded(has_responded):
    driven = Driven()
    driven.list_topics(**{OFFSETS: 1, "t": 1})
    sent, before = driven.last(FetchOffsets), driven.last(FetchTopics).id
    driven.second += 0.1
    if has_responded:
        driven.core.outbox.note_response(driven.now())
    else:
        driven.core.outbox._responded_s = float("-inf")
    driven.give(Failed(sent.id, "no response in time"))
    assert (driven.last(FetchTopics).id > before) != has_responded
