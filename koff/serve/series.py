"""The series of each family that a snapshot has: labels and numbers. An unknown number has no series."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from koff.lag import NEVER, UNKNOWN, Lags, Reason, Status, TimeLags
from koff.serve.growth import Growth
from koff.serve.labels import PartitionLabels, ShardLabels
from koff.tracker import ShardSnapshot, Snapshot

Mask = NDArray[np.bool_]
Series = tuple[list[str], list[int] | list[float]]
"""The labels of each series, and the number of each series."""
_STATUSES = {int(status): status.name for status in Status}


class ShardNumbers:
    """The numbers of one shard at one scrape. What several families need is computed once, if at all."""

    def __init__(
        self, labels: ShardLabels, shard: ShardSnapshot, snapshot: Snapshot, consumed: Growth
    ) -> None:
        self.labels, self.shard, self.snapshot, self.consumed = labels, shard, snapshot, consumed

    @cached_property
    def lags(self) -> Lags:
        """The lag of each row."""
        return self.snapshot.lags(self.shard)

    @cached_property
    def lag(self) -> NDArray[np.int64]:
        """The published lag of each row."""
        return self.lags.published

    @cached_property
    def committed(self) -> NDArray[np.int64]:
        """The committed offset of each row."""
        return self.snapshot.committed(self.shard)

    @cached_property
    def time_lags(self) -> TimeLags | None:
        """The lag in seconds of each row."""
        return self.snapshot.time_lags(self.shard)

    @cached_property
    def current_groups(self) -> Mask:
        """The groups whose members and state are current."""
        return self.shard.current_groups()

    @cached_property
    def whole_groups(self) -> Mask:
        """The groups that have no row that is withheld or may be missing."""
        return ~self.snapshot.withheld_groups(self.shard)

    @cached_property
    def whole_topics(self) -> Mask:
        """The same for each topic of a group."""
        whole = self.shard.summable_groups()[self.labels.group_of_topic]
        whole[self.labels.topic_of_row[self.shard.is_withheld()]] = False
        return whole

    def count_rows(self, mask: Mask) -> NDArray[np.int64]:
        """How many rows of each group have the mask set."""
        return np.bincount(self.shard.group[mask], minlength=len(self.labels.groups))


def select_series(labels: list[str], column: NDArray[np.int64] | NDArray[np.float64], mask: Mask) -> Series:
    """The series where `mask` is true."""
    if mask.all():  # the usual case, and the only one without a copy of the labels
        return labels, column.tolist()
    return list(compress(labels, mask.tolist())), column[mask].tolist()


def add_label(labels: list[str], name: str, values: list[str]) -> list[str]:
    """The labels with one more. The values need no escape."""
    # Labels end in "} ": without these two characters, another label can follow.
    return [f'{label[:-2]},{name}="{value}"}} ' for label, value in zip(labels, values, strict=True)]


# --- Rows -----------------------------------------------------------------------------------------------


def _lag(numbers: ShardNumbers) -> Series:
    return select_series(numbers.labels.rows, numbers.lag, numbers.lags.known)


def _committed(numbers: ShardNumbers) -> Series:
    return select_series(numbers.labels.rows, numbers.committed, numbers.committed >= 0)


def _time_lag(numbers: ShardNumbers) -> Series:
    time_lags = numbers.time_lags
    if time_lags is None:
        return [], []
    return select_series(numbers.labels.rows, np.round(time_lags.seconds, 3), time_lags.known)


# --- The topics of groups -------------------------------------------------------------------------------


def _topic_lag(numbers: ShardNumbers) -> Series:
    labels = numbers.labels
    return _sum_lags(labels.topics, labels.topic_of_row, numbers.whole_topics, numbers)


def _consumed_per_second(numbers: ShardNumbers) -> Series:
    """For each topic of a group, the sum of the known rates of its partitions."""
    labels, snapshot = numbers.labels, numbers.snapshot
    rates = snapshot.summed_consume_rates(numbers.shard, labels.topic_of_row, len(labels.topics))
    return select_series(labels.topics, np.round(rates.per_s, 3), rates.known & numbers.whole_topics)


def _consumed_total(numbers: ShardNumbers) -> Series:
    labels, shard = numbers.labels, numbers.shard
    numbers.consumed.add(numbers.committed)
    known = np.bincount(labels.topic_of_row[numbers.committed >= 0], minlength=len(labels.topics)) > 0
    known &= shard.summable_groups()[labels.group_of_topic]
    known[labels.topic_of_row[shard.is_withheld(Reason.COMMITS_NOT_CURRENT)]] = False
    return select_series(labels.topics, numbers.consumed.sums, known)


# --- Groups ---------------------------------------------------------------------------------------------


def _total_lag(numbers: ShardNumbers) -> Series:
    return _sum_lags(numbers.labels.groups, numbers.shard.group, numbers.whole_groups, numbers)


def _longest_time_lag(numbers: ShardNumbers) -> Series:
    time_lags = numbers.time_lags
    if time_lags is None:
        return [], []
    known, longest = time_lags.known, np.full(len(numbers.labels.groups), -1.0)  # -1: none
    group = numbers.shard.group
    np.maximum.at(longest, group[known], np.round(time_lags.seconds[known], 3))
    # A lag without a known age may be the oldest: a partial maximum looks like a recovery.
    longest[group[numbers.lags.known & ~known]] = -1.0
    return select_series(numbers.labels.groups, longest, (longest >= 0) & numbers.whole_groups)


def _exact_time_lags(numbers: ShardNumbers) -> Series:
    if numbers.time_lags is None or numbers.time_lags.exact is None:
        return [], []
    counts = numbers.count_rows(numbers.time_lags.exact)
    return select_series(numbers.labels.groups, counts, (counts > 0) & numbers.whole_groups)


def _catch_up(numbers: ShardNumbers) -> Series:
    seconds, known = numbers.snapshot.group_catch_ups(numbers.shard)
    return select_series(numbers.labels.groups, np.round(seconds, 3), known & (seconds != NEVER))


def _completeness(numbers: ShardNumbers) -> Series:
    shares = numbers.snapshot.group_completeness(numbers.shard)
    return select_series(numbers.labels.groups, np.round(shares, 3), ~np.isnan(shares))


def _status(numbers: ShardNumbers) -> Series:
    statuses = numbers.snapshot.group_statuses(numbers.shard).tolist()
    labels = add_label(numbers.labels.groups, "status", [_STATUSES[status] for status in statuses])
    return select_series(labels, np.ones(len(labels), np.int64), numbers.whole_groups)


def _state(numbers: ShardNumbers) -> Series:
    labels = add_label(numbers.labels.groups, "state", [group.state for group in numbers.shard.groups])
    return select_series(labels, np.ones(len(labels), np.int64), numbers.current_groups)


def _members(numbers: ShardNumbers) -> Series:
    counts = np.array([group.member_count for group in numbers.shard.groups], np.int64)
    return select_series(numbers.labels.groups, counts, numbers.current_groups)


def _commits_total(numbers: ShardNumbers) -> Series:
    counts = numbers.shard.commit_counts
    return select_series(numbers.labels.groups, counts, (counts > 0) & numbers.current_groups)


SHARD_SERIES: dict[str, Callable[[ShardNumbers], Series]] = {
    "koff_group_lag": _lag,
    "koff_group_committed_offset": _committed,
    "koff_group_lag_seconds": _time_lag,
    "koff_group_topic_lag": _topic_lag,
    "koff_group_topic_consumed_per_second": _consumed_per_second,
    "koff_group_topic_consumed_total": _consumed_total,
    "koff_group_total_lag": _total_lag,
    "koff_group_max_lag_seconds": _longest_time_lag,
    "koff_group_exact_time_lags": _exact_time_lags,
    "koff_group_catch_up_seconds": _catch_up,
    "koff_group_completeness_ratio": _completeness,
    "koff_group_status": _status,
    "koff_group_state": _state,
    "koff_group_members": _members,
    "koff_group_commits_total": _commits_total,
}
"""By family, the series of one shard."""


def _sum_lags(
    labels: list[str], index: NDArray[np.int64] | NDArray[np.int32], whole: Mask, numbers: ShardNumbers
) -> Series:
    """The known lags summed by `index`, where the sum is `whole`. A sum without a known lag is left out."""
    known, sums = numbers.lags.known, np.zeros(len(labels), np.int64)
    np.add.at(sums, index[known], numbers.lag[known])
    any_known = np.bincount(index[known], minlength=len(labels)) > 0
    return select_series(labels, sums, any_known & whole)


# --- Topics and their partitions ------------------------------------------------------------------------


class PartitionNumbers:
    """The numbers of the topic partitions at one scrape.

    A free row (partition -1) has no offsets, so it makes no series.
    """

    def __init__(self, labels: PartitionLabels, snapshot: Snapshot, produced: Growth) -> None:
        self.labels, self.partitions, self.produced = labels, snapshot.partitions, produced
        self.end = np.where(snapshot.withheld_ends(), UNKNOWN, snapshot.partitions.end)


def _end_offset(numbers: PartitionNumbers) -> Series:
    return select_series(numbers.labels.partitions, numbers.end, numbers.end >= 0)


def _start_offset(numbers: PartitionNumbers) -> Series:
    start = numbers.partitions.start
    return select_series(numbers.labels.partitions, start, (start >= 0) & (numbers.end >= 0))


def _produced_per_second(numbers: PartitionNumbers) -> Series:
    rates = numbers.partitions.produce
    if rates is None:
        return [], []
    return select_series(
        numbers.labels.partitions, np.round(rates.per_s, 3), rates.known & (numbers.end >= 0)
    )


def _messages_total(numbers: PartitionNumbers) -> Series:
    labels, gone = numbers.labels, numbers.partitions.gone
    numbers.produced.add(numbers.end)
    size, is_used = len(labels.topics), np.array(numbers.partitions.partition, np.int64) >= 0
    known = np.bincount(labels.topic_of_partition[numbers.end >= 0], minlength=size) > 0
    known[labels.topic_of_partition[(numbers.end < 0) & ~gone & is_used]] = False
    return select_series(labels.topics, numbers.produced.sums, known)


PARTITION_SERIES: dict[str, Callable[[PartitionNumbers], Series]] = {
    "koff_topic_messages_total": _messages_total,
    "koff_partition_end_offset": _end_offset,
    "koff_partition_start_offset": _start_offset,
    "koff_partition_produced_per_second": _produced_per_second,
}
"""By family, the series of all topic partitions."""
