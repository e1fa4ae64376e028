"""Renders a view in the Prometheus text format or as OpenMetrics, from cached labels.

The name and the labels of a series do not change, so their text is kept for each row as long as the shard's
`layout` is the same object. Only the numbers are formatted at each scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from koff.lag import Reason
from koff.serve.families import FAMILIES, Family
from koff.serve.growth import Growth
from koff.serve.labels import PartitionLabels, build_partition_labels, build_shard_labels, escape_label
from koff.serve.series import (
    LISTED_SERIES,
    PARTITION_SERIES,
    SHARD_SERIES,
    KeptShard,
    PartitionNumbers,
    Series,
    ShardNumbers,
)
from koff.serve.view import ClusterView
from koff.tracker import ShardSnapshot, Snapshot
from koff.tracker.topic_partitions import PartitionSnapshot


class Exposition:
    """Renders views as text. Not thread-safe."""

    def __init__(self) -> None:
        self.series = self.left_out = 0
        """How many series the last view had, and how many were left out."""
        self._cluster = ""
        self._shards: dict[int, KeptShard] = {}
        self._partitions: tuple[PartitionLabels, Growth] | None = None

    def render_chunks(self, view: ClusterView, *, openmetrics: bool = False) -> Iterator[str]:
        """The metric families, one after the other. A series whose value is unknown is absent."""
        self.series = self.left_out = 0
        if view.cluster is None:
            return  # the series of the same cluster would have other labels later
        snapshot, cluster = view.snapshot, escape_label(view.cluster)
        # Labels: a new name of the cluster makes all labels invalid, a new layout the labels of one shard.
        if cluster != self._cluster:
            self._cluster, self._shards, self._partitions = cluster, {}, None
        kept = self._shards
        self._shards = {
            number: self._keep_shard(kept.get(number), shard, snapshot)
            for number, shard in snapshot.shards.items()
        }
        self._partitions = self._keep_partitions(snapshot.partitions)
        # Families.
        shards = [ShardNumbers(kept, number, view) for number, kept in self._shards.items()]
        labels, produced = self._partitions
        partitions = PartitionNumbers(labels, snapshot, produced)
        for family in FAMILIES:
            series: Iterable[Series] = ()
            if of_shard := SHARD_SERIES.get(family.name):
                series = map(of_shard, shards)
            elif of_partitions := PARTITION_SERIES.get(family.name):
                series = [of_partitions(partitions)]
            elif listed := LISTED_SERIES.get(family.name):
                series = [listed(cluster, view.facts)]
            elif family.name == "koff_rows_withheld":
                series = [self._count_withheld(snapshot)]
            yield from self._render_family(family, series, openmetrics=openmetrics)

    def _keep_shard(self, kept: KeptShard | None, shard: ShardSnapshot, snapshot: Snapshot) -> KeptShard:
        if kept is not None and kept.labels.layout is shard.layout:
            return kept
        return KeptShard.create(build_shard_labels(self._cluster, shard, snapshot), kept)

    def _keep_partitions(self, partitions: PartitionSnapshot) -> tuple[PartitionLabels, Growth]:
        kept = self._partitions
        if kept is not None and kept[0].fits(partitions):
            return kept
        labels = build_partition_labels(self._cluster, partitions)
        produced = Growth(labels.partitions, labels.topics, labels.topic_of_partition)
        if kept is not None:
            produced.carry_over(kept[1])
        return labels, produced

    def _count_withheld(self, snapshot: Snapshot) -> Series:
        """How many rows are withheld, by reason. A row with both reasons counts as one with the first."""
        commits = ends = 0
        for shard in snapshot.shards.values():
            stale = shard.is_withheld(Reason.COMMITS_NOT_CURRENT)
            commits += int(np.count_nonzero(stale))
            ends += int(np.count_nonzero(shard.is_withheld(Reason.END_NOT_CURRENT) & ~stale))
        reasons = (Reason.COMMITS_NOT_CURRENT, Reason.END_NOT_CURRENT)
        names = [name for reason in reasons for name in reason.names]
        return [f'{{cluster="{self._cluster}",reason="{name}"}} ' for name in names], [commits, ends]

    def _render_family(self, family: Family, series: Iterable[Series], *, openmetrics: bool) -> Iterator[str]:
        """A family with its head, in one text for each shard. Nothing if there is no series."""
        head = family.render_head(openmetrics=openmetrics)
        for labels, numbers in series:
            if labels:
                self.series += len(labels)
                # A scrape of many rows must not call a function for each.
                parts = [family.name] * (3 * len(labels))
                parts[1::3] = labels
                parts[2::3] = [f"{number}\n" for number in numbers]
                yield head + "".join(parts)
                head = ""
