"""The families of the members of groups: who is slow. They are off by default, for members come and go."""

from collections.abc import Iterator

import numpy as np

from koff.serve.metrics.family import Column
from koff.serve.metrics.group_lags import sum_lags
from koff.serve.metrics.numbers import SHARDS, ShardNumbers
from koff.view.group_sums import find_longest_by

_MEMBER = ("group", "member_id", "client_id", "client_host")
_ABSENT = "the member has no partition; share groups; a lag of it is withheld, or may be missing"


@SHARDS.family(
    _MEMBER, "offsets", "topk by (cluster, group) (1, koff_group_member_lag)", _ABSENT, default=False, most=0
)
def koff_group_member_lag(numbers: ShardNumbers) -> Iterator[Column]:
    """Sum of the known lags of the partitions that the member reads."""
    yield from _spread(numbers, sum_lags(numbers, numbers.members.of_rows, numbers.members.whole))


@SHARDS.family(
    _MEMBER,
    "seconds",
    "koff_group_member_lag_seconds > 300",
    f"a lag has an unknown age; {_ABSENT}",
    default=False,
    most=0,
)
def koff_group_member_lag_seconds(numbers: ShardNumbers) -> Iterator[Column]:
    """Longest lag in seconds of the partitions that the member reads."""
    members = numbers.members
    seconds = find_longest_by(members.of_rows, members.whole, numbers.snapshot, numbers.shard)
    yield from _spread(numbers, Column(seconds, ~np.isnan(seconds)))


@SHARDS.family(
    _MEMBER,
    "offsets per second",
    absent=f"the time of a newest commit is unknown; {_ABSENT}",
    default=False,
    most=0,
)
def koff_group_member_consumed_per_second(numbers: ShardNumbers) -> Iterator[Column]:
    """Offsets that the member commits per second, from the last ten commits of each of its partitions."""
    members = numbers.members
    rates = numbers.snapshot.summed_consume_rates(numbers.shard, members.of_rows, len(members.whole))
    yield from _spread(numbers, Column(np.round(rates.per_s, 3), rates.known & members.whole))


def _spread(numbers: ShardNumbers, column: Column) -> Iterator[Column]:
    """The column of members as columns of groups: of the first member of each, of the second, and so on."""
    members, size, of_members = numbers.members, len(numbers.groups), column.numbers
    assert not isinstance(of_members, int)
    for rank in range(int(members.rank.max(initial=-1)) + 1):
        chosen = np.flatnonzero(members.rank == rank)
        place = np.zeros(size, np.int64)
        place[members.group[chosen]] = chosen
        known = np.zeros(size, np.bool_)
        known[members.group[chosen]] = column.known[chosen]
        named = [members.members[number] for number in place.tolist()]
        further = ([m.id for m in named], [m.client_id for m in named], [m.client_host for m in named])
        yield Column(of_members[place], known, further)
