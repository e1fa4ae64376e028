"""Groups of the demo at size: how many partitions each reads, and what it commits."""

from koff.kafkatest.many_groups import NumberedGroup, list_topics, share_out


def test_groups_read_as_many_partitions_as_are_wanted_in_all():
    groups = share_out(7, 30)
    assert [group.partitions for group in groups] == [5, 5, 4, 4, 4, 4, 4]
    assert len({group.name for group in groups}) == 7
    assert [group.partitions for group in share_out(3, 1)] == [1, 1, 1]


def test_each_topic_has_the_partitions_of_its_largest_group():
    groups = share_out(45, 100)
    topics = list_topics(groups)
    assert len(topics) == 20
    assert all(topics[group.topic] >= group.partitions for group in groups)
    assert set(topics.values()) == {3, 2}


def test_a_few_of_each_hundred_groups_fall_behind_and_one_of_them_stands():
    committed = [NumberedGroup(number, 1).choose_offset(1000, 1200) for number in range(200)]
    assert committed[:4] == [1000, 1100, 1180, 1200]
    assert committed[:100] == committed[100:]
    assert set(committed[3:100]) == {1200}
