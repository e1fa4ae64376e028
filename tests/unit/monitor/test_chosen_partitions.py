"""Which partitions of the offsets topic are read, if not all."""

from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.followed_log import FollowedLog
from koff.monitor.requests import Topic
from koff.records.placement import group_partition

TOPIC = "__consumer_offsets"


def list_chosen(chosen: ChosenPartitions, count: int) -> set[int]:
    return {partition for partition in range(count) if chosen.includes(partition, count)}


def test_shards_have_each_partition_once():
    for count, partitions in ((1, 5), (3, 50), (7, 4)):
        shards = [list_chosen(ChosenPartitions(number, count), partitions) for number in range(count)]
        assert sum(map(len, shards)) == partitions
        assert set().union(*shards) == set(range(partitions))


def test_a_group_has_the_partition_of_its_name():
    for name in ("billing", "g", "\u00e4"):
        assert list_chosen(ChosenPartitions(group=name), 50) == {group_partition(name, 50)}
    own = group_partition("g", 50)
    assert list_chosen(ChosenPartitions(own % 3, 3, "g"), 50) == {own}
    assert list_chosen(ChosenPartitions((own + 1) % 3, 3, "g"), 50) == set()


def test_a_group_that_will_move_when_the_topic_grows_is_read_in_both_partitions():
    name = next(name for name in map(str, range(100)) if group_partition(name, 3) != group_partition(name, 5))
    log = FollowedLog(TOPIC, lambda *_: None, ChosenPartitions(group=name))
    log.note_topic(Topic("id", 3))
    assert set(log.partitions) == {group_partition(name, 3)}
    log.note_topic(Topic("id", 5))
    assert set(log.partitions) == {group_partition(name, 3), group_partition(name, 5)}
