"""`Intake`: the thread that reads partitions into a `Delivery`, with a group and without."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic

from koff.client.batch import Batch
from koff.client.broker.conf import ConsumerConf
from koff.client.broker.consumer import PartitionConsumer, read_consumers
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.delivery.delivery import Delivery, P
from koff.client.delivery.partition import PartitionState
from koff.client.errors import OffsetOutOfRange, TopicRecreated
from koff.client.feed.shared_feed import SharedFeed
from koff.client.feed.source import FeedConf
from koff.client.foreign_errors import start_thread
from koff.client.patience import PATIENCE_S
from koff.client.start_offset import StartOffset
from koff.client.topic_watch import WatchedTopic
from koff.errors import ConnectError, Denied, KoffError, copy_error

FETCH_S = 0.1
"""How long one fetch waits for messages. A request of another thread may wait that long."""
RETRY_S = 0.5
"""The pause after an error."""


class Intake(Closing, ABC, Generic[P]):
    """Reads partitions of one cluster, each by a `PartitionConsumer`. All share one librdkafka client.

    A subclass says where partitions start, how many messages may wait, and what becomes of errors. No error
    ends the thread: after `RETRY_S` the partition's next step is tried again. When its leader, or what else
    it needs, does not respond, that is an error after `patience_s`. A leader is requested to respond when a
    partition has been at its end for `check_after_s`.
    """

    def __init__(
        self,
        cluster: Cluster,
        conf: FeedConf,
        delivery: Delivery[P],
        *,
        patience_s: float,
        check_after_s: float = PATIENCE_S,
        make_callbacks: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.partitions: list[P] = []
        """Those that are read, or about to be."""
        self._cluster, self._delivery = cluster, delivery
        self._feed = SharedFeed(cluster, conf, make_callbacks=make_callbacks)
        self._isolation = Isolation(conf.isolation)
        self._patience_s, self._check_after_s = patience_s, check_after_s
        self._watched: dict[str, WatchedTopic] = {}
        self._recreations: dict[TopicPartition, int] = {}
        """How often the topic was created again before the log of the partition that is read."""
        self._stopping = threading.Event()
        name = f"koff-read-{cluster.conf.cluster_name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread. Raises `ConnectError` if this machine allows no more threads."""
        try:
            start_thread(self._thread, f"{self._cluster.conf.cluster_name} cannot be read")
        except BaseException:
            self._close_own()
            self.close()
            raise

    def begin_close(self) -> None:
        """Lets the thread end, without waiting for it."""
        self._stopping.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Ends the thread, and closes its clients. Waits up to `timeout_s` for a call that is under way."""
        self.begin_close()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._feed.close()

    def add(self, partition: P) -> None:
        """Reads the partition until it is LOST. Returns at once."""
        self.partitions.append(partition)

    def wait_for_starts(self, timeout_s: float, *, retry: bool) -> None:
        """Waits until it is certain from where each partition is read that was added before.

        Without `retry`, not for those whose start cannot be found at the first try.
        """
        until, added = time.monotonic() + timeout_s, list(self.partitions)
        while time.monotonic() < until and any(
            each.is_starting and (retry or not each.retry_at) for each in added
        ):
            self._stopping.wait(0.01)

    def fetch_offset(self, partition: P, spec: OffsetSpec | int) -> int:
        """The offset of the partition that `spec` names, now. Raises as `SharedFeed.fetch_offset` does."""
        return self._feed.fetch_offset(partition.topic_partition, spec, self._isolation)

    # --- What a subclass says -------------------------------------------------------------------------------

    @abstractmethod
    def _find_starts(self, partitions: Sequence[P]) -> Mapping[P, int]:
        """Where each partition starts: an offset or a `StartOffset`. Those left out are tried again."""

    @abstractmethod
    def _restart(self, partition: P, error: TopicRecreated) -> int:
        """The offset at which a partition starts whose topic was created again."""

    @abstractmethod
    def _choose_offset(self, partition: P, error: OffsetOutOfRange) -> int:
        """Where reading continues in a log that lacks the next offset. May raise an error."""

    @abstractmethod
    def _find_room(self, partition: P) -> int:
        """How many more messages of the partition may wait."""

    @abstractmethod
    def _note_error(self, partition: P, error: Exception) -> None:
        """Notes an error of the partition, which is tried again unless it is `failed` after that."""

    def _note_failure(self, error: Exception) -> None:
        """Notes an error of all partitions."""
        with self._guard(*self.partitions):
            raise error

    def _note_response(self, partition: P) -> None:
        """Notes that a partition is read again after an error."""

    def _note_starts(self, starts: Mapping[P, int]) -> None:
        """Notes the offsets of partitions that start at the newest offset."""

    def _note_skipped(self, partition: P, error: OffsetOutOfRange, resumed_at: int, skipped: int) -> None:
        """Notes that reading continues elsewhere: so many offsets were skipped."""

    def _may_restart(self, partition: P) -> bool:
        """Whether the new log may be read of a partition whose topic was created again."""
        return True

    def _has_ended(self, partition: P) -> bool:
        """Whether nothing is left to do for the partition."""
        return partition.state is PartitionState.LOST

    def _may_pass(self, error: Exception) -> bool:
        """Whether the error may pass by itself: it counts only after `patience_s`."""
        return isinstance(error, ConnectError) and not isinstance(error, Denied)

    def _step(self) -> None:
        """Does what else is to be done between two fetches."""

    def _close_own(self) -> None:
        """Closes what the subclass has opened. Called by the thread at its end."""

    # --- The thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._step()
                    self._end_partitions()
                    self._start_partitions()
                    self._read_partitions()
                except Exception as error:
                    self._note_failure(copy_error(error))
                    self._stopping.wait(RETRY_S)
        finally:
            self._close_own()

    @contextmanager
    def _guard(self, *partitions: P) -> Iterator[None]:
        """Makes an error of the block one of each of the partitions."""
        try:
            yield
        except Exception as error:
            now = time.monotonic()
            may_pass = self._may_pass(error)
            for each in partitions:
                each.retry_at = now + RETRY_S
                if each.failing_since is None:
                    each.failing_since = now if each.consumer is None else each.consumer.silent_since
                if not may_pass or now >= each.failing_since + self._patience_s:
                    self._note_error(each, copy_error(error))

    def _end_partitions(self) -> None:
        """Stops reading what is not read any more."""
        for each in list(self.partitions):
            if each.state is not PartitionState.READING or each.failed:
                self._stop_reading(each)
            if self._has_ended(each):
                self.partitions.remove(each)

    def _stop_reading(self, partition: P) -> None:
        consumer, partition.consumer = partition.consumer, None
        if consumer is not None:
            with suppress(KoffError):  # the feed itself may be what failed
                consumer.close()

    def _start_partitions(self) -> None:
        now = time.monotonic()
        due = [each for each in list(self.partitions) if each.is_starting and now >= each.retry_at]
        fresh = [each for each in due if each.recreated is None]
        starts: dict[P, int] = {}
        if fresh:
            with self._guard(*fresh):
                starts |= self._find_starts(fresh)
            newest = [each for each, start in starts.items() if start == StartOffset.NEWEST]
            starts |= self._find_ends(newest)
        for each in due:
            with self._guard(each):
                if each.recreated is not None and self._may_restart(each):
                    with self._delivery.lock:
                        each.forget()
                    starts[each] = self._restart(each, each.recreated)
                    self._recreations.pop(each.topic_partition, None)
                if starts.get(each, StartOffset.NEWEST) != StartOffset.NEWEST:
                    self._open(each, starts[each])

    def _find_ends(self, partitions: Sequence[P]) -> dict[P, int]:
        """The end offsets of the partitions, as far as they are known."""
        found: dict[P, int] = {}
        if partitions:
            with self._guard(*partitions):
                by_place = {each.topic_partition: each for each in partitions}
                fetched = self._feed.fetch_offsets(by_place, OffsetSpec.LATEST, self._isolation)
                for at, offset in fetched.items():
                    with self._guard(by_place[at]):
                        if isinstance(offset, KoffError):
                            raise copy_error(offset)
                        found[by_place[at]] = offset
                self._note_starts(found)
                return found
        return {}

    def _open(self, partition: P, offset: int) -> None:
        at = partition.topic_partition
        watched = self._watched.setdefault(at.topic, self._feed.watch_topic(at.topic))
        known = self._recreations.setdefault(at, watched.recreations)
        buffer = self._feed.open_buffer(*at, offset, recreations=known)
        conf = ConsumerConf(*at, isolation=self._isolation)
        partition.consumer = PartitionConsumer(
            self._feed, buffer, conf, patience_s=0.0, check_after_s=self._check_after_s
        )
        partition.next_offset, partition.recreated = offset, None

    def _read_partitions(self) -> None:
        now = time.monotonic()
        reading: dict[PartitionConsumer, P] = {}
        wanted: dict[PartitionConsumer, int] = {}
        for each in self.partitions:
            if each.consumer is not None and now >= each.retry_at and (room := self._find_room(each)) > 0:
                reading[each.consumer], wanted[each.consumer] = each, room
        if not reading:
            self._delivery.wait_for_change(FETCH_S / 2)
            return
        for consumer, _, result in read_consumers(wanted, FETCH_S):
            with self._guard(reading[consumer]):
                self._take_result(reading[consumer], consumer, result)
        for consumer, each in reading.items():
            end = consumer.end_reached
            if end is not None and now >= each.retry_at:  # else it has an error, and its end is of before
                each.read_to = end
                self._clear_failure(each, is_failing=consumer.is_failing)

    def _take_result(self, partition: P, consumer: PartitionConsumer, result: Batch | Exception) -> None:
        if isinstance(result, Batch):
            partition.end_offset = self._feed.find_end(consumer.buffer)
            self._put(partition, result)
            self._clear_failure(partition)
        elif isinstance(result, TopicRecreated):
            self._stop_reading(partition)
            self._delivery.drop_messages(partition)
            partition.recreated, partition.recreated_at = result, time.monotonic()
        elif isinstance(result, OffsetOutOfRange):
            resumed_at = self._choose_offset(partition, result)
            self._note_skipped(partition, result, resumed_at, consumer.resume_at(resumed_at, result))
        else:
            raise result

    def _put(self, partition: P, batch: Batch) -> None:
        self._delivery.put(partition, batch)

    def _clear_failure(self, partition: P, *, is_failing: bool = False) -> None:
        if partition.failing_since is not None and not is_failing:
            partition.failing_since = None
            self._note_response(partition)


def find_room(capacity: int, waiting: int) -> int:
    """How many more messages may wait; 0 while there are more than half: small pieces cost much."""
    return capacity - waiting if 2 * waiting <= capacity else 0
