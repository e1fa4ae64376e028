"""Reads many clusters at once, as one stream of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from koff.client.closing import Closing
from koff.client.cluster import OffsetSpec
from koff.client.message import Message
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf
from koff.client.multicluster.errors import ReadErrors, Unavailable
from koff.client.multicluster.inbox import Inbox, InboxBatch, Slot
from koff.client.multicluster.reading_threads import FeedStream, GroupStream, MessageStream
from koff.client.multicluster.stats import ReaderStats
from koff.errors import Closed, ConfigError


class Reader(Closing):
    """All that `configs` name, each of them numbered from 0 (`i` below) as a reader of its own.

    A context manager and an iterator of lists of messages, for any number of threads. When a cluster does
    not answer, the others are read on; it is read again when it is back, without a gap or a repeat.
    """

    def __init__(self, configs: Sequence[ReaderConf]) -> None:
        if not configs:
            raise ConfigError("a reader needs one configuration at least")
        self._slots = [Slot(conf, -1 if conf.group_id else conf.start_offset) for conf in configs]
        self._inbox = Inbox(self._slots)
        self._streams: dict[Slot, FeedStream | GroupStream] = {}
        self._groups: dict[tuple[str, str], GroupStream] = {}
        _refuse_twins(self._slots)
        try:
            for slots in _together(self._slots):
                self._open(slots)
        except BaseException:  # a property that librdkafka refuses
            self.close()
            raise

    def read_message(self, timeout_s: float | None = None) -> list[Message]:
        """The next messages of some cluster, as soon as there is one; none after `timeout_s` without.

        What groups read counts as processed, and is committed before long: before you are done with it, it
        may be; see `fetch_message`. Raises `ReadErrors` when all readers have failed (and were not reported
        since), `Closed` after `close`.
        """
        batches = self._take(timeout_s)
        for batch in batches:
            stream = self._streams[batch.slot]
            if isinstance(stream, GroupStream):
                stream.store(batch.messages)
        return [message for batch in batches for message in batch.messages]

    def fetch_message(self, timeout_s: float | None = None) -> list[Message]:
        """The same, and what groups read is left for `commit_messages`."""
        return [message for batch in self._take(timeout_s) for message in batch.messages]

    def commit_messages(self, *messages: Message) -> None:
        """Commits, for their groups, all up to and with these messages; waits for the coordinators.

        Raises `CommitError`, after each cluster was tried; `Unavailable` for messages of no group.
        """
        by_stream: dict[GroupStream, list[Message]] = {}
        for message in messages:
            stream = self._groups.get((message.cluster, message.topic))
            if stream is None:
                raise Unavailable(
                    f"no group reads {message.topic} at {message.cluster}: nothing to commit there"
                )
            by_stream.setdefault(stream, []).append(message)
        self._check_open()
        commits = [stream.commit(own) for stream, own in by_stream.items()]
        failures = [failure for done in commits if (failure := done.exception()) is not None]
        if failures:
            raise failures[0]

    def lag(self, i: int) -> int:
        """How many offsets followed the last message read when it was fetched; else -1, as with a group."""
        return self._slots[i].lag

    def offset(self, i: int) -> int:
        """The next offset to be read; -1 with a group. Before the first answer it may be FIRST_OFFSET."""
        return self._slots[i].offset

    def read_lag(self, i: int) -> int:
        """How many offsets there are now from `offset(i)` to the end, which the cluster is asked for."""
        slot, stream = self._without_group(i)
        end = stream.ask(slot.partition, OffsetSpec.LATEST)
        return max(end - slot.offset, 0) if slot.offset >= 0 else 0

    def set_offset(self, i: int, offset: int) -> None:
        """Reads on from that offset (FIRST_OFFSET and LAST_OFFSET too); what waits to be read is dropped."""
        slot, stream = self._without_group(i)
        if offset < 0 and offset not in (FIRST_OFFSET, LAST_OFFSET):
            raise ValueError(f"{offset} is no offset: 0 or more, FIRST_OFFSET or LAST_OFFSET")
        with self._inbox.lock:
            slot.generation += 1
            slot.offset, slot.lag, slot.error, slot.failure = offset, -1, None, ""
            self._inbox.drop(lambda batch: batch.slot is slot)
            stream.move(slot, offset)

    def set_offset_at(self, i: int, at: datetime | float) -> None:
        """Reads on from the first message at or after that time (a number is seconds since the epoch).

        Where there is none yet, from the end. Raises `ConnectError` or `ReadError` when the cluster does
        not tell.
        """
        slot, stream = self._without_group(i)
        seconds = at.timestamp() if isinstance(at, datetime) else at
        found = stream.ask(slot.partition, int(seconds * 1000))
        self.set_offset(i, found if found >= 0 else stream.ask(slot.partition, OffsetSpec.LATEST))

    def stats(self, i: int) -> ReaderStats:
        """What that reader did since the last call, or since it was made."""
        with self._inbox.lock:
            return self._slots[i].stats()

    def close(self) -> None:
        """Stops reading; groups commit what was read, and are left. Safe to call twice."""
        with self._inbox.lock:
            closed, self._inbox.closed = self._inbox.closed, True
        if closed:
            return
        self._inbox.close()
        for stream in dict.fromkeys(self._streams.values()):
            stream.close()

    def __iter__(self) -> Iterator[list[Message]]:
        """What `read_message` gives, until the reader is closed."""
        try:
            while True:
                yield self.read_message()
        except Closed:
            return

    def _open(self, slots: Sequence[Slot]) -> None:
        stream: FeedStream | GroupStream
        if slots[0].conf.group_id:
            stream = GroupStream(slots[0], self._inbox)
            self._groups[slots[0].name, slots[0].conf.topic] = stream
        else:
            stream = FeedStream(slots, self._inbox)
        stream.start()
        self._streams.update(dict.fromkeys(slots, stream))

    def _take(self, timeout_s: float | None) -> list[InboxBatch]:
        self._check_open()
        batches, errors = self._inbox.take(timeout_s)
        if errors:
            raise ReadErrors(errors)
        if not batches:
            self._check_open()
        return batches

    def _check_open(self) -> None:
        if self._inbox.closed:
            raise Closed("the reader is closed")

    def _without_group(self, i: int) -> tuple[Slot, FeedStream]:
        self._check_open()
        slot = self._slots[i]
        stream: MessageStream = self._streams[slot]
        if not isinstance(stream, FeedStream):
            raise Unavailable(f"group {slot.conf.group_id} keeps the offsets of reader {i}: ask it for them")
        return slot, stream


def _together(slots: Sequence[Slot]) -> list[list[Slot]]:
    """The readers that can share a client: partitions of one topic, reached and fetched in one way."""
    shared: dict[object, list[Slot]] = {}
    for slot in slots:
        conf = slot.conf
        alike = (
            *(conf.brokers, conf.topic, conf.name, tuple(sorted(conf.properties.items()))),
            *(conf.min_bytes, conf.max_bytes, conf.max_wait_s, conf.fail_after_s, conf.isolation),
        )
        shared.setdefault(slot if conf.group_id else alike, []).append(slot)
    return list(shared.values())


def _refuse_twins(slots: Sequence[Slot]) -> None:
    seen = set()
    for slot in slots:
        place = (slot.name, slot.conf.topic, slot.partition)
        if place in seen:
            raise ConfigError(
                f"two configurations read {slot.conf.topic} at {slot.name}: give each group's cluster a name "
                "of its own, and each partition one reader"
            )
        seen.add(place)
