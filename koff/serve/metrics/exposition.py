"""Renders a view in the Prometheus text format or as OpenMetrics, from cached labels.

The name and the labels of a series do not change, so their text is kept for each row as long as the shard's
`layout` is the same object. Only the numbers are formatted at each scrape.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.family import Family
from koff.serve.metrics.labels import (
    Labels,
    build_partition_labels,
    build_shard_labels,
    build_topic_labels,
    join_labels,
)
from koff.serve.metrics.limit import limit_series
from koff.serve.metrics.numbers import (
    CLUSTER,
    ClusterNumbers,
    KeptPartitions,
    KeptShard,
    ListedNumbers,
    PartitionNumbers,
    ShardNumbers,
    find_numbers,
    sum_by_topic,
)
from koff.serve.metrics.own import MONITOR, PROCESS, MonitorNumbers, ProcessNumbers, SeriesCount
from koff.serve.metrics.series import Series, list_parts, select_columns, select_few
from koff.tracker import ShardSnapshot
from koff.tracker.topic_partitions import PartitionSnapshot
from koff.view.cluster_view import ClusterView, TopicFacts

_CHUNK_PARTS = 10_000
"""A chunk has at least so many parts, three of each series: about 300 kB."""


class Exposition:
    """Renders views as text. Not thread-safe."""

    def __init__(self, conf: MetricsConf | None = None) -> None:
        self._conf = conf or MetricsConf()
        families = self._conf.list_families()
        self._own = [family for family in families if family.subject in (MONITOR, PROCESS)]
        self._families = [family for family in families if family not in self._own]
        self._clusters: dict[str, _ClusterSeries] = {}

    def count_series(self) -> dict[str, SeriesCount]:
        """By cluster, how many series the last views had, and how many were left out because of the limit."""
        return {name: cluster.count for name, cluster in self._clusters.items()}

    def render_chunks(self, *views: ClusterView, openmetrics: bool = False) -> Iterator[bytes]:
        """The metric families, in large chunks. A series whose value is unknown is absent.

        Of a view without a name there is nothing: the series would have other labels later.
        """
        kept = self._clusters
        self._clusters = {
            view.cluster: (kept.get(view.cluster) or _ClusterSeries(self._conf.max_series)).begin(
                view, self._families
            )
            for view in views
            if view.cluster is not None
        }
        parts = list[bytes]()
        for family in self._families:
            series = (each for cluster in self._clusters.values() for each in cluster.list_series(family))
            for more in list_parts(family, series, openmetrics=openmetrics):
                parts += more
                if len(parts) >= _CHUNK_PARTS:
                    yield b"".join(parts)
                    parts.clear()
        yield b"".join(parts)
        for cluster in self._clusters.values():
            cluster.end()

    def render_own(self, *views: ClusterView, process: ProcessNumbers, openmetrics: bool = False) -> bytes:
        """The families about koff itself, after `render_chunks` of these views."""
        parts = list[bytes]()
        for family in self._own:
            if family.subject is PROCESS:
                series = [select_few(family, process)]
            else:
                series = [
                    select_few(family, MonitorNumbers(view.stats, cluster.count), join_labels(view))
                    for view in views
                    if (cluster := self._clusters.get(view.cluster or ""))
                ]
            for more in list_parts(family, series, openmetrics=openmetrics):
                parts += more
        return b"".join(parts)


class _ClusterSeries:
    """The series of one cluster. Keeps labels and counters from one scrape to the next."""

    def __init__(self, max_series: int | None) -> None:
        self.count = SeriesCount(0, 0)
        self._max_series = max_series
        self._cluster = ""
        self._naming: tuple[object, ...] = ()
        """What all labels depend on."""
        self._shards: dict[int, KeptShard] = {}
        self._partitions: KeptPartitions | None = None
        self._listed: tuple[Mapping[str, TopicFacts], Labels] | None = None
        self._numbers: ClusterNumbers | None = None

    def begin(self, view: ClusterView, families: list[Family[Any]]) -> Self:
        """Prepares the series of a view."""
        self.count = SeriesCount(0, 0)
        # Labels: a new name of the cluster makes all labels invalid, a new layout the labels of one shard.
        naming = join_labels(view), view.group_labels, view.owners
        if naming != self._naming:
            self._naming, self._cluster = naming, naming[0]
            self._shards, self._partitions, self._listed = {}, None, None
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
            PartitionNumbers(self._partitions, view),
            ListedNumbers({"topic": self._listed[1]}, view.facts),
        )
        if self._max_series is not None:
            limit_series(self._max_series, families, self._numbers)
        return self

    def list_series(self, family: Family[Any]) -> Iterator[Series]:
        """The series of the family, shard by shard."""
        assert self._numbers is not None
        for each in self._select(family, self._numbers):
            self.count = self.count._replace(series=self.count.series + len(each[0]))
            yield each

    def end(self) -> None:
        """Counts what was left out, and forgets the view: it is large."""
        assert self._numbers is not None
        left_out = sum(labels.left_out for labels in self._numbers.list_labels())
        self.count, self._numbers = self.count._replace(left_out=left_out), None

    def _select(self, family: Family[Any], numbers: ClusterNumbers) -> Iterator[Series]:
        if family.subject is CLUSTER:
            yield select_few(family, numbers.view, self._cluster, numbers.view)
            return
        for each in find_numbers(family.subject, numbers):
            yield from select_columns(family, each, each.labels)

    def _keep_shard(self, kept: KeptShard | None, shard: ShardSnapshot, view: ClusterView) -> KeptShard:
        if kept is not None and kept.layout is shard.layout:
            return kept
        return KeptShard.create(shard.layout, build_shard_labels(self._cluster, shard, view), kept)

    def _keep_partitions(self, partitions: PartitionSnapshot) -> KeptPartitions:
        kept, names = self._partitions, (partitions.topic, partitions.partition)
        # Names are shared by the snapshots of a tracker, so most comparisons are of the same objects.
        if kept is not None and kept.names == names:
            return kept
        labels = build_partition_labels(self._cluster, partitions)
        return KeptPartitions(names, labels, sum_by_topic(labels, kept.produced if kept else None))

    def _keep_listed(self, topics: Mapping[str, TopicFacts]) -> tuple[Mapping[str, TopicFacts], Labels]:
        if self._listed is not None and self._listed[0] is topics:
            return self._listed
        return topics, build_topic_labels(self._cluster, topics)
