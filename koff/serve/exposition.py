"""Renders a view in the Prometheus text format or as OpenMetrics, from cached labels.

The name and the labels of a series do not change, so their text is kept for each row as long as the shard's
`layout` is the same object. Only the numbers are formatted at each scrape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Self

import numpy as np

from koff.lag import Reason
from koff.serve.compat import (
    COMPAT_CLUSTER_SERIES,
    COMPAT_LISTED_SERIES,
    COMPAT_PARTITION_SERIES,
    COMPAT_SHARD_SERIES,
    EXPORTER_OF,
    LABEL_NAMES,
    RenamedLabels,
)
from koff.serve.families import Family
from koff.serve.labels import (
    Labels,
    PartitionLabels,
    build_partition_labels,
    build_shard_labels,
    build_topic_labels,
    derive_labels,
    escape_label,
    join_labels,
)
from koff.serve.limit import limit_series
from koff.serve.metrics_conf import MetricsConf
from koff.serve.series import (
    LISTED_SERIES,
    PARTITION_SERIES,
    SHARD_SERIES,
    ClusterNumbers,
    KeptShard,
    PartitionNumbers,
    Series,
    ShardNumbers,
)
from koff.tracker import ShardSnapshot
from koff.tracker.topic_partitions import PartitionSnapshot
from koff.view.cluster_view import ClusterView, TopicFacts
from koff.view.growth import Growth


class Exposition:
    """Renders views as text. Not thread-safe."""

    def __init__(self, conf: MetricsConf | None = None) -> None:
        self._conf = conf or MetricsConf()
        self._families = self._conf.list_families()
        self._clusters: dict[str, _ClusterSeries] = {}

    def count_series(self) -> dict[str, SeriesCount]:
        """By cluster, how many series the last views had, and how many were left out because of the limit."""
        return {name: cluster.count for name, cluster in self._clusters.items()}

    def render_chunks(self, *views: ClusterView, openmetrics: bool = False) -> Iterator[str]:
        """The metric families, one after the other. A series whose value is unknown is absent.

        Of a view without a name there is nothing: the series would have other labels later.
        """
        kept = self._clusters
        self._clusters = {
            view.cluster: (kept.get(view.cluster) or _ClusterSeries(self._conf)).begin(view)
            for view in views
            if view.cluster is not None
        }
        for family in self._families:
            series = (each for cluster in self._clusters.values() for each in cluster.list_series(family))
            yield from _render_family(family, series, openmetrics=openmetrics)
        for cluster in self._clusters.values():
            cluster.end()


def _render_family(family: Family, series: Iterable[Series], *, openmetrics: bool) -> Iterator[str]:
    """A family with its head, in one text for each shard. Nothing if there is no series."""
    head = family.render_head(openmetrics=openmetrics)
    for labels, numbers in series:
        if labels:
            # A scrape of many rows must not call a function for each.
            parts = [f"\n{family.name}"] * (3 * len(labels))
            parts[1::3] = labels
            parts[2::3] = numbers
            parts[0] = head + family.name
            parts.append("\n")
            yield "".join(parts)
            head = ""


class SeriesCount(NamedTuple):
    """How many series were rendered, and how many were left out because of the limit."""

    series: int
    left_out: int


class _ClusterSeries:
    """The series of one cluster. Keeps labels and counters from one scrape to the next."""

    def __init__(self, conf: MetricsConf) -> None:
        self.count = SeriesCount(0, 0)
        self._conf = conf
        self._families = conf.list_families()
        self._cluster = ""
        self._group_labels: tuple[re.Pattern[str], ...] = ()
        self._shards: dict[int, KeptShard] = {}
        self._partitions: tuple[PartitionLabels, Growth] | None = None
        self._listed: tuple[Mapping[str, TopicFacts], Labels] | None = None
        self._numbers: ClusterNumbers | None = None
        self._compat = self._create_compat_labels()
        self._compat_numbers: dict[str, ClusterNumbers] = {}

    def begin(self, view: ClusterView) -> Self:
        """Prepares the series of a view."""
        assert view.cluster is not None
        self.count = SeriesCount(0, 0)
        # Labels: a new name of the cluster makes all labels invalid, a new layout the labels of one shard.
        cluster, patterns = join_labels(view.cluster, view.labels), view.group_labels
        if (cluster, patterns) != (self._cluster, self._group_labels):
            self._group_labels = patterns
            self._cluster, self._shards, self._partitions, self._listed = cluster, {}, None, None
            self._compat = self._create_compat_labels()
        kept = self._shards
        self._shards = {
            number: self._keep_shard(kept.get(number), shard, view)
            for number, shard in view.snapshot.shards.items()
        }
        self._partitions = self._keep_partitions(view.snapshot.partitions)
        self._listed = self._keep_listed(view.facts.topics)
        self._numbers = ClusterNumbers(
            view,
            [ShardNumbers(kept, number, view) for number, kept in self._shards.items()],
            PartitionNumbers(self._partitions[0], view, self._partitions[1]),
            self._listed[1],
        )
        self._limit(self._numbers)
        return self

    def list_series(self, family: Family) -> Iterator[Series]:
        """The series of the family, shard by shard."""
        numbers, name = self._find_numbers(family), family.name
        series: Iterable[Series] = ()
        if of_shard := _OF_SHARD.get(name):
            series = map(of_shard, numbers.shards)
        elif of_partitions := _OF_PARTITIONS.get(name):
            series = [of_partitions(numbers.partitions)]
        elif of_listed := _OF_LISTED.get(name):
            series = [of_listed(numbers.listed, numbers.view.facts)]
        elif of_cluster := _OF_CLUSTER.get(name):
            series = [of_cluster(self._cluster, numbers.view)]
        for each in series:
            self.count = self.count._replace(series=self.count.series + len(each[0]))
            yield each

    def end(self) -> None:
        """Counts what was left out, and forgets the view: it is large."""
        left_out = sum(labels.kept.left_out for labels in self._all_labels() if labels.kept is not None)
        self.count = self.count._replace(left_out=left_out)
        self._numbers, self._compat_numbers = None, {}

    def _create_compat_labels(self) -> dict[str, RenamedLabels]:
        return {exporter: RenamedLabels(LABEL_NAMES[exporter]) for exporter in self._conf.compat}

    def _find_numbers(self, family: Family) -> ClusterNumbers:
        """The numbers, with the labels that the family has."""
        assert self._numbers is not None
        exporter = EXPORTER_OF.get(family.name)
        if exporter is None:
            return self._numbers
        if exporter not in self._compat_numbers:
            renamed = self._compat[exporter].rename(self._cluster, self._numbers)
            self._compat_numbers[exporter] = renamed
        return self._compat_numbers[exporter]

    def _keep_shard(self, kept: KeptShard | None, shard: ShardSnapshot, view: ClusterView) -> KeptShard:
        if kept is not None and kept.labels.layout is shard.layout:
            return kept
        return KeptShard.create(build_shard_labels(self._cluster, shard, view), kept)

    def _keep_partitions(self, partitions: PartitionSnapshot) -> tuple[PartitionLabels, Growth]:
        kept = self._partitions
        if kept is not None and kept[0].fits(partitions):
            return kept
        labels = build_partition_labels(self._cluster, partitions)
        produced = Growth(labels.partitions.texts, labels.topics.texts, labels.topic_of_partition)
        if kept is not None:
            produced.carry_over(kept[1])
        return labels, produced

    def _keep_listed(self, topics: Mapping[str, TopicFacts]) -> tuple[Mapping[str, TopicFacts], Labels]:
        if self._listed is not None and self._listed[0] is topics:
            return self._listed
        return topics, build_topic_labels(self._cluster, topics)

    def _limit(self, numbers: ClusterNumbers) -> None:
        if self._conf.max_series is None:
            return
        for labels in self._all_labels():
            labels.kept = None
        families = [family for family in self._families if family.name not in CLUSTER_SERIES]
        limit_series(self._conf.max_series, families, numbers)

    def _all_labels(self) -> Iterator[Labels]:
        for shard in self._shards.values():
            yield from (shard.labels.groups, shard.labels.topics, shard.labels.rows)
        if self._partitions is not None:
            yield from (self._partitions[0].partitions, self._partitions[0].topics)
        if self._listed is not None:
            yield self._listed[1]
        for renamed in self._compat.values():
            yield from renamed.list_labels()


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


def _list_expected(cluster: str, view: ClusterView) -> Series:
    groups = sorted(view.expected_groups.items())
    labels = [
        f'{{cluster="{cluster}",group="{escape_label(name)}{derive_labels(name, view.group_labels)}"}} '
        for name, _ in groups
    ]
    return labels, [str(int(is_present)) for _, is_present in groups]


def _sum_log_sizes(cluster: str, view: ClusterView) -> Series:
    sizes = sorted(view.facts.log_sizes.items())
    texts = [f'{{cluster="{cluster}",broker="{broker}"}} ' for broker, _ in sizes]
    return texts, [str(sum(by_topic.values())) for _, by_topic in sizes]


CLUSTER_SERIES: dict[str, Callable[[str, ClusterView], Series]] = {
    "koff_rows_withheld": _count_withheld,
    "koff_expected_group_present": _list_expected,
    "koff_brokers": _count_brokers,
    "koff_broker_log_size_bytes": _sum_log_sizes,
}
"""By family, the series for the label `cluster` of `join_labels`. The limit on series leaves out none."""
_OF_SHARD = SHARD_SERIES | COMPAT_SHARD_SERIES
_OF_PARTITIONS = PARTITION_SERIES | COMPAT_PARTITION_SERIES
_OF_LISTED = LISTED_SERIES | COMPAT_LISTED_SERIES
_OF_CLUSTER = CLUSTER_SERIES | COMPAT_CLUSTER_SERIES
