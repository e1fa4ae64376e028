"""A writer to clusters in memory."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from koff.client.closing import Closing
from koff.client.message import Message
from koff.client.message_check import find_fault
from koff.client.multicluster.balancers import Balancer, choose_partition, payload_bytes
from koff.client.multicluster.conf import RWMode, WriterConf
from koff.client.multicluster.errors import WriteError
from koff.client.multicluster.pending_writes import WriteCall
from koff.client.multicluster.stats import NO_VALUES, ClientStats, ClusterWrites, WriterStats
from koff.errors import Closed, KoffError
from koff.kafkatest.memory_broker import MemoryBroker
from koff.kafkatest.memory_producer import MAX_MESSAGE_BYTES, TOO_LARGE
from koff.logs import get_logger

log = get_logger("kafkatest")
_RETRY_S = 1.0


class _Target:
    """A cluster of a writer, and what it acknowledged."""

    def __init__(self, name: str, broker: MemoryBroker, make_balancer: Callable[[], Balancer]) -> None:
        self.name, self.broker, self.balancer = name, broker, make_balancer()
        self.failure = ""
        self.counts: Counter[str] = Counter()


class MemoryWriter(Closing):
    """A writer with the interface of `koff.client.multicluster.Writer`. A call is done when it returns."""

    def __init__(self, brokers: Mapping[str, MemoryBroker], conf: WriterConf) -> None:
        self._conf = conf
        self._targets = [_Target(name, broker, conf.balancer) for name, broker in brokers.items()]
        self._clock = self._targets[0].broker.clock
        self._turn = 0
        self._closed = False
        self._counts: Counter[str] = Counter()
        self._write_s = NO_VALUES

    def write_messages(self, *messages: Message, timeout_s: float | None = None) -> None:
        """Writes the messages. Sets `cluster`, partition and offset. Raises `WriteErrors` and `Closed`.

        A message that no cluster has taken after `timeout_s` has failed.
        """
        if not messages:
            return
        failed = self.begin_write(messages, timeout_s).build_errors()
        if failed is not None and not self._conf.asynchronous:
            raise failed

    def begin_write(self, messages: Sequence[Message], timeout_s: float | None = None) -> WriteCall:
        """A call of `write_messages` that is done, with its errors."""
        call = WriteCall(messages, 0.0, timeout_s)
        with self._clock.changed:
            if self._closed:
                raise Closed("the writer is closed")
            turn = 0 if self._conf.mode is RWMode.PRIMARY_BACKUP else self._turn
            self._turn += 1
            began_s = self._clock.now_s
            limit_s = self._conf.give_up_after_s
            limit_s = limit_s if timeout_s is None else min(limit_s, timeout_s)
            call.errors = [self._write(message, turn, began_s, limit_s) for message in messages]
        if self._conf.on_completion is not None:
            try:
                self._conf.on_completion(messages, call.build_errors())
            except Exception:
                log.exception("on_completion raised an error", messages=len(messages))
        call.done.set_result(None)
        return call

    def give_up(self, call: WriteCall, why: str) -> None:
        """No call waits."""

    def stats(self) -> WriterStats:
        """The statistics since the writer was made."""
        with self._clock.changed:
            clusters = {
                each.name: ClusterWrites(
                    reachable=not each.failure, failure=each.failure, client=ClientStats(), **each.counts
                )
                for each in self._targets
            }
            return WriterStats(write_s=self._write_s, wait_s=NO_VALUES, clusters=clusters, **self._counts)

    def close(self, timeout_s: float | None = None) -> None:
        """Makes every call raise `Closed`. Safe to call twice. There is nothing to wait for."""
        self._closed = True

    def _write(self, message: Message, turn: int, began_s: float, limit_s: float) -> WriteError | None:
        """Tries the clusters from the one whose turn it is, until one takes the message."""
        fault = TOO_LARGE if payload_bytes(message) > MAX_MESSAGE_BYTES else ""
        if fault := find_fault(message) or fault:
            self._counts["errors"] += 1
            return WriteError(fault)
        attempts, reason = 0, ""
        count = len(self._targets)
        while True:
            for step in range(count):
                target = self._targets[(turn + step) % count]
                if target.broker.is_down:
                    target.failure = reason = f"{target.name} does not respond"
                    continue
                attempts += 1
                try:
                    self._append(target, message)
                except KoffError as error:
                    reason = f"{target.name}: {error}"
                    target.counts["failures"] += 1
                else:
                    self._write_s = self._write_s.with_value(self._clock.now_s - began_s)
                    self._counts.update(messages=1, bytes=payload_bytes(message))
                    self._counts.update(retries=attempts - 1, failovers=int(step > 0))
                    return None
                if attempts >= self._conf.max_attempts:
                    break
            gave_up = self._clock.now_s - began_s >= limit_s
            if attempts >= self._conf.max_attempts or gave_up or self._closed:
                self._counts["errors"] += 1
                return WriteError(f"{reason}; gave up after {attempts} attempts")
            self._clock.advance(_RETRY_S)

    def _append(self, target: _Target, message: Message) -> None:
        topic, broker = self._conf.topic, target.broker
        partition = choose_partition(target.balancer, message, max(broker.count_partitions(topic), 1))
        with broker.begin_call("produce", topic=topic, partition=partition, messages=(message,)):
            message.offset = broker.append(topic, partition, [message])
        message.topic, message.partition, message.cluster = topic, partition, target.name
        target.failure = ""
        target.counts["messages"] += 1
        target.counts["bytes"] += payload_bytes(message)
