"""The series of each family that a snapshot has: labels and numbers. An unknown number has no series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag import NEVER, UNKNOWN, Lags, Reason, TimeLags
from koff.lag.verdict import Basis, Verdict
from koff.serve.labels import Labels, Mask, PartitionLabels, ShardLabels, escape_label
from koff.tracker import Group, Member
from koff.view.causes import find_shard_causes
from koff.view.cluster_view import ClusterFacts, ClusterView, TopicFacts
from koff.view.growth import Growth

Series = tuple[list[str], list[str]]
"""The labels of each series, and the number of each series."""
_STATUSES = [verdict.name for verdict in Verdict]
_BASES = [basis.name.lower() for basis in Basis]


@dataclass(frozen=True, slots=True)
class KeptShard:
    """What is kept of a shard from one scrape to the next: the labels, and counters."""

    labels: ShardLabels
    consumed: Growth
    epochs: Growth

    @classmethod
    def create(cls, labels: ShardLabels, before: Self | None) -> Self:
        """Counters for these labels, which continue those from before."""
        groups = labels.groups.texts
        kept = cls(
            labels,
            Growth(labels.rows.texts, labels.topics.texts, labels.topic_of_row),
            Growth(groups, groups, np.arange(len(groups))),
        )
        if before is not None:
            kept.consumed.carry_over(before.consumed)
            kept.epochs.carry_over(before.epochs)
        return kept


class ShardNumbers:
    """The numbers of one shard at one scrape. What several families need is computed once, if at all."""

    def __init__(self, kept: KeptShard, number: int, view: ClusterView) -> None:
        self.labels, self.consumed, self.epochs = kept.labels, kept.consumed, kept.epochs
        self.number, self.view, self.snapshot = number, view, view.snapshot
        self.shard = view.snapshot.shards[number]

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
    def reasons(self) -> NDArray[np.uint8]:
        """The `Reason` bits of each row."""
        return self.snapshot.reasons(self.shard)

    @cached_property
    def start(self) -> NDArray[np.int64]:
        """The log start offset of each row; UNKNOWN too where the lag of the row is."""
        return np.where(self.lags.known, self.snapshot.partitions.start[self.shard.partition], UNKNOWN)

    @cached_property
    def dated_groups(self) -> Mask:
        """The whole groups with a known lag, and with a log start offset wherever they have a lag."""
        missing = self.lags.known & ((self.start < 0) | (self.shard.committed < 0))
        counts = self.count_rows(self.lags.known), self.count_rows(missing)
        known: Mask = (counts[0] > 0) & (counts[1] == 0) & self.whole_groups
        return known

    @cached_property
    def margins(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each group, the least retention margin in offsets, and as a ratio of the log.

        Of partitions with a lag; infinite, and 1, without one. The ratio leaves out logs that start at 0: no
        record was deleted there yet, so the log start is no sign of how near deletion is.
        """
        shard, groups = self.shard, len(self.labels.groups)
        behind = self.lags.known & (self.lag > 0) & (self.start >= 0)
        margin = np.maximum(shard.committed - self.start, 0)[behind]
        log = (self.snapshot.partitions.end[shard.partition] - self.start)[behind]
        margins, ratios = np.full(groups, np.inf), np.ones(groups)
        np.minimum.at(margins, shard.group[behind], margin)
        # A log without records is one whose records all left before they were committed.
        shares = np.where(log > 0, margin / np.maximum(log, 1), 0.0)
        np.minimum.at(ratios, shard.group[behind], np.where(self.start[behind] > 0, shares, 1.0))
        return margins, ratios

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

    @cached_property
    def committed_topics(self) -> Mask:
        """The topics of groups that have a commit, and of which every commit is current."""
        labels, shard = self.labels, self.shard
        known = np.bincount(labels.topic_of_row[self.committed >= 0], minlength=len(labels.topics)) > 0
        known &= shard.summable_groups()[labels.group_of_topic]
        known[labels.topic_of_row[shard.is_withheld(Reason.COMMITS_NOT_CURRENT)]] = False
        return known

    def find_coordinator(self) -> str:
        """The id of the broker that coordinates the groups; "" if it is not known."""
        coordinators = self.view.facts.coordinators
        leader = coordinators[self.number] if 0 <= self.number < len(coordinators) else -1
        return str(leader) if leader >= 0 else ""

    def count_rows(self, mask: Mask) -> NDArray[np.int64]:
        """How many rows of each group have the mask set."""
        return np.bincount(self.shard.group[mask], minlength=len(self.labels.groups))


class ClusterNumbers(NamedTuple):
    """The numbers of one cluster at one scrape. `listed` are the labels of the topics that it lists."""

    view: ClusterView
    shards: list[ShardNumbers]
    partitions: PartitionNumbers
    listed: Labels


def select_series(labels: Labels, column: NDArray[np.int64] | NDArray[np.float64], mask: Mask) -> Series:
    """The series where `mask` is true, of those that are kept."""
    if labels.kept is not None:
        known = np.count_nonzero(mask)
        mask = mask & labels.kept.mask
        labels.kept.left_out += int(known - np.count_nonzero(mask))
    if mask.all():  # the usual case, and the only one without a copy of the labels
        return labels.texts, _format_numbers(column)
    return list(compress(labels.texts, mask.tolist())), _format_numbers(column[mask])


def _format_numbers(column: NDArray[np.int64] | NDArray[np.float64]) -> list[str]:
    # Most groups have caught up most of the time: zeros, which need not be formatted.
    texts = ["0.0" if column.dtype == np.float64 else "0"] * len(column)
    others = np.flatnonzero(column)
    for i, number in zip(others.tolist(), column[others].tolist(), strict=True):
        texts[i] = repr(number)
    return texts


def add_label(labels: Labels, name: str, values: list[str]) -> Labels:
    """The labels with one more. The values need no escape."""
    # Texts end in "} ": without these two characters, another label can follow.
    texts = [f'{text[:-2]},{name}="{value}"}} ' for text, value in zip(labels.texts, values, strict=True)]
    return replace(labels, texts=texts)


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
    numbers.consumed.add(numbers.committed)
    return select_series(numbers.labels.topics, numbers.consumed.sums, numbers.committed_topics)


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


def _catch_up(numbers: ShardNumbers) -> Series:
    seconds, known = numbers.snapshot.group_catch_ups(numbers.shard)
    return select_series(numbers.labels.groups, np.round(seconds, 3), known & (seconds != NEVER))


def _completeness(numbers: ShardNumbers) -> Series:
    shares = numbers.snapshot.group_completeness(numbers.shard)
    return select_series(numbers.labels.groups, np.round(shares, 3), ~np.isnan(shares))


def _status(numbers: ShardNumbers) -> Series:
    """The verdicts. A group that koff may not have read whole is shown only if it is WARN or ERR."""
    verdicts = numbers.snapshot.find_verdicts(numbers.shard).verdict
    labels = add_label(numbers.labels.groups, "status", [_STATUSES[verdict] for verdict in verdicts.tolist()])
    shown = numbers.current_groups | (verdicts >= Verdict.WARN)
    return select_series(labels, np.ones(len(labels), np.int64), shown)


def _allowance(numbers: ShardNumbers) -> Series:
    found = numbers.snapshot.find_verdicts(numbers.shard)
    labels = add_label(numbers.labels.groups, "source", [_BASES[basis] for basis in found.basis.tolist()])
    return _select_known(labels, np.where(numbers.current_groups, found.allowance_s, np.nan))


def _incident_age(numbers: ShardNumbers) -> Series:
    since_s = numbers.snapshot.find_verdicts(numbers.shard).since_s
    return _select_known(numbers.labels.groups, (numbers.snapshot.now_ms or 0) / 1000 - since_s)


def _select_known(labels: Labels, seconds: NDArray[np.float64]) -> Series:
    known = ~np.isnan(seconds)
    shown: NDArray[np.float64] = np.where(known, seconds, 0.0).round(3).astype(np.float64)
    return select_series(labels, shown, known)


def _state(numbers: ShardNumbers) -> Series:
    labels = add_label(numbers.labels.groups, "state", [group.state for group in numbers.shard.groups])
    return select_series(labels, np.ones(len(labels), np.int64), numbers.current_groups)


def _members(numbers: ShardNumbers) -> Series:
    counts = np.array([group.member_count for group in numbers.shard.groups], np.int64)
    return select_series(numbers.labels.groups, counts, numbers.current_groups)


def _members_without_assignment(numbers: ShardNumbers) -> Series:
    groups = numbers.shard.groups
    counts = np.array([_count_unassigned(group) for group in groups], np.int64)
    return select_series(numbers.labels.groups, counts, (counts >= 0) & numbers.current_groups)


def _count_unassigned(group: Group) -> int:
    """How many members that are present have nothing assigned; -1 if koff does not decode assignments."""
    if group.type not in _ASSIGNED_TYPES or (group.type == "classic" and group.protocol_type != "consumer"):
        return -1
    return sum(member.present and not _has_partitions(member) for member in group.members)


def _has_partitions(member: Member) -> bool:
    parts = [member.assigned]
    if member.tasks is not None:
        parts += [member.tasks.active, member.tasks.standby, member.tasks.warmup]
    return any(partitions for part in parts for partitions in part.values())


_ASSIGNED_TYPES = frozenset({"classic", "consumer", "share", "streams"})


def _info(numbers: ShardNumbers) -> Series:
    coordinator = numbers.find_coordinator()
    texts = [
        f'{text[:-2]},type="{group.type}",protocol_type="{escape_label(group.protocol_type)}",'
        f'protocol="{escape_label(group.protocol)}",coordinator="{coordinator}"}} '
        for text, group in zip(numbers.labels.groups.texts, numbers.shard.groups, strict=True)
    ]
    labels = replace(numbers.labels.groups, texts=texts)
    return select_series(labels, np.ones(len(labels), np.int64), numbers.current_groups)


def _epoch(numbers: ShardNumbers) -> Series:
    epochs = np.array([group.epoch for group in numbers.shard.groups], np.int64)
    return select_series(numbers.labels.groups, epochs, (epochs >= 0) & numbers.current_groups)


def _rebalances_total(numbers: ShardNumbers) -> Series:
    epochs = np.array([group.epoch for group in numbers.shard.groups], np.int64)
    numbers.epochs.add(epochs)
    known = (epochs >= 0) & numbers.current_groups
    return select_series(numbers.labels.groups, numbers.epochs.sums, known)


def _partitions_without_lag(numbers: ShardNumbers) -> Series:
    """A row with several reasons counts as one with the first."""
    bits = numbers.reasons
    first = np.select([(bits & np.uint8(reason)) != 0 for reason in REASONS], range(len(REASONS)), -1)
    return _count_each(numbers, "reason", first, [reason.names[0] for reason in REASONS])


def _partitions_not_ok(numbers: ShardNumbers) -> Series:
    verdicts = numbers.snapshot.row_verdicts(numbers.shard)
    kind = np.select([verdicts == verdict for verdict in NOT_OK], range(len(NOT_OK)), -1)
    kind[~numbers.whole_groups[numbers.shard.group]] = -1
    return _count_each(numbers, "status", kind, [verdict.name for verdict in NOT_OK])


def _count_each(numbers: ShardNumbers, label: str, kind: NDArray[np.int64], names: list[str]) -> Series:
    """For each group, how many rows are of each kind: an index of `names`, or -1. No series is 0."""
    labels, counted = list[str](), list[str]()
    for number, name in enumerate(names):
        found = kind == number
        if not found.any():
            continue
        counts = numbers.count_rows(found)
        all_labels = add_label(numbers.labels.groups, label, [name] * len(counts))
        texts, own_counts = select_series(all_labels, counts, counts > 0)
        labels += texts
        counted += own_counts
    return labels, counted


def _causes(numbers: ShardNumbers) -> Series:
    """Of the causes of each group, the `_MOST_CAUSES` that explain most."""
    sums = find_shard_causes(numbers.view, numbers.number).sums
    if not sums:
        return [], []
    explained = np.array(list(sums.values()))
    rank = np.argsort(np.argsort(-explained, axis=0, kind="stable"), axis=0)
    labels, offsets = list[str](), list[str]()
    for at, cause in enumerate(sums):
        all_labels = add_label(numbers.labels.groups, "cause", [cause.label] * len(explained[at]))
        is_shown = (explained[at] > 0) & (rank[at] < _MOST_CAUSES)
        texts, own_offsets = select_series(all_labels, explained[at], is_shown)
        labels += texts
        offsets += own_offsets
    return labels, offsets


_MOST_CAUSES = 3
NOT_OK = (Verdict.WARN, Verdict.ERR)
REASONS = (
    Reason.COMMITS_NOT_CURRENT,
    Reason.END_NOT_CURRENT,
    Reason.TOPIC_GONE,
    Reason.TOPIC_RECREATED,
    Reason.NO_COMMIT,
    Reason.END_UNKNOWN,
)
SEVERAL = {
    "koff_group_partitions_without_lag": len(REASONS),
    "koff_group_partitions_not_ok": len(NOT_OK),
    "koff_group_cause": _MOST_CAUSES,
}
"""How many series each group may have, of families that have more than one."""


def _partitions_ahead_of_log(numbers: ShardNumbers) -> Series:
    counts = numbers.count_rows((numbers.reasons & np.uint8(Reason.AHEAD_OF_LOG)) != 0)
    return select_series(numbers.labels.groups, counts, numbers.whole_groups)


def _lost_records(numbers: ShardNumbers) -> Series:
    groups, rows = numbers.labels.groups, numbers.start >= 0
    sums = np.zeros(len(groups), np.int64)
    lost = np.maximum(numbers.start - numbers.shard.committed, 0)
    np.add.at(sums, numbers.shard.group[rows], lost[rows])
    return select_series(groups, sums, numbers.dated_groups)


def _margin_records(numbers: ShardNumbers) -> Series:
    margins = numbers.margins[0]
    known = numbers.dated_groups & np.isfinite(margins)
    return select_series(numbers.labels.groups, np.where(known, margins, 0).astype(np.int64), known)


def _margin_ratio(numbers: ShardNumbers) -> Series:
    return select_series(numbers.labels.groups, np.round(numbers.margins[1], 4), numbers.dated_groups)


def _commits_held_back(numbers: ShardNumbers) -> Series:
    if numbers.number not in numbers.view.stats.held_back_partitions:
        return [], []
    ones = np.ones(len(numbers.labels.groups), np.int64)
    return select_series(numbers.labels.groups, ones, ones > 0)


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
    "koff_group_catch_up_seconds": _catch_up,
    "koff_group_completeness_ratio": _completeness,
    "koff_group_status": _status,
    "koff_group_allowance_seconds": _allowance,
    "koff_group_incident_seconds": _incident_age,
    "koff_group_state": _state,
    "koff_group_members": _members,
    "koff_group_members_without_assignment": _members_without_assignment,
    "koff_group_info": _info,
    "koff_group_epoch": _epoch,
    "koff_group_rebalances_total": _rebalances_total,
    "koff_group_partitions_without_lag": _partitions_without_lag,
    "koff_group_partitions_not_ok": _partitions_not_ok,
    "koff_group_cause": _causes,
    "koff_group_partitions_ahead_of_log": _partitions_ahead_of_log,
    "koff_group_lost_records": _lost_records,
    "koff_group_retention_margin_records": _margin_records,
    "koff_group_retention_margin_ratio": _margin_ratio,
    "koff_group_commits_held_back": _commits_held_back,
    "koff_group_commits_total": _commits_total,
}
"""By family, the series of one shard."""


def _sum_lags(
    labels: Labels, index: NDArray[np.int64] | NDArray[np.int32], whole: Mask, numbers: ShardNumbers
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

    def __init__(self, labels: PartitionLabels, view: ClusterView, produced: Growth) -> None:
        self.labels, self.facts, self.produced = labels, view.facts, produced
        self.partitions = view.snapshot.partitions
        self.end = np.where(view.snapshot.withheld_ends(), UNKNOWN, self.partitions.end)

    def count_by_topic(self, mask: Mask) -> NDArray[np.int64]:
        """How many partitions of each topic have the mask set."""
        return np.bincount(self.labels.topic_of_partition[mask], minlength=len(self.labels.topics))


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
    is_used = np.array(numbers.partitions.partition, np.int64) >= 0
    missing = numbers.count_by_topic((numbers.end < 0) & ~gone & is_used)
    known = (numbers.count_by_topic(numbers.end >= 0) > 0) & (missing == 0)
    return select_series(labels.topics, numbers.produced.sums, known)


PARTITION_SERIES: dict[str, Callable[[PartitionNumbers], Series]] = {
    "koff_topic_messages_total": _messages_total,
    "koff_partition_end_offset": _end_offset,
    "koff_partition_start_offset": _start_offset,
    "koff_partition_produced_per_second": _produced_per_second,
}
"""By family, the series of all topic partitions."""


# --- What the cluster lists ------------------------------------------------------------------------------


def _of_topics(number: Callable[[TopicFacts], int]) -> Callable[[Labels, ClusterFacts], Series]:
    def select(labels: Labels, facts: ClusterFacts) -> Series:
        numbers = np.array([number(topic) for topic in facts.topics.values()], np.int64)
        return select_series(labels, numbers, np.ones(len(numbers), np.bool_))

    return select


def _log_sizes(labels: Labels, facts: ClusterFacts) -> Series:
    """The series of all brokers. A broker that has no log of a topic has no series for it."""
    texts, numbers = list[str](), list[str]()
    for broker, by_topic in sorted(facts.log_sizes.items()):
        sizes = np.array([by_topic.get(topic, UNKNOWN) for topic in facts.topics], np.int64)
        of_broker = add_label(labels, "broker", [str(broker)] * len(labels))
        own_texts, own_numbers = select_series(of_broker, sizes, sizes >= 0)
        texts += own_texts
        numbers += own_numbers
    return texts, numbers


LISTED_SERIES: dict[str, Callable[[Labels, ClusterFacts], Series]] = {
    "koff_topic_partitions": _of_topics(attrgetter("partitions")),
    "koff_topic_replication_factor": _of_topics(attrgetter("replicas")),
    "koff_topic_leaderless_partitions": _of_topics(attrgetter("leaderless")),
    "koff_topic_under_replicated_partitions": _of_topics(attrgetter("under_replicated")),
    "koff_topic_log_size_bytes": _log_sizes,
}
"""By family, the series of the topics that the cluster lists. The labels are those of these topics."""
