"""The families of groups: partitions without a lag, retention, and commits."""

from collections.abc import Iterator

import numpy as np

from koff.lag import Reason
from koff.serve.metrics.family import Column
from koff.serve.metrics.numbers import SHARDS, ShardNumbers

_GROUP = ("group",)
_WITHHELD = "a lag in it is withheld, or may be missing"
_NO_MARGIN = f"no lag is known; a log start offset is unknown; {_WITHHELD}"
_NOT_CURRENT = "what koff knows of the group is not current"
_REASONS = (
    Reason.COMMITS_NOT_CURRENT,
    Reason.END_NOT_CURRENT,
    Reason.TOPIC_GONE,
    Reason.TOPIC_RECREATED,
    Reason.NO_COMMIT,
    Reason.END_UNKNOWN,
)


@SHARDS.family(
    ("group", "reason"),
    "partitions",
    'koff_group_partitions_without_lag{reason="topic_recreated"}',
    "there is none of that reason",
    default=False,
    most=len(_REASONS),
)
def koff_group_partitions_without_lag(numbers: ShardNumbers) -> Iterator[Column]:
    """Partitions of the group's commits whose lag is unknown or withheld, by reason."""
    left = numbers.reasons
    for reason in _REASONS:
        found = (left & np.uint8(reason)) != 0
        yield from numbers.count_groups(found, reason.names[0])
        left = np.where(found, np.uint8(0), left)  # a row with several reasons counts as one with the first


@SHARDS.family(_GROUP, "partitions", "koff_group_partitions_ahead_of_log > 0", _WITHHELD, default=False)
def koff_group_partitions_ahead_of_log(numbers: ShardNumbers) -> Column:
    """Partitions whose committed offset is beyond the end of the log; their lag counts as 0."""
    ahead = (numbers.reasons & np.uint8(Reason.AHEAD_OF_LOG)) != 0
    return Column(numbers.count_rows(ahead), numbers.whole_groups)


@SHARDS.family(_GROUP, "offsets", "koff_group_lost_records > 0", _NO_MARGIN)
def koff_group_lost_records(numbers: ShardNumbers) -> Column:
    """Offsets that left the log (by retention) before the group committed them."""
    lost = (numbers.start >= 0) & (numbers.start > numbers.shard.committed)
    sums = np.zeros(len(numbers.groups), np.int64)
    np.add.at(sums, numbers.of_groups[lost], (numbers.start - numbers.shard.committed)[lost])
    return Column(sums, numbers.dated_groups)


@SHARDS.family(
    _GROUP,
    "offsets",
    "koff_group_retention_margin_records < 1000",
    f"no partition has a lag; {_NO_MARGIN}",
    default=False,
)
def koff_group_retention_margin_records(numbers: ShardNumbers) -> Column:
    """Offsets that the log start may advance until records are lost: the least of partitions with lag."""
    margins = numbers.margins[0]
    known = numbers.dated_groups & np.isfinite(margins)
    return Column(np.where(known, margins, 0).astype(np.int64), known)


@SHARDS.family(_GROUP, "ratio", "koff_group_retention_margin_ratio < 0.1", _NO_MARGIN)
def koff_group_retention_margin_ratio(numbers: ShardNumbers) -> Column:
    """The same as a share of the log: 0 if records are lost, 1 without a lag or without any deletion."""
    return Column(np.round(numbers.margins[1], 4), numbers.dated_groups)


@SHARDS.family(
    _GROUP,
    "1",
    "koff_group_commits_held_back and on (cluster, group) koff_group_total_lag > 0",
    "there is none",
)
def koff_group_commits_held_back(numbers: ShardNumbers) -> Column:
    """1 if an open transaction in the group's partition of the offsets topic may hold back its commits."""
    is_held = numbers.number in numbers.view.stats.held_back_partitions
    return Column(1, np.full(len(numbers.groups), is_held))


@SHARDS.family(_GROUP, "commits", "rate(koff_group_commits_total[5m])", f"koff has read none; {_NOT_CURRENT}")
def koff_group_commits_total(numbers: ShardNumbers) -> Column:
    """Commits of the group that koff read from the log as they were made, since koff started."""
    counts = numbers.shard.commit_counts
    return Column(counts, (counts > 0) & numbers.current_groups)
