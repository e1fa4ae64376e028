"""Tails `__consumer_offsets`: every partition of it, for ever, through all that befalls it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog

from koff.client import (
    Closing,
    Cluster,
    Feed,
    FeedConf,
    Isolation,
    OffsetSpec,
    Run,
    TopicInfo,
    TopicPartition,
)
from koff.errors import ConfigError, ConnectError
from koff.records.topics import OFFSETS_TOPIC

STALL_S = 15.0
"""A partition that has something to read, and none of it came for so long, is not being read."""
log = structlog.get_logger(component="tail.reader")


@dataclass(frozen=True, slots=True)
class TailReaderConf:
    """What to read, and how often to look whether the topic exists or has grown.

    `start` is earliest, latest, or a time in ms; of `until_ms` on, nothing counts as yet to be read.
    """

    topic: str = OFFSETS_TOPIC
    partitions: frozenset[int] | None = None
    start: Literal["earliest", "latest"] | int = "earliest"
    until_ms: int | None = None
    batch_records: int = 2_000
    missing_topic_interval_s: float = 1.0
    growth_interval_s: float = 30.0
    feed: FeedConf = field(default_factory=FeedConf)


@dataclass(slots=True)
class Polled:
    """What one `Reader.poll` brought. `lost` partitions start anew: forget all that they said, `runs` too.

    `full` means that more was waiting.
    """

    runs: list[Run] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    full: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Where to go on in a topic of which something is known: the next offset to read, by partition.

    With the leader epoch of the record before it, where that is known, so that a log which was cut since is
    found out. Of another topic than the one of `topic_id`, nothing is known.
    """

    topic_id: str
    positions: Mapping[int, int]
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


class TailReader(Closing):
    """Reads the offsets topic. A context manager. One thread polls; the properties may be read from any.

    Caught up is judged by position and end of partition, never by the last record's offset: compaction,
    control records and retention leave gaps at the end.
    """

    def __init__(self, cluster: Cluster, conf: TailReaderConf | None = None) -> None:
        self.conf = conf or TailReaderConf()
        self.caught_up_in_s: float | None = None
        self.topic_exists: bool | None = None
        self.topic: TopicInfo | None = None
        self._cluster = cluster
        self._feed: Feed | None = None
        self._position: dict[int, int] = {}
        self._target: dict[int, int] = {}
        self._start: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._known_topic_id = ""
        self._epochs: dict[int, int] = {}
        self._topic_id = ""
        self._waiting = 0
        self._short: set[int] = set()
        self._started = time.monotonic()
        self._look_again = 0.0
        self._records = 0
        self._anew = False
        self._busy = False
        self._still: dict[int, tuple[int, float]] = {}
        self._stalled: list[int] = []

    def close(self) -> None:
        """Stops reading. Safe to call twice."""
        if self._feed is not None:
            self._feed.close()

    def begin(self, begin: Begin) -> None:
        """Partitions named there are read from there, the first time. To be said before the first poll.

        One that has become shorter than that, or is of another topic, is `lost` and read from its start.
        """
        self._known_topic_id = begin.topic_id
        self._known, self._epochs = dict(begin.positions), dict(begin.leader_epochs)

    @property
    def partitions(self) -> list[int]:
        """The partitions of the offsets topic that are being read."""
        return sorted(self._position)

    @property
    def behind(self) -> int:
        """How many offsets are yet to be read of those that there were at the start."""
        return sum(max(0, target - self._position.get(p, 0)) for p, target in list(self._target.items()))

    @property
    def to_read(self) -> int:
        """How many offsets there were to read at the start."""
        return sum(target - self._start[p] for p, target in list(self._target.items()))

    @property
    def caught_up(self) -> bool:
        """Whether all has been read that was there at the start; true when there is no such topic yet."""
        return self.topic_exists is not None and not self._waiting and not self._short

    @property
    def targets(self) -> Mapping[int, int]:
        """The last stable offsets when reading began, by partition."""
        return self._target

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset to read, by partition."""
        return dict(self._position)

    @property
    def trouble(self) -> ConnectError | None:
        """What keeps records from coming in, if something does."""
        return self._feed.trouble if self._feed else None

    def answered(self, asked_at: float) -> None:
        """The cluster answered what was asked at `asked_at` (monotonic): older trouble is over."""
        if self._feed is not None:
            self._feed.answered(asked_at)

    def compare(self, stable: Mapping[int, int]) -> None:
        """Takes the last stable offsets as they are now, now and then, from any thread: a partition that has
        more to read and stood still for `STALL_S`, while none kept us busy, is read by a new client then."""
        now, still = time.monotonic(), dict[int, tuple[int, float]]()
        for partition, position in self.positions.items():
            if position < stable.get(partition, 0) and not self._busy:
                known = self._still.get(partition)
                still[partition] = known if known and known[0] == position else (position, now)
        stalled = [partition for partition, (_, since) in still.items() if now - since > STALL_S]
        self._still = {partition: known for partition, known in still.items() if partition not in stalled}
        self._stalled = stalled

    def begin_anew(self) -> None:
        """All partitions are `lost` at the next poll, and read from their start. From any thread."""
        self._anew = True

    def _revive(self) -> None:
        """Goes on where it was with a client of its own making, whatever befell the one before."""
        stalled, self._stalled = self._stalled, []
        if stalled and self._feed is not None:
            log.warning("partitions stood still: reading on with a new client", partitions=stalled)
            self._feed.close()
            self._feed = Feed(self._cluster.conf, self.conf.topic, self.conf.feed)
            self._feed.add(self._position)

    def poll(self, timeout_s: float) -> Polled:
        """The next records; waits up to about `timeout_s` for one. With 0 it asks the cluster nothing.

        Raises `ConnectError` when the topic may not be read, or cannot be looked for.
        """
        if self._anew:
            self._anew, lost = False, self.partitions
            for partition in lost:
                self._rebuild(partition, "nobody knows what was missed", gone=False)
            return Polled(lost=lost)
        if timeout_s and time.monotonic() >= self._look_again:
            lost = self._look()
            if lost:
                return Polled(lost=lost)
        if not self._position or self._feed is None:
            time.sleep(min(timeout_s, max(0.0, self._look_again - time.monotonic())))
            return Polled()
        self._revive()
        fetched = self._feed.fetch(self.conf.batch_records, timeout_s)
        polled = Polled([run for run in fetched.runs if run.partition in self._target], full=fetched.full)
        self._busy = fetched.full
        for run in polled.runs:
            self._move(run.partition, run.next_offset)
            self._records += len(run)
        for partition, offset in fetched.ends.items():
            if partition not in self._target:
                continue
            self._move(partition, max(self._position.get(partition, 0), offset))
        for loss in fetched.lost:
            self._rebuild(loss.partition, loss.reason, gone=loss.gone)
            polled.lost.append(loss.partition)
        if self.caught_up_in_s is None and self.caught_up:
            self.caught_up_in_s = time.monotonic() - self._started
            log.info("caught up", records=self._records, seconds=round(self.caught_up_in_s, 3))
        return polled

    def _move(self, partition: int, position: int) -> None:
        self._position[partition] = position
        if position >= self._target[partition]:
            self._short.discard(partition)

    def _look(self) -> list[int]:
        """Looks for the topic and for partitions that are new; returns partitions that are no more."""
        topic = self._cluster.fetch_topic(self.conf.topic)
        count = topic.partitions if topic else 0
        if topic is None and self.topic_exists is not False:
            log.info("no such topic yet; waiting for it", topic=self.conf.topic)
        self._look_again = time.monotonic() + (
            self.conf.growth_interval_s if topic else self.conf.missing_topic_interval_s
        )
        again = bool(topic and self._topic_id and topic.topic_id != self._topic_id)
        if again:
            log.warning("the topic was deleted and created again: reading it anew", topic=self.conf.topic)
        self._topic_id = topic.topic_id if topic else ""
        self.topic = topic
        gone = [p for p in self._position if again or p >= count]
        for partition in gone:
            self._drop(partition)
        new = [p for p in self._wanted(count) if p not in self._position]
        self._waiting = len(new)
        if new:
            gone += self._add(new)
        self.topic_exists = topic is not None  # last: an empty state must not pass for a whole one
        return gone

    def _add(self, partitions: list[int]) -> list[int]:
        """Begins to read those partitions; returns those that begin anew, though they were to go on."""
        at = [TopicPartition(self.conf.topic, p) for p in partitions]
        known = self._bounds(at)
        if len(known) < len(at):
            log.warning("partitions not readable yet", topic=self.conf.topic, count=len(at) - len(known))
            self._look_again = time.monotonic() + self.conf.missing_topic_interval_s
        if self._feed is None:
            self._feed = Feed(self._cluster.conf, self.conf.topic, self.conf.feed)
        cut = self._go_on(known)
        for partition, (start, end) in known.items():
            self._start[partition], self._target[partition] = start, end
            if start < end:
                self._short.add(partition)
        positions = {partition: start for partition, (start, _) in known.items()}
        self._feed.add(positions, {p: self._epochs.pop(p) for p in positions if p in self._epochs})
        self._position.update(positions)
        self._waiting -= len(known)
        log.info("reading", topic=self.conf.topic, partitions=len(known), offsets=self.behind)
        return cut

    def _go_on(self, bounds: dict[int, tuple[int, int]]) -> list[int]:
        """Moves the starts to where `begin` said; returns the partitions where that is not possible."""
        cut = []
        for partition, (start, end) in list(bounds.items()):
            position = self._known.pop(partition, None)
            if position is None:
                continue
            if self._known_topic_id == self._topic_id and start <= position <= end:
                bounds[partition] = position, end
            else:
                log.warning("cannot go on: reading anew", partition=partition, at=position, log=[start, end])
                self._epochs.pop(partition, None)
                cut.append(partition)
        return cut

    def _wanted(self, count: int) -> list[int]:
        """The partitions to read, of a topic that has `count`."""
        wanted = self.conf.partitions
        if wanted is None:
            return list(range(count))
        if count and (missing := sorted(p for p in wanted if p >= count)):
            raise ConfigError(f"{self.conf.topic} has no partition {missing[0]}: it has 0 to {count - 1}")
        return sorted(p for p in wanted if p < count)

    def _bounds(self, at: list[TopicPartition]) -> dict[int, tuple[int, int]]:
        """Where to start and what to have read when caught up, of those partitions that answer."""
        stable = self._cluster.offsets(at, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        match self.conf.start:
            case "latest":
                starts = stable
            case "earliest":
                starts = self._cluster.offsets(at, OffsetSpec.EARLIEST)
            case since_ms:
                starts = self._cluster.offsets(at, since_ms)
        until = stable if self.conf.until_ms is None else self._cluster.offsets(at, self.conf.until_ms)
        bounds = {}
        for p in at:
            start, end, last = starts[p], until[p], stable[p]
            if isinstance(start, int) and isinstance(end, int) and isinstance(last, int):
                end = last if end < 0 else min(end, last)
                bounds[p.partition] = (last if start < 0 else min(start, last), end)
        return bounds

    def _rebuild(self, partition: int, reason: str, *, gone: bool) -> None:
        log.warning("partition lost" if gone else "partition starts anew", partition=partition, why=reason)
        self._drop(partition)
        self._look_again = 0.0

    def _drop(self, partition: int) -> None:
        assert self._feed is not None
        self._waiting += 1
        self._short.discard(partition)
        self._feed.remove([partition])
        self._position.pop(partition, None)
        self._target.pop(partition, None)
