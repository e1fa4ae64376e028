"""Renders a view in the Prometheus text format or as OpenMetrics, from cached labels.

The name and the labels of a series do not change, so their text is kept for each row as long as the shard's
`layout` is the same object. Only the numbers are formatted at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from koff.lag import Reason
from koff.serve.families import Family
from koff.serve.growth import Growth
from koff.serve.labels import (
    Labels,
    PartitionLabels,
    build_partition_labels,
    build_shard_labels,
    build_topic_labels,
    escape_label,
)
from koff.serve.limit import limit_series
from koff.serve.metrics_conf import MetricsConf
from koff.serve.series import (
    LISTED_SERIES,
    PARTITION_SERIES,
    SHARD_SERIES,
    KeptShard,
    PartitionNumbers,
    Series,
    ShardNumbers,
)
from koff.serve.view import ClusterView, TopicFacts
from koff.tracker import ShardSnapshot, Snapshot
from koff.tracker.topic_partitions import PartitionSnapshot


class Exposition:
    """Renders views as text. Not thread-safe."""

    def __init__(self, conf: MetricsConf | None = None) -> None:
        self.series = self.left_out = 0
        """How many series the last view had, and how many were left out because of the limit."""
        self._conf = conf or MetricsConf()
        self._families = self._conf.list_families()
        self._cluster = ""
        self._shards: dict[int, KeptShard] = {}
        self._partitions: tuple[PartitionLabels, Growth] | None = None
        self._listed: tuple[Mapping[str, TopicFacts], Labels] | None = None

    def render_chunks(self, view: ClusterView, *, openmetrics: bool = False) -> Iterator[str]:
        """The metric families, one after the other. A series whose value is unknown is absent."""
        self.series = self.left_out = 0
        if view.cluster is None:
            return  # the series of the same cluster would have other labels later
        # Labels: a new name of the cluster makes all labels invalid, a new layout the labels of one shard.
        if (cluster := escape_label(view.cluster)) != self._cluster:
            self._cluster, self._shards, self._partitions, self._listed = cluster, {}, None, None
        kept = self._shards
        self._shards = {
            number: self._keep_shard(kept.get(number), shard, view.snapshot)
            for number, shard in view.snapshot.shards.items()
        }
        self._partitions = self._keep_partitions(view.snapshot.partitions)
        self._listed = self._keep_listed(view.facts.topics)
        # Families.
        shards = [ShardNumbers(kept, number, view) for number, kept in self._shards.items()]
        partitions = PartitionNumbers(self._partitions[0], view.snapshot, self._partitions[1])
        self._limit(shards, partitions)
        for family in self._families:
            series: Iterable[Series] = ()
            if of_shard := SHARD_SERIES.get(family.name):
                series = map(of_shard, shards)
            elif of_partitions := PARTITION_SERIES.get(family.name):
                series = [of_partitions(partitions)]
            elif of_listed := LISTED_SERIES.get(family.name):
                series = [of_listed(self._listed[1], view.facts)]
            elif of_cluster := CLUSTER_SERIES.get(family.name):
                series = [of_cluster(cluster, view)]
            yield from self._render_family(family, series, openmetrics=openmetrics)
        self.left_out = sum(labels.kept.left_out for labels in self._all_labels() if labels.kept is not None)

    def _keep_shard(self, kept: KeptShard | None, shard: ShardSnapshot, snapshot: Snapshot) -> KeptShard:
        if kept is not None and kept.labels.layout is shard.layout:
            return kept
        return KeptShard.create(build_shard_labels(self._cluster, shard, snapshot, self._conf), kept)

    def _keep_partitions(self, partitions: PartitionSnapshot) -> tuple[PartitionLabels, Growth]:
        kept = self._partitions
        if kept is not None and kept[0].fits(partitions):
            return kept
        labels = build_partition_labels(self._cluster, partitions, self._conf)
        produced = Growth(labels.partitions.texts, labels.topics.texts, labels.topic_of_partition)
        if kept is not None:
            produced.carry_over(kept[1])
        return labels, produced

    def _keep_listed(self, topics: Mapping[str, TopicFacts]) -> tuple[Mapping[str, TopicFacts], Labels]:
        if self._listed is not None and self._listed[0] is topics:
            return self._listed
        return topics, build_topic_labels(self._cluster, topics, self._conf)

    def _limit(self, shards: list[ShardNumbers], partitions: PartitionNumbers) -> None:
        if self._conf.max_series is None or self._listed is None:
            return
        for labels in self._all_labels():
            labels.kept = None
        topics, labels = self._listed
        limit_series(self._conf.max_series, self._families, shards, partitions, (labels, topics))

    def _all_labels(self) -> Iterator[Labels]:
        for shard in self._shards.values():
            yield from (shard.labels.groups, shard.labels.topics, shard.labels.rows)
        if self._partitions is not None:
            yield from (self._partitions[0].partitions, self._partitions[0].topics)
        if self._listed is not None:
            yield self._listed[1]

    def _render_family(self, family: Family, series: Iterable[Series], *, openmetrics: bool) -> Iterator[str]:
        """A family with its head, in one text for each shard. Nothing if there is no series."""
        head = family.render_head(openmetrics=openmetrics)
        for labels, numbers in series:
            if labels:
                self.series += len(labels)
                # A scrape of many rows must not call a function for each.
                parts = [f"\n{family.name}"] * (3 * len(labels))
                parts[1::3] = labels
                parts[2::3] = numbers
                parts[0] = head + family.name
                parts.append("\n")
                yield "".join(parts)
                head = ""


def _count_withheld(cluster: str, view: ClusterView) -> Series:
    """How many rows are withheld, by reason. A row with both reasons counts as one with the first."""
    commits = ends = 0
    for shard in view.snapshot.shards.values():
        stale = shard.is_withheld(Reason.COMMITS_NOT_CURRENT)
        commits += int(np.count_nonzero(stale))
        ends += int(np.count_nonzero(shard.is_withheld(Reason.END_NOT_CURRENT) & ~stale))
    reasons = (Reason.COMMITS_NOT_CURRENT, Reason.END_NOT_CURRENT)
    names = [name for reason in reasons for name in reason.names]
    return [f'{{cluster="{cluster}",reason="{name}"}} ' for name in names], [str(commits), str(ends)]


def _count_brokers(cluster: str, view: ClusterView) -> Series:
    brokers = view.facts.brokers
    return ([], []) if brokers is None else ([f'{{cluster="{cluster}"}} '], [str(brokers)])


CLUSTER_SERIES: dict[str, Callable[[str, ClusterView], Series]] = {
    "koff_rows_withheld": _count_withheld,
    "koff_brokers": _count_brokers,
}
"""By family, the series for the (escaped) label `cluster`."""
