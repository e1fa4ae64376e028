"""A cluster that a `Writer` writes to: its producer, its partitions, and whether it can be reached."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from koff.client.closing import Closing
from koff.client.cluster_conf import TOPIC_PROPAGATION_S, ClusterConf
from koff.client.foreign_errors import describe_error, extract_kafka_error, make_connect_error, start_thread
from koff.client.librdkafka import SilenceTimer, new_client
from koff.client.message_check import choose_timestamp, find_fault
from koff.client.multicluster.balancers import choose_partition
from koff.client.multicluster.conf import WriterConf
from koff.client.multicluster.pending_writes import PendingWrite, WriteCall
from koff.client.multicluster.producer_properties import (
    MESSAGE_REFUSED,
    TOPIC_ABSENT,
    build_producer_properties,
)
from koff.client.multicluster.stats import ClientStatistics, ClusterWrites
from koff.logs import get_logger

log = get_logger("client.multicluster")

_POLL_S = 0.1
_PROBE_S = 1.0
"""How long a metadata request may take, and the pause between requests to a cluster that failed."""
_METADATA_AGE_S = 60.0
"""After this time the metadata of a cluster that is up is requested again: its topic may have grown."""
_QUEUE_FULL_WAIT_S = 0.01
_TAKE_BACK_S = 1.0
"""How long a call that was given up waits for a thread that sends."""
_REPEATED_ERROR_S = 30.0
"""librdkafka reports an error of a connection again only if it did not report the same one in this time."""


class Reach(Enum):
    """Whether a cluster can be written to. UNKNOWN until its first response, error or connect timeout."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


SettleWrite = Callable[["WriteTarget", PendingWrite, "KafkaError | None", Any], None]
"""Called with the result of a write: the error or None, and librdkafka's message, which is None if librdkafka
never accepted the message."""


_FailedWrite = tuple[PendingWrite, KafkaError]


class WriteTarget(Closing):
    """Writes to one cluster. Idempotent: librdkafka's retries neither duplicate nor reorder messages.

    A thread runs the delivery callbacks, and requests the topic's metadata: seldom while the cluster is up,
    and every second after it failed, until it responds. No message is sent to a failed cluster as a test.
    """

    def __init__(
        self,
        name: str,
        cluster: ClusterConf,
        conf: WriterConf,
        settle: SettleWrite,
        on_reach_changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.reach = Reach.UNKNOWN
        self.failure = ""
        self.lacks_topic = False
        """Whether the cluster responds, and has said for longer than a new topic takes that there is none."""
        self._absent_since: float | None = None
        self._cluster, self._conf = cluster, conf
        self._settle, self._on_reach_changed = settle, on_reach_changed
        self._balancer = conf.balancer()
        self._partitions = 0
        self._next_probe_at = 0.0
        self._connect_deadline = time.monotonic() + cluster.connect_timeout_s
        self._broken = False
        self._silence = SilenceTimer()
        self._statistics = ClientStatistics()
        self.counts: Counter[str] = Counter()
        """Those of `ClusterWrites`. The writer's lock guards them."""
        # Guards `_producer` and the balancer, and keeps the messages of different calls apart.
        self._send_lock = threading.Lock()
        # Held while a thread polls. Who waits for it holds `_poll_turn`, or the thread would always be first.
        self._poll_lock, self._poll_turn = threading.Lock(), threading.Lock()
        self._purged: list[PendingWrite] | None = None
        """Messages that librdkafka has given back, while `_purge_unsent` polls."""
        self._purges = 0
        self._client_error_at = -math.inf
        self._stopping = threading.Event()
        self._producer = self._create_producer()
        self._replaced: list[Producer] = []
        """Producers that were replaced, and still have results to report."""
        self._thread = threading.Thread(target=self._run, name=f"koff-write-{name}", daemon=True)

    def start(self) -> None:
        start_thread(self._thread, f"{self.name} cannot be written to")

    def close(self) -> None:
        """Ends the thread. The caller has waited until every write was settled."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        # The last references: librdkafka's threads end with the objects, also if the writer is kept.
        with self._send_lock:
            self._replaced.clear()
            self.__dict__.pop("_producer", None)

    def build_stats(self) -> ClusterWrites:
        """The statistics now. The caller holds the writer's lock."""
        return ClusterWrites(
            reachable=self.reach is Reach.UP,
            failure=self.failure,
            client=self._statistics.read(),
            **self.counts,
        )

    def send_writes(self, writes: Sequence[PendingWrite], timeout_s: float | None = None) -> None:
        """Gives the messages to librdkafka, next to each other and in this order. Each is settled later.

        `timeout_s`: how long to wait for another thread that sends.
        """
        if not self._send_lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            full = KafkaError(KafkaError._QUEUE_FULL, "another call waits for room in librdkafka's queue")
            failed = [(write, full) for write in writes]
        else:
            try:
                until = time.monotonic() + self._conf.write_timeout_s
                failed = self._send_all(writes, until)
            finally:
                self._send_lock.release()
        self._settle_failed(failed)

    def take_back(self, call: WriteCall) -> None:
        """Takes those messages of a call that was given up from librdkafka that were not sent yet.

        They are settled as failed. Messages of the call that librdkafka has after that are in flight. (Or
        another thread sends for so long that koff does not wait for it.)
        """
        if not self._send_lock.acquire(timeout=_TAKE_BACK_S):
            return
        try:
            may_be_unsent = (each.in_librdkafka and self._may_be_unsent(each) for each in call.writes)
            if self._stopping.is_set() or not any(may_be_unsent):
                return
            failed = self._purge_unsent()
        finally:
            self._send_lock.release()
        self._settle_failed(failed)

    def _may_be_unsent(self, write: PendingWrite) -> bool:
        # A message that was here at the last purge and still is, was in flight then.
        return write.last_target is self and write.purges == self._purges

    def _purge_unsent(self) -> list[_FailedWrite]:
        """Takes all unsent messages from librdkafka, and sends those again that were not given up.

        They keep their order, and their place before those of later calls: the caller holds `_send_lock`.
        Returns the others.
        """
        purged: list[PendingWrite] = []
        try:
            with self._poll_turn, self._poll_lock:
                self._purged, self._purges = purged, self._purges + 1
                try:
                    # `blocking` has the opposite meaning in confluent-kafka 2.16: False waits for the purge.
                    # The reports are there after that.
                    self._producer.purge(in_queue=True, in_flight=False, blocking=False)
                    while self._producer.poll(0):
                        pass
                finally:
                    self._purged = None
            return self._send_again(purged)
        except BaseException as fault:  # such as Ctrl-C: no other thread settles these messages
            error = KafkaError(KafkaError._FAIL, repr(fault))
            self._settle_failed([(each, error) for each in purged if not each.in_librdkafka])
            raise

    def _send_again(self, purged: list[PendingWrite]) -> list[_FailedWrite]:
        purged.sort(key=lambda write: write.sequence)
        failed: list[_FailedWrite] = []
        now = time.monotonic()
        for write in purged:
            # librdkafka may have sent the message before, and queued it again after an error.
            write.in_doubt = write.in_doubt or self._had_error_since(write.given_at)
            if write.call.is_given_up():
                failed.append((write, KafkaError(KafkaError._PURGE_QUEUE)))
            elif write.attempt_until <= now:
                failed.append((write, KafkaError(KafkaError._MSG_TIMED_OUT)))
            else:
                failed += self._send_all([write], write.attempt_until)
        return failed

    def _had_error_since(self, at: float) -> bool:
        return self._client_error_at >= at - _REPEATED_ERROR_S

    def _send_all(self, writes: Sequence[PendingWrite], until: float) -> list[_FailedWrite]:
        """Gives the messages to librdkafka; returns those that it does not accept. Needs `_send_lock`."""
        failed: list[_FailedWrite] = []
        for write in writes:
            if write.settled:
                continue
            write.attempt_until, write.last_target = until, self
            error = self._send_one(write)
            if error is not None:
                write.in_librdkafka = False
                failed.append((write, error))
        return failed

    def _settle_failed(self, failed: Sequence[_FailedWrite]) -> None:
        # Without a lock: `_settle` may run `on_completion`, which is the user's code.
        for write, error in failed:
            self._settle(self, write, error, None)

    def _send_one(self, write: PendingWrite) -> KafkaError | None:
        """Gives one message to librdkafka. Returns an error if librdkafka does not accept it."""
        message = write.message
        while True:
            try:
                if fault := find_fault(message):
                    return KafkaError(KafkaError._INVALID_ARG, fault)
                partition = choose_partition(self._balancer, message, self._partitions)
                if write.call.is_given_up():
                    return KafkaError(KafkaError._PURGE_QUEUE)
                # Before the call: the report may come within it.
                write.in_librdkafka, write.given_at, write.purges = True, time.monotonic(), self._purges
                self._producer.produce(
                    self._conf.topic,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    headers=list(message.headers),
                    timestamp=choose_timestamp(message),
                    on_delivery=partial(self._on_delivery, write),
                )
                return None
            except BufferError as full:  # too many bytes in librdkafka's queue (queue.buffering.max.kbytes)
                if self._stopping.wait(_QUEUE_FULL_WAIT_S) or time.monotonic() > write.attempt_until:
                    return KafkaError(KafkaError._QUEUE_FULL, str(full))
            except KafkaException as error:
                kafka_error = extract_kafka_error(error) or KafkaError(KafkaError._FAIL, str(error))
                self._broken = self._broken or kafka_error.fatal()
                return kafka_error
            except Exception as error:  # the user's balancer failed, or a key or value is not bytes
                return KafkaError(KafkaError._INVALID_ARG, describe_error(error))

    def _on_delivery(self, write: PendingWrite, error: KafkaError | None, delivered: Any) -> None:
        write.in_librdkafka = False
        if error is not None and error.code() == KafkaError._PURGE_QUEUE:
            if self._purged is not None:
                self._purged.append(write)
                return
            if not self._had_error_since(write.given_at):
                delivered = None  # it was never sent
        elif error is not None:
            self._broken = self._broken or error.fatal()
            if error.code() not in MESSAGE_REFUSED:  # otherwise the error is about this message only
                self._mark_down(error.str())
        self._settle(self, write, error, delivered)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve_producers()
                if time.monotonic() >= self._next_probe_at:
                    self._probe_cluster()
            except BaseException as error:  # the thread must not end: it settles the messages
                with suppress(BaseException):  # the log of the application may fail, too
                    log.warning("a write thread continues after an error", cluster=self.name, exc_info=error)
                    self._mark_down(f"{type(error).__name__}: {error}")
                self._stopping.wait(_PROBE_S)

    def _serve_producers(self) -> None:
        """Runs delivery callbacks, also those of replaced producers, and replaces a broken producer."""
        with self._poll_turn:
            pass
        with self._poll_lock:
            self._producer.poll(_POLL_S)
            for replaced in self._replaced:
                replaced.poll(0)
        self._replaced = [replaced for replaced in self._replaced if len(replaced)]
        if self._broken:
            self._replace_producer()

    def _probe_cluster(self) -> None:
        """Requests the topic's metadata: how many partitions it has, and whether the cluster responds."""
        try:
            topic = self._producer.list_topics(self._conf.topic, timeout=_PROBE_S).topics[self._conf.topic]
        except KafkaException as error:
            if self._silence.has_expired and not len(self._producer):
                # librdkafka may have forgotten all brokers, see `has_no_broker`: replace the client.
                self._broken = True
                self._silence.restart()
            kafka_error = extract_kafka_error(error)
            self._note_no_response(
                make_connect_error(self._cluster.brokers, [kafka_error] if kafka_error else [])
            )
            return
        # The cluster responded. One partition with a leader is enough to write to it.
        self._silence.restart()
        self._note_topic(topic.error)
        with_leader = [partition for partition in topic.partitions.values() if partition.leader >= 0]
        if topic.error is not None:
            self._mark_down(f"{self._conf.topic}: {topic.error.str()}")
        elif not with_leader:
            self._mark_down(f"all partitions of {self._conf.topic} are leaderless")
        else:
            self._partitions = len(topic.partitions)
            self._mark_up()

    def _note_topic(self, error: KafkaError | None) -> None:
        """Notes whether the topic exists: messages do not wait for one that does not."""
        if error is None or error.code() not in TOPIC_ABSENT:
            self._absent_since, self.lacks_topic = None, False
            return
        now = time.monotonic()
        self._absent_since = now if self._absent_since is None else self._absent_since
        if not self.lacks_topic and now >= self._absent_since + TOPIC_PROPAGATION_S:
            self.lacks_topic = True
            self._on_reach_changed()

    def _note_no_response(self, error: Exception) -> None:
        # While messages are delivered, a failed metadata request alone does not mark the cluster as down.
        if self.reach is Reach.UP:
            self._next_probe_at = time.monotonic() + _PROBE_S
        elif self.reach is Reach.UNKNOWN and time.monotonic() < self._connect_deadline:
            self._next_probe_at = 0.0
        else:
            self._mark_down(str(error))

    def _mark_up(self) -> None:
        was_down, self.reach, self.failure = self.reach is Reach.DOWN, Reach.UP, ""
        self._next_probe_at = time.monotonic() + _METADATA_AGE_S
        if was_down:
            log.info("cluster can be written to again", cluster=self.name, topic=self._conf.topic)
        self._on_reach_changed()

    def _mark_down(self, reason: str) -> None:
        was_down, self.reach, self.failure = self.reach is Reach.DOWN, Reach.DOWN, reason
        self._next_probe_at = time.monotonic() + _PROBE_S
        if not was_down:
            log.warning(
                "cluster cannot be written to: other clusters take its messages until it responds",
                cluster=self.name,
                topic=self._conf.topic,
                reason=reason,
            )
            self._on_reach_changed()

    def _on_client_error(self, error: KafkaError) -> None:
        self._broken = self._broken or error.fatal()
        self._client_error_at = time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._mark_down(str(make_connect_error(self._cluster.brokers, [error])))

    def _replace_producer(self) -> None:
        """Replaces a broken producer by a new one. The messages of the broken one are settled as failed."""
        with self._send_lock:
            broken, self._producer, self._broken = self._producer, self._create_producer(), False
        # The thread polls the broken producer until each of its messages was reported.
        broken.purge()
        self._replaced.append(broken)

    def _create_producer(self) -> Producer:
        properties = build_producer_properties(self.name, self._cluster, self._conf)
        callbacks = {"error_cb": self._on_client_error, "stats_cb": self._statistics.make_callback()}
        producer: Producer = new_client(Producer, properties, **callbacks)
        return producer
