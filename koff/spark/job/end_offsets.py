"""Samples of end offsets: those of all partitions that groups read, as rows of the table `end_offsets`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.offsets.lister import Listed, OffsetLister
from koff.errors import ConnectError, KoffError

log = structlog.get_logger(component="spark.job")
TOPICS_INTERVAL_S = 30.0
"""The time between two listings of the topics, and between two looks for their leaders."""
LEADERS_TIMEOUT_S = 10.0
MOST_REASONS = 5
"""A log line names at most so many reasons."""


class Sample(NamedTuple):
    """One partition at one time. An offset that could not be fetched is None.

    `gone`: the partition does not exist, or koff may not describe its topic.
    """

    at: datetime
    topic: str
    partition: int
    topic_id: str | None
    start_offset: int | None
    end_offset: int | None
    stable_offset: int | None
    gone: bool


SAMPLE_SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        *((name, pa.int64()) for name in ("start_offset", "end_offset", "stable_offset")),
        ("gone", pa.bool_()),
    ]
)
"""The fields of `Sample`, as Arrow has them."""
PartitionOffsets = tuple[int | None, int | None, int | None]
"""Log start offset, end offset and last stable offset of a partition; None for an offset with an error."""
_UNKNOWN: PartitionOffsets = (None, None, None)


class EndOffsetSampler:
    """Takes samples of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._lister = cluster, cluster.lister
        self._partitions: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        self._due = 0.0

    @property
    def topic_names(self) -> dict[str, str]:
        """The name of each topic of the cluster, by topic id, as of the last listing."""
        return {topic_id: name for name, topic_id in self._ids.items()}

    def refresh_topics(self) -> None:
        """Lists the topics and their ids, if the last listing is `TOPICS_INTERVAL_S` old.

        Raises `ConnectError`.
        """
        if time.monotonic() < self._due:
            return
        metadata = self._cluster.fetch_metadata()
        self._partitions = {name: len(partitions) for name, partitions in metadata.topics.items()}
        self._ids = dict(metadata.topic_ids)
        try:
            self._lister.refresh_leaders(timeout_s=LEADERS_TIMEOUT_S)
        except KoffError as error:
            log.debug("the leaders of partitions are as before", why=str(error))
        self._due = time.monotonic() + TOPICS_INTERVAL_S

    def take_sample(self, watched: Collection[tuple[str, int]]) -> list[Sample]:
        """One sample, with a row for each watched partition. Raises `ConnectError`.

        A topic in `watched` is a name; or an id, if the name was not known when the assignment was decoded.
        """
        # Topics: if a watched topic is not in the listing, it may be new, so list the topics again now.
        if any(topic not in self._partitions for topic, _ in watched):
            self._due = 0.0
        self.refresh_topics()
        # Partitions by topic name, without duplicates, and those that exist.
        names = self.topic_names
        partitions = sorted({TopicPartition(names.get(topic, topic), number) for topic, number in watched})
        present = self._select_present(partitions)

        now, found = fetch_offsets(self._lister, present)
        offsets = dict(zip(present, found, strict=True))
        return [
            Sample(
                now,
                at.topic,
                at.partition,
                self._ids.get(at.topic),
                *offsets.get(at, _UNKNOWN),
                at not in offsets,
            )
            for at in partitions
        ]

    def fetch_ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The end offset of each partition that exists and has a leader. Raises `KoffError`."""
        listed = self._lister.list_offsets(self._select_present(partitions))
        return {at: found.offset for at, found in listed.items() if not isinstance(found, str)}

    def _select_present(self, partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
        """Those that exist, in their order, by the last listing."""
        # A record may contain any number, so also a negative one.
        counts = self._partitions
        return [TopicPartition(topic, p) for topic, p in partitions if 0 <= p < counts.get(topic, 0)]


def fetch_offsets(
    lister: OffsetLister, partitions: Sequence[TopicPartition]
) -> tuple[datetime, list[PartitionOffsets]]:
    """The time of the request for end offsets, and the offsets of each partition, in their order.

    Raises `ConnectError`.
    """
    try:
        # The end offsets come last: lag needs commits of about the same time, which are read after this.
        starts = lister.list_offsets(partitions, OffsetSpec.EARLIEST)
        stables = lister.list_offsets(partitions, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        now = datetime.now(UTC)
        ends = lister.list_offsets(partitions)
    except ConnectError:
        raise
    except KoffError as error:  # no broker accepts koff's requests
        raise ConnectError(str(error)) from error
    errors = [error for error in ends.values() if isinstance(error, str)]
    if errors:
        log.warning(
            "some partitions have no end offset: their lag is unknown",
            partitions=len(errors),
            why=sorted(set(errors))[:MOST_REASONS],
        )

    def find_offset(listed: Listed, at: TopicPartition) -> int | None:
        found = listed.get(at)
        return None if found is None or isinstance(found, str) else found.offset

    found = [(find_offset(starts, at), find_offset(ends, at), find_offset(stables, at)) for at in partitions]
    return now, found
