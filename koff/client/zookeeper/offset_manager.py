"""Who keeps a group's offsets: what is asked of a keeper, and what the two have in common."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf, TopicPartition
from koff.client.zookeeper.errors import ClaimLost, UncleanClose
from koff.client.zookeeper.session import Session
from koff.client.zookeeper.znodes import GroupPaths
from koff.errors import KoffError

log = structlog.get_logger(component="client.zookeeper")
Holds = Callable[[str, int], bool]
"""Whether a partition is ours, asked of ZooKeeper."""


class OffsetManager(Protocol):
    """Keeps the offsets of one instance of a group. Called from several threads."""

    def initialize_partition(self, topic: str, partition: int) -> int | None:
        """The last processed offset of a partition that is about to be consumed; None when there is none.

        A partition may be begun and finished many times.
        """

    def mark_as_processed(self, topic: str, partition: int, offset: int) -> bool:
        """Notes that all messages up to that offset were processed; whether it will be committed."""

    def flush(self) -> None:
        """Commits what was noted, now. Raises `KoffError` for what could not be."""

    def finalize_partition(
        self, topic: str, partition: int, last_offset: int | None, timeout_s: float
    ) -> None:
        """Commits the rest of a partition of which `last_offset` was handed out last, and is done with it.

        Raises `KoffError` when not all of it could be committed.
        """

    def close(self) -> None:
        """Commits what is left. Raises `KoffError` when that fails."""


class GroupHandle(Protocol):
    """What an offset manager may know of the consumer group that it works for."""

    @property
    def name(self) -> str:
        """The group's name."""

    @property
    def cluster(self) -> ClusterConf:
        """How to connect to the brokers."""

    @property
    def session(self) -> Session:
        """The group's session with ZooKeeper."""

    @property
    def paths(self) -> GroupPaths:
        """Where the group's znodes are."""

    @property
    def commit_interval_s(self) -> float:
        """How often offsets are committed, unless the offset manager has a configuration of its own."""

    def holds(self, topic: str, partition: int) -> bool:
        """Whether this member owns the partition at this moment."""


@dataclass(frozen=True, slots=True)
class OffsetManagerConf:
    """How often to commit, and whether each commit is logged."""

    commit_interval_s: float = 10.0
    verbose_logging: bool = False


@dataclass(slots=True)
class _Kept:
    processed: int | None
    committed: int | None


class PeriodicOffsets(Closing):
    """An `OffsetManager` that commits every interval, by what its kind does to load and store offsets.

    What stands in the store is the next offset to process: one past the last processed.
    """

    def __init__(self, holds: Holds, conf: OffsetManagerConf) -> None:
        self.conf = conf
        self._holds = holds
        self._kept: dict[TopicPartition, _Kept] = {}
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="koff-offsets", daemon=True)
        self._thread.start()

    @abstractmethod
    def _load(self, at: TopicPartition) -> int | None:
        """The next offset as it is stored, None without; whoever had it before cannot store any more."""

    @abstractmethod
    def _store(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        """Stores next offsets of partitions that are ours; those that failed. `ClaimLost`: they are not."""

    @abstractmethod
    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores next offsets of a group that nobody consumes for."""

    def _forget(self, at: TopicPartition) -> None:
        """The partition is not ours any more."""

    def initialize_partition(self, topic: str, partition: int) -> int | None:
        """See `OffsetManager`."""
        at = TopicPartition(topic, partition)
        with self._storing:  # what is being committed is of an earlier claim
            following = self._load(at)
            last = None if following is None else following - 1
            with self._lock:
                self._kept[at] = _Kept(last, last)
        return last

    def mark_as_processed(self, topic: str, partition: int, offset: int) -> bool:
        """See `OffsetManager`. An offset that is behind what was noted before is not committed."""
        with self._lock:
            kept = self._kept.get(TopicPartition(topic, partition))
            if kept is None or (kept.processed is not None and offset <= kept.processed):
                return False
            kept.processed = offset
            return True

    def flush(self) -> None:
        """See `OffsetManager`."""
        failed = self._commit()
        if failed:
            at, cause = next(iter(failed.items()))
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise KoffError(f"{at.topic}/{at.partition}{more} is not committed: {cause}") from cause

    def finalize_partition(
        self, topic: str, partition: int, last_offset: int | None, timeout_s: float
    ) -> None:
        """See `OffsetManager`."""
        at = TopicPartition(topic, partition)
        failed = self._commit(at).get(at)
        if failed is not None and not isinstance(failed, ClaimLost):
            raise failed
        with self._lock:
            kept = self._kept.pop(at, None)
        self._forget(at)
        if failed is not None:
            raise failed
        processed = kept.processed if kept else None
        if last_offset is not None and (processed is None or processed < last_offset):
            raise UncleanClose(
                f"{topic}/{partition}: offsets up to {processed} are committed, and up to {last_offset} were "
                "handed out: the rest will be delivered again; acknowledge all messages, or raise "
                "processing_timeout_s"
            )

    def close(self) -> None:
        """See `OffsetManager`."""
        self._closing.set()
        self._thread.join()
        self.flush()

    def _run(self) -> None:
        while not self._closing.wait(self.conf.commit_interval_s):
            for at, failure in self._commit().items():
                log.warning("not committed", topic=at.topic, partition=at.partition, why=str(failure))

    def _commit(self, only: TopicPartition | None = None) -> dict[TopicPartition, KoffError]:
        with self._storing:
            with self._lock:
                chosen = (
                    self._kept if only is None else {only: self._kept[only]} if only in self._kept else {}
                )
                due = {
                    at: kept.processed
                    for at, kept in chosen.items()
                    if kept.processed is not None and kept.processed != kept.committed
                }
            if not due:
                return {}
            failed = self._store({at: processed + 1 for at, processed in due.items()})
            with self._lock:
                for at, processed in due.items():
                    if at not in failed and at in self._kept:
                        self._kept[at].committed = processed
            if self.conf.verbose_logging:
                for at in due.keys() - failed.keys():
                    log.info("committed", topic=at.topic, partition=at.partition, offset=due[at])
            return failed
