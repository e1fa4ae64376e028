"""`PartitionConsumer` reads one partition. It shares a feed (a librdkafka client) with other consumers."""

import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future

from koff.client.batch import BATCH_MESSAGES, Batch
from koff.client.broker.conf import ConsumerConf
from koff.client.calls import get_result
from koff.client.closing import Closing
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.errors import NoData, NoDataInTime, OffsetOutOfRange, TopicRecreated, Woken
from koff.client.feed.partition_buffer import PartitionBuffer
from koff.client.feed.shared_feed import SharedFeed
from koff.client.message import Message
from koff.client.patience import PATIENCE_S
from koff.client.start_offset import StartOffset, parse_start
from koff.errors import Closed, ConfigError, ConnectError, Denied, copy_error
from koff.logs import get_logger

log = get_logger("client")

_WAIT_S = 0.1
"""How long a consumer waits for messages before it checks its timeouts again."""
LEAST_WAIT_S = 0.001
"""How long a call without time waits: nothing is fetched while nobody waits."""
_CHECK_WAIT_S = 0.01
"""How long consumers wait for messages while the end of a partition is requested."""


class PartitionConsumer(Closing):
    """Reads one partition in order. A `Consumer`, a context manager and an iterator.

    Only one thread may read at a time; any thread may wake or close it. When a broker restarts or the leader
    changes, the consumer waits and then continues. After `ConnectError`, `NoData` or `OffsetOutOfRange` the
    next call resumes at the same offset.
    """

    def __init__(
        self,
        feed: SharedFeed,
        buffer: PartitionBuffer,
        conf: ConsumerConf,
        *,
        patience_s: float,
        check_after_s: float = PATIENCE_S,
        owner: object = None,
    ) -> None:
        self.conf = conf
        self.feed = feed
        self.buffer = buffer
        self.topic, self.partition = buffer.topic, buffer.partition
        self._patience_s = patience_s
        """How long the leader may be silent before `ConnectError` is raised."""
        self._check_after_s = check_after_s
        """The same for a partition at its end, before the leader is requested to respond."""
        self._owner = owner  # the connection, which would close itself without a reference
        self._unread: Iterator[Message] = iter(())
        self.skipped = 0
        """How many offsets `on_out_of_range` has skipped."""
        self._has_timed_out = self._is_woken = False
        self._told_offset: int | None = None
        """The offset of the last `OffsetOutOfRange` that the consumer raised."""
        self._fails_at: float | None = None
        """When the leader's silence becomes an error (monotonic). None: it has responded."""
        self._check: Future[int] | None = None  # the end offset, requested from the leader
        self.start_waiting()

    @property
    def closed(self) -> bool:
        """Whether the consumer, or the connection that made it, was closed."""
        return self.buffer.closed

    def __repr__(self) -> str:
        return f"<Consumer of {self.topic}/{self.partition}{', closed' if self.closed else ''}>"

    def __del__(self) -> None:
        """Stops reading for a consumer that nobody closed."""
        buffer = getattr(self, "buffer", None)  # missing if `__init__` failed
        if buffer is not None and not buffer.closed and not self.is_of_other_process:
            warning = f"{self!r} was not closed"
            self.feed.abandon_buffer(buffer)
            warnings.warn(warning, ResourceWarning, source=self, stacklevel=2)

    def wake(self) -> None:
        """Makes a call of another thread that waits for messages raise `Woken`, or else the next wait."""
        self._is_woken = True

    def close(self) -> None:
        """Stops reading. Safe to call twice."""
        self.feed.close_buffer(self.buffer)

    def __iter__(self) -> Iterator[Message]:
        """The messages. Ends where `consume` would raise `NoData`, and when the consumer is closed."""
        try:
            while True:
                buffer = self.buffer  # `seek` replaces it
                for message in self._unread:
                    if buffer.closed:
                        break
                    yield message
                self._unread = iter(self.consume_batch())
        except (NoData, Closed):
            return

    def consume(self, *, timeout_s: float | None = None) -> Message:
        """The next message, as soon as there is one.

        Raises `NoDataInTime` when none comes within `timeout_s` (0: none was fetched already), `NoData` when
        the retry limit is set and used up, `OffsetOutOfRange` when the partition does not have the next
        offset and `on_out_of_range` is None, `ConnectError` when the leader does not respond within the
        retries, `UnknownTopic`, `Denied`, and `Closed`.
        """
        for message in self._unread:
            if self.buffer.closed:  # `consume_batch` raises `Closed`
                break
            return message
        self._unread = iter(self.consume_batch(timeout_s=timeout_s))
        return next(self._unread)

    def consume_batch(self, max_messages: int = BATCH_MESSAGES, *, timeout_s: float | None = None) -> Batch:
        """The next messages, at least one, as soon as there are any.

        Raises as `consume` does, and `ConfigError` if `max_messages` is less than 1.
        """
        if max_messages < 1:
            raise ConfigError(f"a batch of {max_messages} messages cannot be consumed: use 1 or more")
        until = check_timeout(timeout_s)
        # Otherwise a caller with short timeouts would never learn that the leader is silent.
        if not self._has_timed_out:
            self.start_waiting()
        self._has_timed_out, has_waited = False, False
        while True:
            batch = self.poll_batch(max_messages)
            if batch is not None:
                return batch
            if self._is_woken:
                self._is_woken = False
                raise Woken(f"the wait for messages of {self.topic}/{self.partition} was ended by wake")
            left_s = until - time.monotonic()
            if left_s <= 0 and has_waited:
                self._has_timed_out = True
                raise NoDataInTime(f"nothing came from {self.topic}/{self.partition} within {timeout_s} s")
            # At least once, also without a timeout: nothing is fetched while nobody waits.
            wait_s, has_waited = max(min(left_s, _WAIT_S), LEAST_WAIT_S), True
            if self._check is not None:
                futures.wait([self._check], wait_s)
            else:
                self.feed.wait_for_messages([self.buffer], wait_s, max_messages)

    def position(self) -> int:
        """The offset of the next message, as far as it is known: there may be none at that offset.

        Before the first message of StartOffset.OLDEST it is requested, and raises as `Broker.offsets` does.
        """
        self._check_open()
        unread = list(self._unread)
        self._unread = iter(unread)
        position = unread[0].offset if unread else self.feed.find_position(self.buffer)
        if position == StartOffset.OLDEST:
            return self._fetch_offset(OffsetSpec.EARLIEST, self.conf.isolation)
        return position

    def seek(self, offset: int | str) -> None:
        """Continues at that offset, or at a `StartOffset`, also as text. Drops what was read ahead.

        If the partition does not have the offset, the next call raises `OffsetOutOfRange`. Raises
        `ConfigError` for other negative offsets, and for the newest offset what `Broker.offsets` raises.
        """
        self._check_open()
        old, start = self.buffer, parse_start(offset)
        if start == StartOffset.NEWEST:
            start = self._fetch_offset(OffsetSpec.LATEST, self.conf.isolation)
        self.buffer = self.feed.open_buffer(old.topic, old.partition, start)
        self.feed.close_buffer(old)
        self._unread, self._check, self._fails_at = iter(()), None, None
        self.start_waiting()

    def _fetch_offset(self, spec: OffsetSpec, isolation: Isolation) -> int:
        """The start or end offset of the partition now. Raises as `SharedFeed.fetch_offset` does."""
        return self.feed.fetch_offset(TopicPartition(self.topic, self.partition), spec, isolation)

    def _check_open(self) -> None:
        self.check_process()
        if self.buffer.closed:
            raise Closed(f"the consumer of {self.buffer.topic}/{self.buffer.partition} is closed")

    def start_waiting(self) -> None:
        """Lets the timeouts of `poll_batch` count from now."""
        self._waiting_since = time.monotonic()

    def poll_batch(self, max_messages: int) -> Batch | None:
        """Messages that were fetched already, None if there are none. Waits neither for a fetch nor a leader.

        Raises as `consume` does, once the timeouts since `start_waiting` have passed.
        """
        buffer = self.buffer
        self._check_open()
        # First the rest of the batch of an earlier `consume`, then the messages that the feed has fetched.
        if unread := list(self._unread):
            self._unread = iter(unread[max_messages:])
            return Batch(buffer.topic, buffer.partition, unread[:max_messages])
        messages = self.feed.take_messages(buffer, max_messages)
        if messages:
            self._fails_at, self._check = None, None
            self.start_waiting()
            return Batch(buffer.topic, buffer.partition, raw=messages, cluster=self.feed.cluster_name)
        # Nothing was fetched: there is an error, the leader does not respond, or the partition is at its end.
        if buffer.lost_reason or buffer.error or buffer.is_recreated:
            self._handle_buffer_error()
            return None
        if self._check is None and self._should_check_leader(time.monotonic()):
            self._check = self.feed.request_end(buffer)
        elif self._check is not None and self._check.done():
            check, self._check = self._check, None
            self._finish_check(check)
        return None

    @property
    def is_checking(self) -> bool:
        """Whether a request to the leader is under way. `poll_batch` raises its error afterwards."""
        return self._check is not None

    @property
    def silent_since(self) -> float:
        """Since when the caller waits for a response of the leader (monotonic)."""
        return max(self._waiting_since, self.buffer.last_response_at)

    @property
    def is_failing(self) -> bool:
        """Whether the leader has not responded to the last request for the end offset."""
        return self._fails_at is not None

    @property
    def end_reached(self) -> int | None:
        """The end offset, if all before it was handed over. There may be control records before it."""
        return None if self.buffer.is_ready else self.buffer.end_offset

    def _should_check_leader(self, now: float) -> bool:
        """Whether messages are overdue, or the partition has been at its end for `no_data_after_s`."""
        buffer, conf = self.buffer, self.conf
        # Not at the end: a fetch response is overdue after `retry_err_wait_s`.
        if buffer.end_offset is None or self.feed.unreachable or self.is_failing:
            return now - self.silent_since >= conf.retry_err_wait_s
        # At the end: librdkafka repeats empty fetches itself, so `retry_limit` is turned into a time.
        at_end_since = max(self._waiting_since, buffer.end_seen_at)
        is_over = conf.retry_limit >= 0 and now - at_end_since >= conf.no_data_after_s
        return is_over or now - self.silent_since >= self._check_after_s

    def _finish_check(self, check: Future[int]) -> None:
        """Raises `NoData` if the partition has no more messages, and the error if the request has failed.

        `NoData` is never raised because of a timeout only: the leader has confirmed the end offset.
        """
        buffer = self.buffer
        try:
            end = get_result(check)
            if buffer.is_recreated:
                return  # the next `poll_batch` handles it
            if end < buffer.next_offset:
                # Either an open transaction: the last stable offset may be lower. Or the log ends before the
                # next offset, for example because the topic was deleted and created again. librdkafka does
                # not report that at the end of a partition.
                out_of_range = self._make_out_of_range()
                if out_of_range.latest < out_of_range.offset:
                    self._leave_range(out_of_range)
                    return
        except Denied:  # also a `ConnectError`, but a retry does not help
            raise
        except ConnectError as error:
            self._raise_after_patience(error)
        else:
            self._fails_at = None
            if end <= buffer.next_offset:
                self._raise_no_data()
        self.start_waiting()

    def _raise_no_data(self) -> None:
        """Raises `NoData` if the partition has been at its end for long enough."""
        buffer = self.buffer
        if buffer.end_offset is None:
            # librdkafka reports no end to a consumer between the last stable offset and the high watermark.
            self.feed.note_end(buffer, buffer.next_offset)
        elif self.conf.retry_limit >= 0:
            last = buffer.next_offset - 1
            raise NoData(f"{buffer.topic}/{buffer.partition} has no message after offset {last} yet")

    def _leave_range(self, error: OffsetOutOfRange) -> None:
        """Continues where `on_out_of_range` says, or raises the error."""
        to = self.conf.on_out_of_range
        self._told_offset = error.offset
        if to is None:
            raise error
        self.resume_at(error.earliest if to is StartOffset.OLDEST else StartOffset.NEWEST, error)

    def resume_at(self, offset: int, error: OffsetOutOfRange) -> int:
        """Continues at that offset after the error, with a warning. Returns how many offsets it has skipped.

        They are added to `skipped`. Of a topic that was created again, all in the new log before the offset
        are skipped. Raises as `seek` does.
        """
        self.seek(offset)
        resumed_at, is_recreated = self.buffer.next_offset, isinstance(error, TopicRecreated)
        skipped = max(resumed_at - (error.earliest if is_recreated else error.offset), 0)
        self.skipped += skipped
        log.warning(
            "the topic was deleted and created again: reading continues in its new log"
            if is_recreated
            else "the next offset is not in the log: reading continues elsewhere",
            topic=error.topic,
            partition=error.partition,
            cluster=self.feed.cluster_name,
            offset=error.offset,
            log_start=error.earliest,
            log_end=error.latest,
            resumed_at=resumed_at,
            skipped=skipped,
        )
        return skipped

    def _raise_after_patience(self, error: ConnectError) -> None:
        """Raises the error if the leader has not responded for `patience_s`, and again after that time."""
        now = time.monotonic()
        if self._fails_at is None:
            self._fails_at = now + self._patience_s
        if now >= self._fails_at:
            self._fails_at = now + self._patience_s
            raise error

    def _handle_buffer_error(self) -> None:
        """Raises the buffer's error, or leaves the range. Clears it, so that the next call reads again."""
        buffer, is_recreated = self.buffer, self.buffer.is_recreated
        if buffer.error is not None:
            error = buffer.error
            self.feed.clear_error(buffer)
            raise error
        try:
            found = self._make_out_of_range(TopicRecreated if is_recreated else OffsetOutOfRange)
        except Denied:
            raise
        except ConnectError as failure:  # not cleared: the next call must not go on in the log of a new topic
            self._raise_after_patience(failure)
            time.sleep(_WAIT_S)
            return
        self.feed.clear_error(buffer)
        # librdkafka may report the failed fetch after koff has requested the end of the log: the consumer has
        # raised `OffsetOutOfRange` for that offset then, and the log has it now.
        is_in_log = found.earliest <= found.offset <= found.latest
        if is_recreated or found.offset != self._told_offset or not is_in_log:
            self._leave_range(found)

    def _make_out_of_range(self, kind: type[OffsetOutOfRange] = OffsetOutOfRange) -> OffsetOutOfRange:
        earliest = self._fetch_offset(OffsetSpec.EARLIEST, Isolation.READ_UNCOMMITTED)
        latest = self._fetch_offset(OffsetSpec.LATEST, Isolation.READ_UNCOMMITTED)
        return kind(self.topic, self.partition, self.buffer.position, earliest, latest)


Read = tuple[PartitionConsumer, PartitionBuffer, Batch | Exception]
"""What one consumer had: a batch or an error. It was moved since if it has another buffer."""


def read_consumers(wanted: Mapping[PartitionConsumer, int], wait_s: float) -> list[Read]:
    """The batches and errors of consumers that share a feed. `wanted`: the most messages of each.

    If there are none, waits for messages, up to `wait_s`, and returns []. Raises what librdkafka refuses, and
    `Closed` when the feed is closed.
    """
    read: list[Read] = []
    for consumer, max_messages in wanted.items():
        buffer = consumer.buffer  # `seek` replaces it
        try:
            batch = consumer.poll_batch(max_messages)
        except Exception as error:
            read.append((consumer, buffer, copy_error(error)))
        else:
            if batch is not None:
                read.append((consumer, buffer, batch))
    if not read and wanted:
        if any(consumer.is_checking for consumer in wanted):
            wait_s = min(wait_s, _CHECK_WAIT_S)
        next(iter(wanted)).feed.wait_for_messages([consumer.buffer for consumer in wanted], wait_s)
    return read


def check_timeout(timeout_s: float | None) -> float:
    """When a call with this timeout ends (monotonic). Raises `ConfigError` for a negative timeout."""
    if timeout_s is None:
        return float("inf")
    if timeout_s < 0:
        raise ConfigError(f"timeout_s {timeout_s} is not valid: use 0 or more, or None to wait for ever")
    return time.monotonic() + timeout_s
