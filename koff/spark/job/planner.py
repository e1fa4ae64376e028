"""Plans the batches of a cluster: up to where to read its log, and the sample of the same moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.config.clusters import WatchedCluster
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.end_offsets import EndOffsetSampler
from koff.spark.job.past_ends import PastOffsetSearch
from koff.spark.job.samples import NO_OFFSETS, Sample
from koff.spark.job.share_lags import ShareLags, list_share_groups
from koff.spark.job.topic_retention import TopicRetention
from koff.spark.rows.decoding import DataLost
from koff.spark.rows.spans import limit_offsets
from koff.spark.source.log_position import LogPosition, fetch_position
from koff.spark.tables.owners import Owner
from koff.spark.tables.progress import LogPart, Plan
from koff.tracker import Tracker

log = structlog.get_logger(component="spark.job")


class Planner:
    """Plans the batches of one cluster. The caller connects `cluster`, and closes it.

    A batch has at most `max_offsets` offsets. An open transaction may hide commits for `limit_s`: after that,
    the lags of their partition are unknown.
    """

    def __init__(
        self,
        watched: WatchedCluster,
        cluster: Cluster,
        *,
        max_offsets: int,
        interval_s: float,
        limit_s: float,
    ) -> None:
        self.name = watched.name or cluster.id
        self._watched, self._cluster, self._topic = watched, cluster, watched.offsets_topic
        self._max_offsets, self._interval_s, self._limit_s = max_offsets, interval_s, limit_s
        self._sampler, self._past_ends = EndOffsetSampler(cluster), PastOffsetSearch(cluster.lister)
        self._retention = TopicRetention(cluster.brokers)
        # Groups in a topic of another name are not those of the coordinators.
        self._shares = ShareLags(cluster, asks=self._topic == OFFSETS_TOPIC, topics=watched.topics)
        self._position = LogPosition()
        self._held: dict[int, tuple[int, datetime]] = {}
        """By partition of the offsets topic: the last stable offset, and since when it is below the end."""
        self._truncated: set[int] = set()
        self.behind = 0
        """How many offsets of the offsets topic come after the newest plan."""

    def plan(self, owner: Owner, before: Plan | None, state: ClusterState, *, wants_sample: bool) -> Plan:
        """The plan of the batch after `before`. It has a sample if it `wants_sample` and reads to the end.

        `state` is what is known after that. Raises `ConnectError` and `DataLost`.
        """
        tracker, rows = state.tracker, None
        if wants_sample:
            self._shares.load(list_share_groups(tracker))
            self._shares.fetch()
            used = self._shares.partitions.union(tracker.watched_partitions())
            rows = self._sampler.fetch_rows(used, self._shows, self._fetch_position)
        else:
            self._sampler.refresh_topics()
            self._fetch_position()
        at = rows[0] if rows else datetime.now(UTC)
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)  # `lag` has the same time
        first = Plan(cluster=self.name, number=1, at=at, owner=owner)
        plan = replace(
            before.follow(owner, at) if before else first,
            topic_id=self._position.topic_id or (before.topic_id if before else ""),
            parts=self._plan_parts(before),
            interval_s=self._interval_s,
        )
        self.behind = plan.count_behind(self._position.offsets)
        is_here = bool(self._position.offsets or not plan.parts)  # else the offsets topic is gone
        sampled_at = at if rows and is_here and not self.behind else None
        sample = self._make_sample(plan, state, rows[1] if rows and sampled_at else NO_OFFSETS)
        if sampled_at:
            past = self._past_ends.fetch(tracker, sample.ends, sample.at_ms)
            sample = replace(sample, past=past, retention_s=self._fetch_retention(tracker))
        return replace(plan, sample=sample.encode(), sampled_at=sampled_at)

    def knows_shares(self, tracker: Tracker) -> bool:
        """Whether the newest sample has all share groups: it lacks those that its own batch has found."""
        return all(group.name in self._shares.lags for group in list_share_groups(tracker))

    def _shows(self, topic: str) -> bool:
        return self._watched.topics is None or re.search(self._watched.topics, topic) is not None

    def _make_sample(self, plan: Plan, state: ClusterState, rows: pa.Table) -> Sample:
        """The sample of the batch. Without rows it has only the names of topics."""
        topics = self._sampler.topic_ids
        return Sample(
            at_ms=round(plan.at.timestamp() * 1000),
            rows=rows,
            topic_ids=None if topics == state.topic_ids else dict(topics),
            offsets_partitions=self._position.partitions,
            held=self._find_held(plan),
            shares=self._shares.lags,
            unknown_shares=self._shares.unknown,
        )

    def _fetch_retention(self, tracker: Tracker) -> dict[str, float] | None:
        """How long the topics that groups read keep records; None if that is what `tracker` has."""
        read = {topic for topic, _ in tracker.watched_partitions() if self._shows(topic)}
        before = tracker.partitions.retention_s
        now = self._retention.fetch(read, before)
        return None if now == before else now

    def _find_held(self, plan: Plan) -> tuple[int, ...]:
        """The partitions whose newest commits are not known: no leader, or hidden for long."""
        at, stables = plan.at, self._position.offsets
        held = {p: stables[p] for p, high in self._position.highs.items() if high > stables.get(p, high)}
        self._held = {
            p: self._held[p] if p in self._held and self._held[p][0] == stable else (stable, at)
            for p, stable in held.items()
        }
        hidden = {p for p, (_, since) in self._held.items() if (at - since).total_seconds() > self._limit_s}
        return tuple(sorted(hidden | (plan.nexts.keys() - stables.keys())))

    # --- The log -----------------------------------------------------------------------------------------

    def _plan_parts(self, before: Plan | None) -> tuple[LogPart, ...]:
        """What the batch reads of each partition."""
        known = {part.partition: part for part in before.parts} if before else {}
        self._check_log(before, known)
        ends, epochs = self._position.offsets, self._position.leader_epochs
        new = ends.keys() - known.keys()
        starts = self._fetch_offsets(OffsetSpec.EARLIEST) if new else {}
        froms = {p: known[p].next if p in known else starts[p] for p in ends if p in known or p in starts}
        counts = limit_offsets({p: max(0, ends[p] - at) for p, at in froms.items()}, self._max_offsets)
        parts = dict(known)
        for p, at in froms.items():
            first, end = known[p].first if p in known else at, at + counts[p]
            # Without new records, the epoch stays: that of the leader that knew the offset.
            start_epoch = known[p].end_epoch if p in known else -1
            epoch = epochs.get(p, -1) if counts[p] or p not in known else start_epoch
            parts[p] = LogPart(p, first, end, at, end, start_epoch, epoch)
        # A partition without a leader reads nothing.
        idle = {
            p: part._replace(start=part.next, end=part.next) for p, part in parts.items() if p not in froms
        }
        return tuple(part for _, part in sorted((parts | idle).items()))

    def _check_log(self, before: Plan | None, known: Mapping[int, LogPart]) -> None:
        """Raises `DataLost` if the log is not the one that was read, or ends below what was read.

        The latter has to be seen twice in a row: a new leader may not know its last stable offset at once.
        """
        if before and before.topic_id and self._position.topic_id not in ("", before.topic_id):
            raise make_recreated_error(self.name, self._topic, before.topic_id, self._position.topic_id)
        ends = self._position.offsets
        truncated = {p for p, end in ends.items() if p in known and end < known[p].next}
        confirmed, self._truncated = sorted(truncated & self._truncated), truncated
        for p in confirmed:
            raise DataLost(
                f"cluster {self.name}: partition {p} of {self._topic} ends at {ends[p]}, below offset "
                f"{known[p].next} that was read: the log was truncated; read it under another name of the "
                "cluster, or into new tables"
            )

    def _fetch_position(self) -> None:
        """Sets up to where the log can be read now."""
        self._position = fetch_position(self._cluster, self.name, self._topic)

    def _fetch_offsets(self, spec: OffsetSpec) -> dict[int, int]:
        """Offsets of the offsets topic; partitions with an error are left out."""
        at = [TopicPartition(self._topic, p) for p in self._position.offsets]
        offsets = self._cluster.fetch_offsets(at, spec, Isolation.READ_COMMITTED)
        return {each.partition: offset for each, offset in offsets.items() if isinstance(offset, int)}


def make_recreated_error(cluster: str, topic: str, known_id: str, topic_id: str) -> DataLost:
    """The error for a topic that was created again since it was read."""
    return DataLost(
        f"cluster {cluster}: the topic {topic} was created again (its id was {known_id}, now it is "
        f"{topic_id}): the new log does not continue the one that was read; read it under another name of "
        "the cluster, or into new tables"
    )
