"""A topic is believed to be gone, or to be another, only when several responses agree over seconds."""

from __future__ import annotations

from koff.monitor.requests import Moment, Topic
from koff.monitor.topic_list import AGREEING, AGREEING_NEW, AGREEING_NEW_S, AGREEING_S, TopicList

ORDERS = Topic("id-of-orders", 4)


def listed(
    *responses: dict[str, Topic], every_s: float = 2.0, alive: frozenset[str] = frozenset()
) -> TopicList:
    topics = TopicList()
    for number, response in enumerate(responses):
        topics.note(response, Moment(number * every_s, 0), wanted={"orders"}, alive=alive)
    return topics


def test_a_new_topic_is_believed_at_once() -> None:
    assert listed({"orders": ORDERS}).partition_count("orders") == 4


def test_a_grown_topic_is_believed_at_once() -> None:
    assert listed({"orders": ORDERS}, {"orders": Topic("id-of-orders", 6)}).partition_count("orders") == 6


def test_nothing_is_known_of_a_wanted_topic_before_responses_agree_that_it_is_absent() -> None:
    for topics in (listed({}), listed(*[{}] * 9, every_s=AGREEING_NEW_S / 10)):
        assert topics.partition_count("orders") is None
        assert topics.is_doubtful


def test_a_wanted_topic_that_was_never_there_is_absent_once_responses_agree() -> None:
    topics = listed(*[{}] * AGREEING_NEW)
    assert topics.partition_count("orders") == 0
    assert topics.has_partition(("orders", 0)) is False
    assert not topics.is_doubtful


def test_one_response_without_a_topic_changes_nothing() -> None:
    topics = listed({"orders": ORDERS}, {}, {"orders": ORDERS})
    assert topics.has_partition(("orders", 3)) is True
    assert not topics.is_doubtful


def test_responses_that_contradict_each_other_change_nothing() -> None:
    topics = listed({"orders": ORDERS}, *[{}, {"orders": ORDERS}] * AGREEING)
    assert topics.topics["orders"] == ORDERS


def test_agreeing_responses_within_a_moment_change_nothing() -> None:
    responses = [{"orders": ORDERS}, *[{}] * (AGREEING + 1)]
    assert listed(*responses, every_s=AGREEING_S / 10).topics["orders"] == ORDERS


def test_a_topic_that_was_there_is_absent_only_after_more_responses_agree() -> None:
    responses = [{"orders": ORDERS}, *[{}] * AGREEING]
    assert listed(*responses[:-1]).topics["orders"] == ORDERS
    assert listed(*responses).topics["orders"] is None


def test_a_topic_created_again_is_believed_when_responses_agree() -> None:
    again = Topic("another-id", 2)
    topics = listed({"orders": ORDERS}, *[{"orders": again}] * 3)
    assert topics.topics["orders"] == again


def test_two_other_topics_in_turn_do_not_agree() -> None:
    one, other = Topic("one", 4), Topic("other", 4)
    topics = listed({"orders": ORDERS}, {"orders": one}, {"orders": other}, {"orders": one})
    assert topics.topics["orders"] == ORDERS


def test_a_topic_from_which_records_come_in_is_not_gone() -> None:
    topics = listed({"orders": ORDERS}, *[{}] * 10, alive=frozenset({"orders"}))
    assert topics.topics["orders"] == ORDERS


def test_an_absent_topic_that_nobody_refers_to_is_forgotten() -> None:
    topics = listed({}, {}, {})
    topics.forget_unwanted(wanted=set())
    assert topics.partition_count("orders") is None


def test_the_changed_topics_are_returned() -> None:
    topics = TopicList()
    assert topics.note({"orders": ORDERS}, Moment(0, 0), wanted=(), alive=()) == {"orders"}
    assert topics.note({"orders": ORDERS}, Moment(1, 0), wanted=(), alive=()) == set()


def test_a_doubt_ends_with_the_interest_in_its_topic() -> None:
    topics = TopicList()
    topics.note({}, Moment(0, 0), wanted={"orders"}, alive=())
    assert topics.is_doubtful
    topics.note({}, Moment(9, 0), wanted=(), alive=())
    assert not topics.is_doubtful


def listed_at(topics: TopicList, second: float) -> None:
    topics.note({"orders": ORDERS}, Moment(second, 0), wanted=(), alive=())


def test_the_pause_doubles_while_lists_do_not_name_an_id() -> None:
    topics, second, pauses = TopicList(), 0.0, []
    for _ in range(5):
        listed_at(topics, second)
        for sample in range(3):  # samples without a new list change nothing
            again_s = topics.list_again_s({"an id"}, 2.0, Moment(second + sample, 0))
        pauses.append(again_s - second)
        second = again_s
    assert pauses == [2, 4, 8, 16, 32]


def test_a_new_unknown_topic_is_looked_for_soon_although_another_never_gets_a_name() -> None:
    topics = TopicList()
    for second in range(5):
        listed_at(topics, second)
        topics.list_again_s({"an id"}, 2.0, Moment(second, 0))
    assert topics.list_again_s({"an id", "new"}, 2.0, Moment(5, 0)) == 4 + 2


def test_no_list_is_fetched_for_topics_that_are_known() -> None:
    topics = TopicList()
    listed_at(topics, 1)
    assert topics.list_again_s(set(), 2.0, Moment(1, 0)) == float("inf")


def test_an_unknown_topic_is_unanswered_until_a_later_list_shows_that_it_has_no_name() -> None:
    topics = TopicList()
    listed_at(topics, 1)
    assert topics.find_unanswered({"an id"}) == {"an id"}
    for second in (2, 5):
        topics.list_again_s({"an id"}, 2.0, Moment(second, 0))
        assert topics.find_unanswered({"an id"}) == {"an id"}
    listed_at(topics, 3)
    assert topics.find_unanswered({"an id", "another"}) == {"another"}
