"""The protocol of an offset manager, and the part that koff's two offset managers share."""

import threading
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf, TopicPartition
from koff.client.zookeeper.errors import ClaimLost, check_processed, make_koff_error
from koff.client.zookeeper.session import Session
from koff.client.zookeeper.znodes import GroupPaths
from koff.errors import ConnectError, Denied, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.zookeeper")


class OffsetManager(Protocol):
    """Loads and commits the offsets of one member of a group. Called from several threads."""

    def initialize_partition(self, topic: str, partition: int) -> int | None:
        """The last processed offset of a partition that this member starts to consume; None without one.

        The same partition may be initialized and finalized many times.
        """

    def mark_as_processed(self, topic: str, partition: int, offset: int) -> bool:
        """Notes that all messages up to `offset` were processed; returns whether it will be committed."""

    def flush(self) -> None:
        """Commits all noted offsets now. Raises `KoffError` if one could not be committed."""

    def finalize_partition(
        self, topic: str, partition: int, last_offset: int | None, timeout_s: float
    ) -> None:
        """Commits the noted offset of a partition that this member stops consuming; forgets the partition.

        `last_offset` is the offset of the last message that was handed out; None: none was. The offset
        manager may try for `timeout_s`. Called again, with the time that remains, after a `ConnectError` that
        is not `Denied`. Raises another `KoffError` when not all messages up to `last_offset` are committed.
        """

    def close(self) -> None:
        """Commits the remaining offsets. Raises `KoffError` when that fails."""


class GroupHandle(Protocol):
    """The part of a `ConsumerGroup` that its offset manager may use.

    - `cluster`: how to reach the brokers.
    - `session`, `paths`: the member's session with ZooKeeper, and the paths of the group's nodes there.
    - `commit_interval_s`: how often offsets are committed, unless the offset manager has a configuration of
      its own.
    """

    name: str
    cluster: ClusterConf
    session: Session
    paths: GroupPaths
    commit_interval_s: float

    def owns(self, topic: str, partition: int) -> bool:
        """Whether this member owns the partition, as ZooKeeper says now. Raises `ConnectError`."""


@dataclass(frozen=True, slots=True)
class OffsetManagerConf:
    """How often offsets are committed, and whether each commit is logged."""

    commit_interval_s: float = 10.0
    verbose_logging: bool = False


class PeriodicOffsets(Closing):
    """An `OffsetManager` that commits every `commit_interval_s`; a subclass loads and stores the offsets.

    The stored offset is the next offset to process: one past the last processed offset.
    """

    def __init__(self, group: GroupHandle, conf: OffsetManagerConf | None) -> None:
        self.conf = conf or OffsetManagerConf(group.commit_interval_s)
        self._owns = group.owns
        self._processed: dict[TopicPartition, int | None] = {}
        """The last processed offset of each partition between its start and its end; None: none yet."""
        self._due: dict[TopicPartition, int] = {}
        """The last processed offset of each partition where it is not committed yet."""
        # Lock order: `_storing` before `_lock`. `_storing` is held during requests to the store; `_lock` is
        # held only for a moment, because `mark_as_processed` must not wait for the store.
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="koff-offsets", daemon=True)
        self._thread.start()

    @abstractmethod
    def _load_offset(self, partition: TopicPartition) -> int | None:
        """The stored offset, None without one. If the store allows it, also fences earlier owners."""

    @abstractmethod
    def _store_offsets(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        """Stores the next offset of each partition; returns the error of each partition that failed.

        The error is `ClaimLost` for a partition that this member does not own any more.
        """

    @abstractmethod
    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores the next offset of each partition, for a group without members. Raises `KoffError`."""

    def _check_owner(self, partition: TopicPartition) -> None:
        """Raises `ClaimLost` if this member does not own the partition, and `ConnectError`."""
        if not self._owns(*partition):
            raise ClaimLost(f"{partition.topic}/{partition.partition} is owned by another member now")

    def initialize_partition(self, topic: str, partition: int) -> int | None:
        """See `OffsetManager`."""
        at = TopicPartition(topic, partition)
        # Wait for a commit that is under way: it belongs to an earlier claim of the partition.
        with self._storing:
            next_offset = self._load_offset(at)
            last = None if next_offset is None else next_offset - 1
            with self._lock:
                self._processed[at] = last
                self._due.pop(at, None)
        return last

    def mark_as_processed(self, topic: str, partition: int, offset: int) -> bool:
        """See `OffsetManager`. Ignores an offset that is not higher than the noted one, and returns False."""
        at = TopicPartition(topic, partition)
        with self._lock:
            last = self._processed.get(at)
            if at not in self._processed or (last is not None and offset <= last):
                return False
            self._processed[at] = self._due[at] = offset
            return True

    def flush(self) -> None:
        """See `OffsetManager`."""
        self._raise_first_error(self._commit_offsets())

    def _raise_first_error(self, failed: Mapping[TopicPartition, KoffError]) -> None:
        for partition, cause in failed.items():
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise KoffError(
                f"{partition.topic}/{partition.partition}{more} is not committed: {cause}"
            ) from cause

    def finalize_partition(
        self, topic: str, partition: int, last_offset: int | None, timeout_s: float
    ) -> None:
        """See `OffsetManager`. Tries once, and keeps the offset if it is called again after that."""
        at = TopicPartition(topic, partition)
        error = self._commit_offsets(at).get(at)
        if timeout_s > 0 and isinstance(error, ConnectError) and not isinstance(error, Denied):
            raise copy_error(error)
        # Offsets of a claim that has ended must not stay: each later commit would try to store them.
        with self._lock:
            processed = self._processed.pop(at, None)
            self._due.pop(at, None)
        if error is not None:
            raise copy_error(error)
        check_processed(at, processed, last_offset)

    def close(self) -> None:
        """See `OffsetManager`. A partition that was lost is no error: its owner delivers the rest again."""
        self._closing.set()
        self._thread.join()
        failed = self._commit_offsets()
        self._raise_first_error({at: e for at, e in failed.items() if not isinstance(e, ClaimLost)})

    def _run(self) -> None:
        # `_commit_offsets` raises nothing, so the thread does not end before `close`.
        while not self._closing.wait(self.conf.commit_interval_s):
            for (topic, partition), error in self._commit_offsets().items():
                log.warning("offset not committed", topic=topic, partition=partition, why=str(error))

    def _commit_offsets(self, only: TopicPartition | None = None) -> dict[TopicPartition, KoffError]:
        """Stores the offsets that are due: of partition `only`, or of all partitions.

        Returns the error of each partition that failed.
        """
        # Collect the offsets under the lock, and store them without it.
        with self._storing:
            with self._lock:
                due = {at: offset for at, offset in self._due.items() if only in (None, at)}
            if not due:
                return {}
            try:
                failed = self._store_offsets({at: offset + 1 for at, offset in due.items()})
            except Exception as error:  # an error of a library or of a subclass: no offset counts as stored
                failed = dict.fromkeys(due, make_koff_error("the offsets cannot be stored", error))
            stored = {at: offset for at, offset in due.items() if at not in failed}
            with self._lock:
                for at, offset in stored.items():
                    if self._due.get(at) == offset:  # else a later one was processed meanwhile
                        del self._due[at]
            if self.conf.verbose_logging:
                for (topic, partition), offset in stored.items():
                    log.info("offset committed", topic=topic, partition=partition, offset=offset)
            return failed
