"""What the functions of families get: the numbers of a cluster at one scrape."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, Lags, Reason, TimeLags
from koff.serve.metrics.family import Column, Subject
from koff.serve.metrics.labels import Labels, Level, LevelLabels, Mask
from koff.view.cluster_view import ClusterFacts, ClusterView, TopicFacts
from koff.view.growth import Growth
from koff.view.shard_members import ShardMembers, find_shard_members

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class KeptShard(NamedTuple):
    """What is kept of a shard from one scrape to the next: the labels of a layout, and counters."""

    layout: object
    labels: LevelLabels
    consumed: Growth
    epochs: Growth

    @classmethod
    def create(cls, layout: object, labels: LevelLabels, before: Self | None) -> Self:
        """Counters for these labels, which continue those from before."""
        groups = labels.by_level["group"].texts
        epochs = Growth(groups, groups, np.arange(len(groups)))
        if before is not None:
            epochs.carry_over(before.epochs)
        return cls(layout, labels, sum_by_topic(labels, before.consumed if before else None), epochs)


class KeptPartitions(NamedTuple):
    """The same for the topic partitions. `names` are topic and partition of each partition number."""

    names: tuple[list[str], list[int]]
    labels: LevelLabels
    produced: Growth


def sum_by_topic(labels: LevelLabels, before: Growth | None) -> Growth:
    """Counters of what offsets have grown by in each topic, which continue those from before."""
    partitions, topics = labels.by_level["partition"].texts, labels.by_level["topic"].texts
    growth = Growth(partitions, topics, labels.of_topics)
    if before is not None:
        growth.carry_over(before)
    return growth


class ShardNumbers:
    """The numbers of one shard at one scrape. What several families need is computed once, if at all.

    `of_groups` has the index of the group of each row, and `of_topics` that of the topic of the group.
    """

    def __init__(self, kept: KeptShard, number: int, view: ClusterView) -> None:
        self.consumed, self.epochs = kept.consumed, kept.epochs
        self.labels, self.of_topics, self.group_of_topic = kept.labels
        self.number, self.view, self.snapshot = number, view, view.snapshot
        self.shard = view.snapshot.shards[number]
        self.groups, self.of_groups = self.shard.groups, self.shard.group

    @cached_property
    def lags(self) -> Lags:
        return self.snapshot.lags(self.shard)

    @cached_property
    def lag(self) -> Ints:
        """The published lag of each row."""
        return self.lags.published

    @cached_property
    def committed(self) -> Ints:
        return self.snapshot.committed(self.shard)

    @cached_property
    def time_lags(self) -> TimeLags | None:
        """The lag in seconds of each row."""
        return self.snapshot.time_lags(self.shard)

    @cached_property
    def reasons(self) -> NDArray[np.uint8]:
        return self.snapshot.reasons(self.shard)

    @cached_property
    def start(self) -> Ints:
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
    def margins(self) -> tuple[Floats, Floats]:
        """For each group, the least retention margin in offsets, and as a ratio of the log.

        Of partitions with a lag; infinite, and 1, without one. The ratio leaves out logs that start at 0: no
        record was deleted there yet, so the log start is no sign of how near deletion is.
        """
        behind = self.lags.known & (self.lag > 0) & (self.start >= 0)
        groups, start = self.of_groups[behind], self.start[behind]
        margin = np.maximum(self.shard.committed[behind] - start, 0)
        log = self.snapshot.partitions.end[self.shard.partition[behind]] - start
        margins, ratios = np.full(len(self.groups), np.inf), np.ones(len(self.groups))
        np.minimum.at(margins, groups, margin)
        # A log without records is one whose records all left before they were committed.
        shares = np.where(log > 0, margin / np.maximum(log, 1), 0.0)
        np.minimum.at(ratios, groups, np.where(start > 0, shares, 1.0))
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
        whole = self.shard.summable_groups()[self.group_of_topic]
        whole[self.of_topics[self.shard.is_withheld()]] = False
        return whole

    @cached_property
    def committed_topics(self) -> Mask:
        """The topics of groups that have a commit, and of which every commit is current."""
        topics = self.of_topics[self.committed >= 0]
        known = np.bincount(topics, minlength=len(self.group_of_topic)) > 0
        known &= self.shard.summable_groups()[self.group_of_topic]
        known[self.of_topics[self.shard.is_withheld(Reason.COMMITS_NOT_CURRENT)]] = False
        return known

    @cached_property
    def members(self) -> ShardMembers:
        """The members of the groups, and which rows each has."""
        return find_shard_members(self.snapshot, self.shard)

    def find_coordinator(self) -> str:
        """The id of the broker that coordinates the groups; "" if it is not known."""
        coordinators = self.view.facts.coordinators
        leader = coordinators[self.number] if 0 <= self.number < len(coordinators) else -1
        return str(leader) if leader >= 0 else ""

    def count_rows(self, mask: Mask) -> Ints:
        """How many rows of each group have the mask set."""
        return np.bincount(self.of_groups[mask], minlength=len(self.groups))

    def count_groups(self, mask: Mask, label: str) -> Iterator[Column]:
        """The same as series with this further label. There is no series of 0."""
        if mask.any():
            counts = self.count_rows(mask)
            yield Column(counts, counts > 0, (label,))


class PartitionNumbers:
    """The numbers of the topic partitions at one scrape.

    A free row (partition -1) has no offsets, so it makes no series.
    """

    def __init__(self, kept: KeptPartitions, view: ClusterView) -> None:
        self.labels, self.of_topics, _ = kept.labels
        self.facts, self.produced = view.facts, kept.produced
        self.partitions = view.snapshot.partitions
        self.end = np.where(view.snapshot.withheld_ends(), UNKNOWN, self.partitions.end)

    def count_by_topic(self, mask: Mask) -> Ints:
        """How many partitions of each topic have the mask set."""
        return np.bincount(self.of_topics[mask], minlength=len(self.labels["topic"]))


class ListedNumbers(NamedTuple):
    """What the cluster lists of its topics."""

    labels: Mapping[Level, Labels]
    facts: ClusterFacts

    def build_column(self, number: Callable[[TopicFacts], int]) -> Column:
        """A number of each topic."""
        numbers = np.array([number(topic) for topic in self.facts.topics.values()], np.int64)
        return Column(numbers, np.ones(len(numbers), np.bool_))


class ClusterNumbers(NamedTuple):
    """The numbers of one cluster at one scrape."""

    view: ClusterView
    shards: list[ShardNumbers]
    partitions: PartitionNumbers
    listed: ListedNumbers

    def list_labels(self) -> Iterator[Labels]:
        """All labels."""
        for shard in self.shards:
            yield from shard.labels.values()
        yield from self.partitions.labels.values()
        yield from self.listed.labels.values()


SHARDS: Subject[ShardNumbers] = Subject("shards")
PARTITIONS: Subject[PartitionNumbers] = Subject("partitions")
LISTED: Subject[ListedNumbers] = Subject("listed")
CLUSTER: Subject[ClusterView] = Subject("cluster", cut=False)


def find_numbers(
    subject: Subject[Any], numbers: ClusterNumbers
) -> Sequence[ShardNumbers | PartitionNumbers | ListedNumbers]:
    """What the families of a subject get, for one call after the other."""
    if subject is SHARDS:
        return numbers.shards
    return [numbers.partitions if subject is PARTITIONS else numbers.listed]
