"""The families of groups: lags of each partition, topic and group, and the status."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import NEVER
from koff.lag.verdict import Basis, Verdict
from koff.serve.metrics.family import Column
from koff.serve.metrics.labels import Mask
from koff.serve.metrics.numbers import SHARDS, Floats, ShardNumbers
from koff.view.causes import find_shard_causes
from koff.view.group_sums import find_longest_time_lags

_ROW, _TOPIC, _GROUP = ("group", "topic", "partition"), ("group", "topic"), ("group",)
_WITHHELD = "a lag in it is withheld, or may be missing"

# --- Each partition -------------------------------------------------------------------------------------


@SHARDS.family(_ROW, "offsets", "topk(10, koff_group_lag)", "it is unknown or withheld")
def koff_group_lag(numbers: ShardNumbers) -> Column:
    """End offset minus committed offset; 0 if the commit is newer than the sampled end offset."""
    return Column(numbers.lag, numbers.lags.known)


@SHARDS.family(_ROW, "offset", absent="the commit is not current", default=False)
def koff_group_committed_offset(numbers: ShardNumbers) -> Column:
    """Committed offset: the next that the group will read."""
    return Column(numbers.committed, numbers.committed >= 0)


@SHARDS.family(_ROW, "seconds", "topk(10, koff_group_lag_seconds)", "the lag or the age is unknown")
def koff_group_lag_seconds(numbers: ShardNumbers) -> Iterator[Column]:
    """Age of the oldest record that is not committed: exact, or estimated within 20 %."""
    if (lags := numbers.time_lags) is not None:
        yield Column(np.round(lags.seconds, 3), lags.known)


# --- Each topic -----------------------------------------------------------------------------------------


@SHARDS.family(_TOPIC, "offsets", "sum by (topic) (koff_group_topic_lag)", f"no lag is known; {_WITHHELD}")
def koff_group_topic_lag(numbers: ShardNumbers) -> Column:
    """Sum of the known lags of the group's partitions of the topic."""
    return sum_lags(numbers, numbers.of_topics, numbers.whole_topics)


@SHARDS.family(
    _TOPIC, "offsets per second", absent=f"the time of a newest commit is unknown; {_WITHHELD}", default=False
)
def koff_group_topic_consumed_per_second(numbers: ShardNumbers) -> Column:
    """Offsets that the group commits per second, from the last ten commits of each partition."""
    of_topics, size = numbers.of_topics, len(numbers.group_of_topic)
    rates = numbers.snapshot.summed_consume_rates(numbers.shard, of_topics, size)
    return Column(np.round(rates.per_s, 3), rates.known & numbers.whole_topics)


@SHARDS.family(
    _TOPIC,
    "offsets",
    "sum by (group) (rate(koff_group_topic_consumed_total[5m]))",
    "a commit in it is not current",
)
def koff_group_topic_consumed_total(numbers: ShardNumbers) -> Column:
    """Offsets by which the group's commits have advanced while koff ran; resets do not count."""
    numbers.consumed.add(numbers.committed)
    return Column(numbers.consumed.sums, numbers.committed_topics)


def sum_lags(numbers: ShardNumbers, index: NDArray[np.integer[Any]], whole: Mask) -> Column:
    """The known lags summed by `index`, where the sum is `whole`. A sum without a known lag is left out."""
    known, sums = numbers.lags.known, np.zeros(len(whole), np.int64)
    np.add.at(sums, index[known], numbers.lag[known])
    any_known = np.bincount(index[known], minlength=len(whole)) > 0
    return Column(sums, any_known & whole)


# --- Each group -----------------------------------------------------------------------------------------


@SHARDS.family(_GROUP, "offsets", "koff_group_total_lag > 10000", f"no lag is known; {_WITHHELD}")
def koff_group_total_lag(numbers: ShardNumbers) -> Column:
    """Sum of the known lags of the group's partitions."""
    return sum_lags(numbers, numbers.of_groups, numbers.whole_groups)


@SHARDS.family(
    _GROUP, "seconds", "koff_group_max_lag_seconds > 300", f"a lag has an unknown age; {_WITHHELD}"
)
def koff_group_max_lag_seconds(numbers: ShardNumbers) -> Column:
    """Longest lag in seconds of the group's partitions."""
    return _round_known(find_longest_time_lags(numbers.snapshot, numbers.shard))


@SHARDS.family(
    _GROUP,
    "seconds",
    "koff_group_catch_up_seconds > 3600",
    f"the group never catches up; a rate of a partition that is behind is unknown; {_WITHHELD}",
    default=False,
)
def koff_group_catch_up_seconds(numbers: ShardNumbers) -> Column:
    """Seconds until the slowest partition is back at its usual lag, if the rates stay as they are."""
    seconds, known = numbers.snapshot.group_catch_ups(numbers.shard)
    return Column(np.round(seconds, 3), known & (seconds != NEVER))


@SHARDS.family(
    _GROUP,
    "ratio",
    "koff_group_completeness_ratio < 1",
    "a commit is not current, or the group has none",
    default=False,
)
def koff_group_completeness_ratio(numbers: ShardNumbers) -> Column:
    """Share of the group's partitions with ten known commits: how well founded its rates and status are."""
    shares = numbers.snapshot.group_completeness(numbers.shard)
    return Column(np.round(shares, 3), ~np.isnan(shares))


@SHARDS.family(
    ("group", "status"),
    "1",
    'koff_group_status{status="ERR"} == 1',
    "koff may not have read all of the group",
)
def koff_group_status(numbers: ShardNumbers) -> Column:
    """1 for the verdict on the group: OK, WARN (late), ERR (it will not recover by itself) or UNKNOWN."""
    verdicts = numbers.snapshot.find_verdicts(numbers.shard).verdict
    names = [_STATUSES[verdict] for verdict in verdicts.tolist()]
    # A group that koff may not have read whole is shown only if it is WARN or ERR.
    return Column(1, numbers.current_groups | (verdicts >= Verdict.WARN), (names,))


@SHARDS.family(
    ("group", "source"),
    "seconds",
    "koff_group_max_lag_seconds > on(cluster, group) koff_group_allowance_seconds",
    "nobody has looked yet",
    default=False,
)
def koff_group_allowance_seconds(numbers: ShardNumbers) -> Column:
    """So late the group may be: its objective, or twice what is usual for it, two minutes at least
    (floor), half of a topic's retention at most.
    """
    found = numbers.snapshot.find_verdicts(numbers.shard)
    bases = [_BASES[basis] for basis in found.basis.tolist()]
    return _round_known(np.where(numbers.current_groups, found.allowance_s, np.nan), bases)


@SHARDS.family(_GROUP, "seconds", "count by (cluster) (koff_group_objective_seconds)", "it has none")
def koff_group_objective_seconds(numbers: ShardNumbers) -> Column:
    """The lag that the owner of the group accepts, by `objectives` in koff.yaml."""
    found = numbers.snapshot.find_verdicts(numbers.shard)
    is_objective = numbers.current_groups & (found.basis == Basis.OBJECTIVE)
    return _round_known(np.where(is_objective, found.allowance_s, np.nan))


@SHARDS.family(_GROUP, "seconds", "koff_group_incident_seconds > 3600", "it has none")
def koff_group_incident_seconds(numbers: ShardNumbers) -> Column:
    """For how long the group has had an incident that is not closed."""
    since_s = numbers.snapshot.find_verdicts(numbers.shard).since_s
    return _round_known((numbers.snapshot.now_ms or 0) / 1000 - since_s)


_STATUSES = [verdict.name for verdict in Verdict]
_BASES = [basis.name.lower() for basis in Basis]


def _round_known(seconds: Floats, *further: Sequence[str]) -> Column:
    """The numbers that are not NaN."""
    return Column(np.round(seconds, 3), ~np.isnan(seconds), further)


@SHARDS.family(
    ("group", "status"),
    "partitions",
    'koff_group_partitions_not_ok{status="ERR"}',
    f"there is none of that status; {_WITHHELD}",
    most=2,
)
def koff_group_partitions_not_ok(numbers: ShardNumbers) -> Iterator[Column]:
    """Partitions of the group that do not keep up, by status (WARN, ERR)."""
    verdicts = numbers.snapshot.row_verdicts(numbers.shard)
    is_whole = numbers.whole_groups[numbers.of_groups]
    for verdict in (Verdict.WARN, Verdict.ERR):
        yield from numbers.count_groups((verdicts == verdict) & is_whole, verdict.name)


@SHARDS.family(
    ("group", "cause"),
    "offsets",
    'koff_group_cause{cause="stuck_partition"} > 0',
    f"the group keeps up, or catches up; {_WITHHELD}",
    most=3,
)
def koff_group_cause(numbers: ShardNumbers) -> Iterator[Column]:
    """Offsets of the group's lag that a likely cause explains: the three causes that explain most."""
    sums = find_shard_causes(numbers.view, numbers.number).sums
    if sums:
        explained = np.array(list(sums.values()))
        rank = np.argsort(np.argsort(-explained, axis=0, kind="stable"), axis=0)
        for at, cause in enumerate(sums):
            yield Column(explained[at], (explained[at] > 0) & (rank[at] < 3), (cause.label,))
