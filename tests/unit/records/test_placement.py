"""Which partition a group's records are in is what Kafka says it is."""

import random

import pytest

from koff.records.placement import group_partition, hash_groups, java_hash
from tests.unit.records.decoding import golden


def test_groups_are_where_the_broker_put_them():
    cases = [case for case in golden("golden") if case["topic"] == "__consumer_offsets"]
    assert len(cases) == 244
    for case in cases:
        assert group_partition(case["group"], 50) == case["partition"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 3105),
        ("polygenelubricants", -(2**31)),
        ("\u00e9", 0xE9),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_javas(text, expected):
    assert java_hash(text) == expected


def test_the_hash_without_an_absolute_value_counts_as_0():
    assert group_partition("polygenelubricants", 50) == 0


@pytest.mark.parametrize("count", [0, 1, 16, 17, 500])
def test_many_groups_are_where_each_of_them_is(count):
    rng = random.Random(count)
    alphabet = "\0\1aZ\x7f\u00e9\uffff\ud800\U0001f600"
    odd = ["", "\0", "a", "a\0", "\0a", "polygenelubricants", "x" * 256, "y" * 257, "payments"]
    groups = [rng.choice([*odd, "".join(rng.choices(alphabet, k=rng.randrange(9)))]) for _ in range(count)]
    groups[:9] = odd[:count]
    for partitions in (1, 7, 50):
        found = (hash_groups(groups) % partitions).tolist()
        assert found == [group_partition(group, partitions) for group in groups]
