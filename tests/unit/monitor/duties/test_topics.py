"""A topic is believed to be gone, or to be another, only when several responses agree over seconds."""

from koff.monitor.duties.topics import TopicList
from koff.monitor.moment import Moment
from koff.monitor.requests import Topic

ORDERS = Topic("id-of-orders", 4)


def listed(
    *responses: dict[str, Topic], every_s: float = 2.0, alive: frozenset[str] = frozenset()
) -> TopicList:
    topics = TopicList()
    for number, response in enumerate(responses):
        topics.note(response, Moment(number * every_s, 0), wanted={"orders"}, alive=alive)
    return topics


def test_an_absent_topic_that_nobody_refers_to_is_forgotten():
    topics = listed({}, {}, {})
    topics.forget_unwanted(wanted=set())
    assert topics.partition_count("orders") is None


def listed_at(topics: TopicList, second: float) -> None:
    topics.note({"orders": ORDERS}, Moment(second, 0), wanted=(), alive=())


def test_the_pause_doubles_while_lists_do_not_name_an_id():
    topics, second, pauses = TopicList(), 0.0, []
    for _ in range(5):
        listed_at(topics, second)
        for sample in range(3):  # samples without a new list change nothing
            again_s = topics.list_again_s({"an id"}, 2.0, Moment(second + sample, 0))
        pauses.append(again_s - second)
        second = again_s
    assert pauses == [2, 4, 8, 16, 32]


def test_a_new_unknown_topic_is_looked_for_soon_although_another_never_gets_a_name():
    topics = TopicList()
    for second in range(5):
        listed_at(topics, second)
        topics.list_again_s({"an id"}, 2.0, Moment(second, 0))
    assert topics.list_again_s({"an id", "new"}, 2.0, Moment(5, 0)) == 4 + 2


def test_an_unknown_topic_is_unanswered_until_a_later_list_shows_that_it_has_no_name():
    topics = TopicList()
    listed_at(topics, 1)
    assert topics.find_unlisted({"an id"}) == {"an id"}
    for second in (2, 5):
        topics.list_again_s({"an id"}, 2.0, Moment(second, 0))
        assert topics.find_unlisted({"an id"}) == {"an id"}
    listed_at(topics, 3)
    assert topics.find_unlisted({"an id", "another"}) == {"another"}
