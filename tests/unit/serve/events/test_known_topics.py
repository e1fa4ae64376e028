"""Events of topics that were deleted, or created again."""

import pytest

from koff.tracker.topic_ids import fold_topic_id
from tests.unit.serve.events.watched import NO_VIEW


def test_a_topic_that_is_deleted_with_its_commits(watched):
    watched.commit("g", 5, topic="u")
    watched.sample(5, topic="u")
    watched.look()
    watched.commit("g", None, topic="u")  # Kafka deletes the commits at once
    assert watched.look() == []
    watched.topics = ("t",)
    watched.wait(20)
    assert watched.look() == []  # one list may be old
    watched.wait(20)
    (event,) = watched.look()
    assert (event.kind, event.group, event.topic) == ("topic_deleted", "g", "u")
    watched.wait(20)
    assert watched.look() == []


def test_a_topic_that_one_list_does_not_have(watched):
    watched.topics = ("u",)
    assert watched.look() == []
    watched.topics = ("t", "u")
    assert watched.look() == []
    watched.topics = ("u",)
    assert watched.look() == []


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_topic_that_is_created_again(watched, is_reached):
    ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"]
    assert fold_topic_id(ids[0]) != fold_topic_id(ids[1])
    for number, topic_id in enumerate(ids):
        watched.tracker.identify_topics({"t": topic_id})
        if not is_reached:
            watched.changes.compare(NO_VIEW, watched.now_ms)
        kinds = [kind for kind, _ in watched.find_kinds() if kind != "recovered"]
        assert kinds == ["topic_recreated"] * number


@pytest.mark.parametrize("is_blind_between", [False, True])
def test_a_commit_to_a_topic_that_was_created_again_has_not_gone_back(watched, is_blind_between):
    watched.tracker.identify_topics({"t": "AAAAAAAAAAAAAAAAAAAAAQ"})
    watched.look()
    watched.tracker.identify_topics({"t": "AAAAAAAAAAAAAAAAAAAAAg"})
    kinds = []
    if is_blind_between:
        kinds += watched.find_kinds(blind=True)
    watched.commit("g", None)  # Kafka deletes the commits with the topic
    watched.commit("g", 3)
    kinds += watched.find_kinds()
    kinds.remove(("topic_recreated", "g"))
    assert ("offsets_reset", "g") not in kinds
    watched.commit("g", 2)
    assert ("offsets_reset", "g") in watched.find_kinds()


def test_a_topic_that_may_not_be_described_any_more_was_not_deleted(watched):
    watched.topics, watched.denied = ("u",), frozenset({"t"})
    for _ in range(5):
        assert watched.look() == []
    watched.denied = frozenset()
    kinds = [kind for _ in range(3) for kind in watched.find_kinds()]
    assert kinds == [("topic_deleted", "g")]  # koff may describe it again, and it is not there
