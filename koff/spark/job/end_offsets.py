"""The offsets of all partitions that groups read, at one moment."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import structlog

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.offsets.lister import Listed, OffsetLister
from koff.errors import ConnectError, KoffError
from koff.spark.job.samples import OFFSETS

log = structlog.get_logger(component="spark.job")
TOPICS_INTERVAL_S = 30.0
"""The time between two listings of the topics, and between two looks for their leaders."""
LEADERS_TIMEOUT_S = 10.0
MOST_PARTITIONS = 20_000
"""With more partitions than this, only those are sampled that groups use: a group that begins with another
topic then has its first lag one sample later."""
MOST_REASONS = 5
"""A log line names at most so many reasons."""


PartitionOffsets = tuple[int | None, int | None, int | None]
"""Log start offset, end offset and last stable offset of a partition; None for an offset with an error."""
_UNKNOWN: PartitionOffsets = (None, None, None)


class EndOffsetSampler:
    """Takes samples of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._lister = cluster, cluster.lister
        self._partitions: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        """The id of each topic, by name, as of the last listing."""
        self._due = 0.0

    def refresh_topics(self) -> None:
        """Lists the topics and their ids, if the last listing is `TOPICS_INTERVAL_S` old.

        Raises `ConnectError`.
        """
        if time.monotonic() < self._due:
            return
        metadata = self._cluster.fetch_metadata()
        self._partitions = {name: len(partitions) for name, partitions in metadata.topics.items()}
        self.topic_ids = dict(metadata.topic_ids)
        try:
            self._lister.refresh_leaders(timeout_s=LEADERS_TIMEOUT_S)
        except KoffError as error:
            log.debug("the leaders of partitions are as before", why=str(error))
        self._due = time.monotonic() + TOPICS_INTERVAL_S

    def fetch_rows(
        self,
        used: Collection[tuple[str, int]],
        shows: Callable[[str], bool],
        before_ends: Callable[[], object],
    ) -> tuple[datetime, pa.Table]:
        """The time of the request for end offsets, and the offsets of topic partitions (`OFFSETS`).

        These are all partitions of topics that `shows` accepts; if there are too many, those that are `used`.
        `before_ends` is called just before end offsets are requested. Raises `ConnectError`.
        """
        # If a topic is not in the listing, it may be new, so list the topics again now.
        if any(topic not in self._partitions for topic, _ in used):
            self._due = 0.0
        self.refresh_topics()
        wanted = {TopicPartition(*at) for at in used if shows(at[0])}
        if sum(self._partitions.values()) <= MOST_PARTITIONS:
            counts = ((name, count) for name, count in self._partitions.items() if shows(name))
            wanted |= {TopicPartition(name, number) for name, count in counts for number in range(count)}
        partitions = sorted(wanted)
        present = self._select_present(partitions)
        now, found = fetch_offsets(self._lister, present, before_ends)
        offsets = dict(zip(present, found, strict=True))
        rows = [(*at, *offsets.get(at, _UNKNOWN), at not in offsets) for at in partitions]
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(OFFSETS)]
        return now, pa.table(columns, schema=OFFSETS)

    def _select_present(self, partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
        """Those that exist, in their order, by the last listing."""
        # A record may contain any number, so also a negative one.
        counts = self._partitions
        return [TopicPartition(topic, p) for topic, p in partitions if 0 <= p < counts.get(topic, 0)]


def fetch_offsets(
    lister: OffsetLister, partitions: Sequence[TopicPartition], before_ends: Callable[[], object]
) -> tuple[datetime, list[PartitionOffsets]]:
    """The time of the request for end offsets, and the offsets of each partition, in their order.

    `before_ends` is called just before that request. Raises `ConnectError`.
    """
    try:
        # The end offsets come last, and just before them the end of the commits that are read up to them.
        starts = lister.list_offsets(partitions, OffsetSpec.EARLIEST)
        stables = lister.list_offsets(partitions, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        before_ends()
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
