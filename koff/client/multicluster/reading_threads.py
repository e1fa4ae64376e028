"""What fills a reader's inbox: a thread for each cluster and topic, or for each member of a group."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from koff.client.batch import FetchedBatch
from koff.client.closing import Closing
from koff.client.cluster import Cluster, OffsetSpec
from koff.client.cluster import TopicPartition as Place
from koff.client.feed.feed import Feed, PartitionLost
from koff.client.feed.source import FeedConf
from koff.client.foreign_errors import FATAL_AT_START, connect_error, kafka_error
from koff.client.librdkafka import Silence, consume_waiting, new_client
from koff.client.message import Message
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf
from koff.client.multicluster.errors import CommitError, ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch, Slot
from koff.errors import Closed, ConnectError, KoffError

log = structlog.get_logger(component="client.multicluster")

_FETCH_S = 0.1
_RETRY_S = 1.0


class MessageStream(Closing, ABC):
    """A thread that fetches, watches whether the cluster answers, and does what others ask it to.

    The consumer is touched by that thread alone: while it polls, another's call may wait for many seconds.
    """

    def __init__(self, slots: Sequence[Slot], inbox: Inbox) -> None:
        self.slots = slots
        self._inbox = inbox
        self._conf = slots[0].conf
        self._cluster = Cluster(self._conf.cluster())
        self._asking, self._ordering = threading.Lock(), threading.Lock()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._ended = False
        self._heard_at = dict.fromkeys(slots, time.monotonic())
        self._told_at: dict[Slot, float] = {}
        self._watch_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"koff-read-{slots[0].name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and its client. The inbox is closed by now."""
        self._over.set()
        self._thread.join()
        self._cluster.close()

    def ask(self, partition: int, spec: OffsetSpec | int) -> int:
        """An offset of one partition as the cluster tells it now. Raises `ConnectError` or `ReadError`."""
        answer = self._ask([partition], spec)[partition]
        if isinstance(answer, KoffError):
            raise answer
        return answer

    def order(self, do: Callable[[], None]) -> None:
        """Has the thread do that between two fetches."""
        with self._ordering:
            if self._ended:
                raise Closed("the reader is closed")
            self._orders.put(do)

    def _ask(self, partitions: Iterable[int], spec: OffsetSpec | int) -> dict[int, int | KoffError]:
        """An offset of each partition, or why there is none. Raises `ConnectError` when nobody answers."""
        topic, name = self._conf.topic, self.slots[0].name
        with self._asking:
            answers = self._cluster.offsets([Place(topic, p) for p in partitions], spec, self._conf.isolation)
        return {
            place.partition: answer
            if isinstance(answer, int)
            else ReadError(f"{topic} partition {place.partition} at {name}: {answer}")
            for place, answer in answers.items()
        }

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                try:
                    self._obey()
                    self._step()
                    self._watch()
                except KoffError as failure:  # told; perhaps the next try goes better
                    self._fail(failure)
                    self._over.wait(_RETRY_S)
        except Exception as failure:  # without the thread nobody would ever hear of it
            log.exception("reading ended", cluster=self.slots[0].name)
            self._fail(ReadError(f"reading {self.slots[0].name} ended: {failure!r}"))
            raise
        finally:
            with self._ordering:
                self._ended = True
            self._obey()
            self._end()

    def _obey(self) -> None:
        while not self._orders.empty():
            self._orders.get()()

    @abstractmethod
    def _step(self) -> None:
        """One fetch."""

    @abstractmethod
    def _end(self) -> None:
        """Closes the client."""

    def _fail(self, failure: KoffError) -> None:
        for slot in self.slots:
            self._inbox.fail(slot, failure)

    def _heard(self, slots: Iterable[Slot]) -> None:
        self._heard_at.update(dict.fromkeys(slots, time.monotonic()))

    def _expects(self, slot: Slot) -> bool:
        """Whether there is a reason to ask why nothing comes."""
        return True

    def _watch(self) -> None:
        """Asks for a sign of life where nothing was heard for long; without one these readers fail."""
        now, patience_s = time.monotonic(), self._conf.fail_after_s
        silent = {
            max(slot.partition, 0): slot
            for slot, heard_at in self._heard_at.items()
            if now - heard_at >= patience_s and self._expects(slot)
        }
        if not silent or now < self._watch_at:
            return
        answers: dict[int, int | KoffError]
        try:
            answers = self._ask(silent, OffsetSpec.LATEST)
        except KoffError as failure:
            answers = dict.fromkeys(silent, failure)
        self._watch_at = time.monotonic() + _RETRY_S
        for partition, slot in silent.items():
            answer = answers[partition]
            if isinstance(answer, int):
                self._told_at.pop(slot, None)
                self._heard([slot])
                self._inbox.well(slot)
            elif now - self._told_at.get(slot, 0.0) >= patience_s:
                self._told_at[slot] = now
                self._inbox.fail(slot, answer)

    def _messages(self, name: str, partition: int, raw: list[Any]) -> list[Message]:
        messages = list(FetchedBatch(self._conf.topic, partition, raw))
        for message in messages:
            message.cluster = name
        return messages


class FeedStream(MessageStream):
    """Partitions of one topic in one cluster, all over one librdkafka client, without a group."""

    def __init__(self, slots: Sequence[Slot], inbox: Inbox) -> None:
        super().__init__(slots, inbox)
        self._by_partition = {slot.partition: slot for slot in slots}
        self._feed = _WatchedFeed(self._conf.cluster(), self._conf.topic, _feed_conf(self._conf))
        self._generation: dict[int, int] = {}
        self._position: dict[int, int] = {}
        self._wanted = {slot.partition: (slot.offset, slot.generation) for slot in slots}
        self._place_at = 0.0
        self._stuck: set[int] = set()

    def move(self, slot: Slot, offset: int) -> None:
        """Reads that partition on from the offset; the inbox drops what was fetched for the last one."""
        wanted = (offset, slot.generation)

        def do() -> None:
            self._leave(slot.partition)
            self._stuck.discard(slot.partition)
            self._wanted[slot.partition] = wanted
            self._place_at = 0.0

        self.order(do)

    def _step(self) -> None:
        if self._wanted and time.monotonic() >= self._place_at:
            self._place()
        room = self._inbox.room(self.slots, _FETCH_S)
        if not room:
            self._heard(self.slots)  # it is we who do not listen
            return
        fetched = self._feed.fetch(room, _FETCH_S)
        batches = [self._batch(run.partition, run.messages) for run in fetched.runs]
        ended = [self._by_partition[partition] for partition in fetched.ends]
        self._heard([*ended, *(batch.slot for batch in batches)])
        for slot in ended:
            self._inbox.well(slot)
        self._inbox.put(batches)
        for lost in fetched.lost:
            self._lost(lost)

    def _end(self) -> None:
        self._feed.close()

    def _batch(self, partition: int, raw: list[Any]) -> InboxBatch:
        slot = self._by_partition[partition]
        messages = self._messages(slot.name, partition, raw)
        self._position[partition] = messages[-1].offset + 1
        return InboxBatch(slot, self._generation[partition], messages, self._feed.end(partition))

    def _expects(self, slot: Slot) -> bool:
        return slot.partition not in self._stuck

    def _place(self) -> None:
        """Begins to read what is wanted, where it is wanted; what cannot be told now is asked again."""
        self._place_at = time.monotonic() + _RETRY_S
        asked = {FIRST_OFFSET: OffsetSpec.EARLIEST, LAST_OFFSET: OffsetSpec.LATEST}
        offsets: dict[int, int | KoffError] = {p: at for p, (at, _) in self._wanted.items() if at >= 0}
        for named, spec in asked.items():
            partitions = [p for p, (at, _) in self._wanted.items() if at == named]
            try:
                offsets.update(self._ask(partitions, spec))
            except ConnectError:
                pass  # when it goes on like that, watching tells it
        for partition, offset in offsets.items():
            slot = self._by_partition[partition]
            if isinstance(offset, KoffError):
                self._inbox.fail(slot, offset)
                continue
            _, self._generation[partition] = self._wanted.pop(partition)
            self._position[partition] = offset
            self._feed.add({partition: offset})
            with self._inbox.lock:
                if slot.generation == self._generation[partition] and slot.offset < 0:
                    slot.offset = offset

    def _leave(self, partition: int) -> None:
        if self._position.pop(partition, None) is not None:
            self._feed.remove([partition])

    def _lost(self, lost: PartitionLost) -> None:
        """Goes on at the start of the log when that has overtaken us; else only the user knows where."""
        partition, slot = lost.partition, self._by_partition[lost.partition]
        stood, generation = self._position.get(partition, slot.offset), self._generation[partition]
        self._leave(partition)
        self._wanted[partition] = (stood, generation)
        self._place_at = time.monotonic() + _RETRY_S
        what = f"{slot.conf.topic} partition {partition} at {slot.name}"
        if lost.gone:
            cause = f"{what} is not there: {lost.reason}; create it, or leave its reader out"
            self._inbox.fail(slot, ReadError(cause))
            return
        try:
            first, end = self.ask(partition, OffsetSpec.EARLIEST), self.ask(partition, OffsetSpec.LATEST)
        except KoffError as failure:  # it will be tried, and lost, again
            self._inbox.fail(slot, failure)
            return
        if stood < first:
            log.warning("offsets were deleted before they were read", what=what, first=stood, next=first)
            with self._inbox.lock:
                slot.count("skipped", first - stood)
            self._wanted[partition], self._place_at = (first, generation), 0.0
        elif stood > end:
            del self._wanted[partition]
            self._stuck.add(partition)
            cause = f"offset {stood} of {what} is out of range, it has {first} to {end}; set_offset to go on"
            self._inbox.fail(slot, ReadError(cause))
        else:
            log.warning(
                "the log may have been cut and grown: read on", what=what, at=stood, reason=lost.reason
            )


class GroupStream(MessageStream):
    """A member of a consumer group. What is stored is committed at an interval, at rebalances, at the end."""

    def __init__(self, slot: Slot, inbox: Inbox) -> None:
        super().__init__([slot], inbox)
        self._slot = slot
        self._silence = Silence()
        self._join()

    def _join(self) -> None:
        self._consumer: Consumer = new_client(Consumer, _group_properties(self._slot.conf))
        topic = self._slot.conf.topic
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def store(self, messages: Sequence[Message]) -> None:
        """Commits them before long. What was taken from us meanwhile is another member's to commit."""
        offsets = self._offsets(messages)

        def do() -> None:
            for offset in offsets:
                try:
                    self._consumer.store_offsets(offsets=[offset])
                except KafkaException:
                    log.info("not committed: taken away", topic=offset.topic, partition=offset.partition)

        self.order(do)

    def commit(self, messages: Sequence[Message]) -> Future[None]:
        """Done when the coordinator has them."""
        done: Future[None] = Future()
        offsets = self._offsets(messages)

        def do() -> None:
            try:
                self._commit(offsets)
            except Exception as failure:
                done.set_exception(failure)
            else:
                done.set_result(None)

        self.order(do)
        return done

    def _commit(self, offsets: list[TopicPartition]) -> None:
        """What is no longer ours is not committed: its owner may be further on."""
        conf = self._slot.conf
        who = f"group {conf.group_id} at {self._slot.name} did not commit {conf.topic}"
        try:
            ours = {each.partition for each in self._consumer.assignment()}
            kept = [offset for offset in offsets if offset.partition in ours]
            answers: Any = self._consumer.commit(offsets=kept, asynchronous=False) if kept else []
        except KafkaException as failure:
            error = kafka_error(failure)
            raise CommitError(f"{who}: {error.str() if error else failure}") from failure
        for answer in answers:
            if answer.error is not None:
                raise CommitError(f"{who} partition {answer.partition}: {answer.error.str()}")
        gone = sorted({offset.partition for offset in offsets} - ours)
        if gone:
            raise CommitError(f"{who} partitions {gone}: other members have them now and read them again")

    def _step(self) -> None:
        room = self._inbox.room(self.slots, _FETCH_S)
        if not room:
            self._heard(self.slots)
            return
        got = consume_waiting(self._consumer, room, _FETCH_S)
        by_partition: dict[int, list[Any]] = {}
        for message in got:
            error = message.error()
            if error is not None:
                self._inbox.fail(self._slot, self._read_error(error))
            else:
                by_partition.setdefault(message.partition() or 0, []).append(message)
        if by_partition:
            self._heard(self.slots)
            self._silence.broken()
        elif self._silence.cut_off(self._consumer, self._slot.conf.topic) and self._cluster_answers():
            self._consumer.close()  # its group may wait for it until its session ends: no cure for an outage
            self._join()
        slot = self._slot
        self._inbox.put(
            InboxBatch(slot, slot.generation, self._messages(slot.name, partition, raw))
            for partition, raw in by_partition.items()
        )

    def _cluster_answers(self) -> bool:
        try:
            self._ask([0], OffsetSpec.LATEST)
        except ConnectError:
            return False
        return True

    def _end(self) -> None:
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._heard(self.slots)
        with self._inbox.lock:
            self._slot.count("rebalances")

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What waits of these partitions comes to their next owner, who starts after what was committed."""
        self._obey()  # what was read counts, while it can
        gone = {each.partition for each in partitions}
        self._inbox.drop(lambda batch: batch.slot is self._slot and batch.messages[0].partition in gone)

    def _read_error(self, error: KafkaError) -> KoffError:
        conf = self._slot.conf
        if error.code() in FATAL_AT_START or error.code() == KafkaError._ALL_BROKERS_DOWN:
            return connect_error(conf.brokers, [error], was_up=True)
        return ReadError(
            f"group {conf.group_id} cannot read {conf.topic} at {self._slot.name}: {error.str()}"
        )

    def _offsets(self, messages: Sequence[Message]) -> list[TopicPartition]:
        following: dict[int, int] = {}
        for message in messages:
            following[message.partition] = max(message.offset + 1, following.get(message.partition, 0))
        return [TopicPartition(self._slot.conf.topic, *at) for at in following.items()]


class _WatchedFeed(Feed):
    def end(self, partition: int) -> int:
        """Where the partition ended at the last fetch; asks nobody."""
        known = self._client().get_watermark_offsets(TopicPartition(self.topic, partition), cached=True)
        return int(known[1]) if known else -1


def _feed_conf(conf: ReaderConf) -> FeedConf:
    return FeedConf(
        fetch_bytes=conf.max_bytes,
        fetch_max_bytes=conf.max_bytes,
        fetch_min_bytes=conf.min_bytes,
        fetch_wait_ms=int(conf.max_wait_s * 1000),
        isolation=conf.isolation.value,
    )


def _group_properties(conf: ReaderConf) -> dict[str, Any]:
    cluster, feed = conf.cluster(), _feed_conf(conf)
    return {
        **feed.librdkafka(cluster),
        "group.id": conf.group_id,
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": int(conf.commit_interval_s * 1000),
        "enable.partition.eof": "false",
        "auto.offset.reset": "latest" if conf.start_offset == LAST_OFFSET else "earliest",
    }
