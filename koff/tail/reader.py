"""Follows an internal topic such as `__consumer_offsets`: all its partitions, without an end.

The reader survives restarts of brokers, changes of leaders, new partitions and a topic that is deleted and
created again.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from koff.client.batches import RecordRun
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.log_reader import LogReader, LogStart
from koff.errors import ConfigError
from koff.logs import get_logger
from koff.records.topics import OFFSETS_TOPIC

log = get_logger("tail.reader")


@dataclass(frozen=True, slots=True)
class TailReaderConf:
    """The topic to read, and how often to check whether it exists or has new partitions.

    `partitions` None reads all partitions. `start` is "earliest", "latest", or a time in ms since the epoch.
    With `until_ms`, the reader counts as caught up at the first record of that time or later.
    """

    topic: str = OFFSETS_TOPIC
    partitions: frozenset[int] | None = None
    start: Literal["earliest", "latest"] | int = "earliest"
    until_ms: int | None = None
    missing_topic_interval_s: float = 1.0
    growth_interval_s: float = 30.0


@dataclass(slots=True)
class PolledRuns:
    """The result of one `TailReader.poll`.

    `lost` partitions are read again from `conf.start`: the caller must drop all that it knows from their
    records, `runs` of the same poll included.
    """

    runs: list[RecordRun] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class TailReader(Closing):
    """Reads an internal topic. A context manager. One thread polls; any thread may read the properties.

    A partition is caught up when its position reaches the last stable offset that it had when reading began.
    The offset of the last record is never compared: compaction, control records and retention leave gaps.
    """

    def __init__(self, cluster: Cluster, conf: TailReaderConf | None = None) -> None:
        self.conf = conf or TailReaderConf()
        self.caught_up_in_s: float | None = None
        self.topic_exists: bool | None = None
        """None until the topic was looked up for the first time."""
        self._cluster = cluster
        self._log: LogReader | None = None
        # By partition that is read: the next offset, and the offset at which it is caught up
        self._position: dict[int, int] = {}
        self._target: dict[int, int] = {}
        self._not_caught_up: set[int] = set()
        self._missing_count = 0  # partitions to read that are not read yet
        self._topic_id = ""
        self._started = time.monotonic()
        self._topic_check_due = 0.0
        self._records = 0

    def close(self) -> None:
        """Stops reading. Safe to call twice."""
        if self._log is not None:
            self._log.close()

    @property
    def partitions(self) -> list[int]:
        """The partitions that are being read."""
        return sorted(self._position)

    @property
    def behind(self) -> int:
        """How many of the offsets that existed when reading began are not read yet."""
        # list(): another thread may read this property while `poll` adds partitions
        return sum(max(0, target - self._position.get(p, 0)) for p, target in list(self._target.items()))

    @property
    def caught_up(self) -> bool:
        """Whether every offset that existed when reading began was read. True if the topic does not exist."""
        return self.topic_exists is not None and not self._missing_count and not self._not_caught_up

    @property
    def targets(self) -> Mapping[int, int]:
        """The offset at which a partition is caught up, by partition.

        It is the last stable offset when reading began. With `conf.until_ms` it is the first offset of that
        time or later, if that is lower.
        """
        return self._target

    def poll(self, timeout_s: float) -> PolledRuns:
        """The next records. Waits up to about `timeout_s` for the first; with 0, sends no request.

        Raises `ConnectError` if the topic may not be read or cannot be looked up, and `ConfigError` if the
        topic does not have one of `conf.partitions`.
        """
        # Partitions that must be read again, because the topic has changed
        if timeout_s and time.monotonic() >= self._topic_check_due:
            lost = self._check_topic()
            if lost:
                return PolledRuns(lost=lost)
        if not self._position or self._log is None:
            time.sleep(min(timeout_s, max(0.0, self._topic_check_due - time.monotonic())))
            return PolledRuns()
        read = self._log.fetch(timeout_s)
        polled = PolledRuns(read.runs)
        self._records += sum(map(len, read.runs))
        for partition, position in read.positions.items():
            self._move_position(partition, position)
        # Lost partitions: `_mark_lost` makes the next `poll` look up the topic and start them again.
        for loss in read.lost:
            self._mark_lost(loss.partition, loss.reason, gone=loss.gone)
            polled.lost.append(loss.partition)
        if self.caught_up_in_s is None and self.caught_up:
            self.caught_up_in_s = time.monotonic() - self._started
            log.info("caught up", records=self._records, seconds=round(self.caught_up_in_s, 3))
        return polled

    def _move_position(self, partition: int, position: int) -> None:
        self._position[partition] = position
        if position >= self._target[partition]:
            self._not_caught_up.discard(partition)

    def _check_topic(self) -> list[int]:
        """Looks up the topic and begins to read its new partitions. Returns the lost partitions."""
        # The topic: whether it exists, and when to look again
        topic = self._cluster.fetch_topic(self.conf.topic)
        count = topic.partitions if topic else 0
        if topic is None and self.topic_exists is not False:
            log.warning("topic does not exist yet, or may not be described", topic=self.conf.topic)
        self._topic_check_due = time.monotonic() + (
            self.conf.growth_interval_s if topic else self.conf.missing_topic_interval_s
        )
        recreated = bool(topic and self._topic_id and topic.topic_id != self._topic_id)
        if recreated:
            log.warning(
                "topic was deleted and created again: reading it from its start", topic=self.conf.topic
            )
        self._topic_id = topic.topic_id if topic else ""
        # Partitions that are gone, then those that are new
        lost = [p for p in self._position if recreated or p >= count]
        for partition in lost:
            self._remove_partition(partition)
        new = [p for p in self._select_partitions(count) if p not in self._position]
        self._missing_count = len(new)
        if new:
            self._add_partitions(new)
        # Last: other threads read `caught_up`, and a state without partitions must not pass for a full one.
        self.topic_exists = topic is not None
        return lost

    def _add_partitions(self, partitions: list[int]) -> None:
        """Begins to read these partitions."""
        topic_partitions = [TopicPartition(self.conf.topic, p) for p in partitions]
        # Bounds. A partition whose leader did not respond is tried again at the next check of the topic.
        bounds = self._fetch_bounds(topic_partitions)
        if len(bounds) < len(partitions):
            log.warning(
                "no offsets of some partitions yet",
                topic=self.conf.topic,
                count=len(partitions) - len(bounds),
            )
            self._topic_check_due = time.monotonic() + self.conf.missing_topic_interval_s
        if self._log is None:
            self._log = LogReader(self._cluster.lister, self.conf.topic)
        # Positions: where to start and where the partition is caught up
        for partition, (start, end) in bounds.items():
            self._target[partition] = end
            if start < end:
                self._not_caught_up.add(partition)
        positions = {partition: start for partition, (start, _) in bounds.items()}
        self._log.add({partition: LogStart(start) for partition, start in positions.items()})
        self._position.update(positions)
        self._missing_count -= len(bounds)  # last: only now may another thread see `caught_up`
        log.info("reading partitions", topic=self.conf.topic, partitions=len(bounds), offsets=self.behind)

    def _select_partitions(self, count: int) -> list[int]:
        """The partitions to read of a topic that has `count`."""
        partitions = self.conf.partitions
        if partitions is None:
            return list(range(count))
        if count and (missing := sorted(p for p in partitions if p >= count)):
            raise ConfigError(
                f"{self.conf.topic} has no partition {missing[0]}: choose from 0 to {count - 1}"
            )
        return sorted(p for p in partitions if p < count)

    def _fetch_bounds(self, partitions: list[TopicPartition]) -> dict[int, tuple[int, int]]:
        """Start and target offset of each partition whose leader responded."""
        stable = self._cluster.fetch_offsets(partitions, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        match self.conf.start:
            case "latest":
                starts = stable
            case "earliest":
                starts = self._cluster.fetch_offsets(partitions, OffsetSpec.EARLIEST)
            case since_ms:
                starts = self._cluster.fetch_offsets(partitions, since_ms)
        until_ms = self.conf.until_ms
        until = stable if until_ms is None else self._cluster.fetch_offsets(partitions, until_ms)
        bounds = {}
        for p in partitions:
            start, end, last = starts[p], until[p], stable[p]
            if isinstance(start, int) and isinstance(end, int) and isinstance(last, int):  # else: an error
                # An offset by time is -1 if no record is that late.
                end = last if end < 0 else min(end, last)
                bounds[p.partition] = (last if start < 0 else min(start, last), end)
        return bounds

    def _mark_lost(self, partition: int, reason: str, *, gone: bool) -> None:
        event = "partition is gone" if gone else "partition lost: reading it again from its start"
        log.warning(event, partition=partition, why=reason)
        self._remove_partition(partition)
        self._topic_check_due = 0.0

    def _remove_partition(self, partition: int) -> None:
        assert self._log is not None
        self._missing_count += 1  # before the rest: `caught_up` must not be true in between
        self._not_caught_up.discard(partition)
        self._log.remove([partition])
        self._position.pop(partition, None)
        self._target.pop(partition, None)
