"""Reads the claimed partitions of one topic, and does all that asks Kafka about them, in its own thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import structlog

from koff.client.closing import Closing
from koff.client.cluster import Cluster, OffsetSpec, TopicPartition
from koff.client.feed.feed import Feed, PartitionLost
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.conf import ConsumerGroupConf, InitialOffset
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.errors import ClaimLost, PartitionError
from koff.client.zookeeper.offset_manager import OffsetManager
from koff.errors import ConnectError, KoffError

log = structlog.get_logger(component="client.zookeeper")
_AT_ONCE = 500
_FETCH_S = 0.1
_RETRY_S = 0.3
_SOON_S = 5.0
"""What passes within that is no trouble: leaders move, topics are made."""
INITIAL = {InitialOffset.OLDEST: OffsetSpec.EARLIEST, InitialOffset.NEWEST: OffsetSpec.LATEST}


class Intake(Closing):
    """From `begin` to `finish` a claim's messages go to `delivery`; `finished` says that one is done with."""

    def __init__(
        self,
        topic: str,
        cluster: Cluster,
        conf: ConsumerGroupConf,
        delivery: Delivery,
        offsets: OffsetManager,
        failed: Callable[[PartitionError], None],
        finished: Callable[[], None],
    ) -> None:
        self._cluster, self._conf = cluster, conf
        self._delivery, self._offsets = delivery, offsets
        self._failed, self._finished = failed, finished
        self._feed = Feed(cluster.conf, topic, conf.feed)
        self._asked: queue.SimpleQueue[tuple[Callable[[Claim], None], Claim]] = queue.SimpleQueue()
        self._again: list[tuple[float, Callable[[Claim], None], Claim]] = []
        self._reading: dict[int, Claim] = {}
        self._next: dict[int, int] = {}
        self._failing: dict[Claim, float] = {}
        self._told: set[Claim] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"koff-intake-{topic}", daemon=True)
        self._thread.start()

    def begin(self, claim: Claim) -> None:
        """Reads the claim's partition from where the group left off."""
        self._asked.put((self._begin, claim))

    def finish(self, claim: Claim) -> None:
        """Reads it no more, and finalizes its offsets; then the claim is `finished`."""
        self._asked.put((self._finish, claim))

    def close(self) -> None:
        """Stops reading."""
        self._closing.set()
        self._thread.join()
        self._feed.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._do_what_is_asked()
            if not self._reading:
                self._closing.wait(_FETCH_S / 2)
                continue
            room = self._delivery.room(_FETCH_S)
            if room <= 0:
                continue
            try:
                self._fetch(room)
            except ConnectError as failure:
                for claim in self._reading.values():
                    self._tell(claim, failure)
                self._closing.wait(_RETRY_S)

    def _fetch(self, room: int) -> None:
        fetched = self._feed.fetch(min(_AT_ONCE, room), _FETCH_S)
        for run in fetched.runs:
            claim = self._reading.get(run.partition)
            if claim is not None:
                self._delivery.put(claim, run.messages)
                self._well(claim)
                self._next[run.partition] = run.next_offset
        for lost in fetched.lost:
            self._note_lost(lost)

    def _do_what_is_asked(self) -> None:
        now = time.monotonic()
        due = [(do, claim) for at, do, claim in self._again if at <= now]
        self._again = [each for each in self._again if each[0] > now]
        while not self._asked.empty():
            due.append(self._asked.get())
        begun: dict[Claim, int | None] = {}
        for do, claim in due:
            try:
                if do == self._begin:
                    self._initialize(claim, begun)
                else:
                    do(claim)
            except ConnectError as failure:
                self._retry(do, claim, failure)
        try:
            self._read(begun)
        except ConnectError as failure:
            for claim in begun:
                self._retry(self._begin, claim, failure)

    def _retry(self, do: Callable[[Claim], None], claim: Claim, failure: KoffError) -> None:
        self._tell(claim, failure)
        self._again.append((time.monotonic() + _RETRY_S, do, claim))

    def _begin(self, claim: Claim) -> None:
        """Stands for `_initialize` and `_read`, which are done for many at a time."""

    def _initialize(self, claim: Claim, begun: dict[Claim, int | None]) -> None:
        """Adds the claim to those whose last offset is known."""
        if claim.state is not ClaimState.READING:
            return
        try:
            last = self._offsets.initialize_partition(*claim.at)
        except ConnectError:
            raise
        except KoffError as failure:
            self._retry(self._begin, claim, failure)
            return
        claim.begun = True
        begun[claim] = last

    def _read(self, begun: dict[Claim, int | None]) -> None:
        """Reads what was begun, each behind its last offset, or from the initial one."""
        begun = {claim: last for claim, last in begun.items() if claim.state is ClaimState.READING}
        new = [claim for claim, last in begun.items() if last is None]
        initial = self._initial(new)
        starts: dict[int, int] = {}
        for claim, last in begun.items():
            found = initial.get(TopicPartition(*claim.at)) if last is None else last + 1
            if isinstance(found, int):
                starts[claim.partition] = found
                self._reading[claim.partition], self._next[claim.partition] = claim, found
                log.debug("reading", topic=claim.topic, partition=claim.partition, offset=found)
            else:
                self._retry(self._begin, claim, ConnectError(f"no offset of it: {found}"))
        if starts:
            self._feed.add(starts)

    def _initial(self, claims: list[Claim]) -> dict[TopicPartition, int | str]:
        """The first offsets of a group without any; newest ones are committed, lest the next start later."""
        if not claims:
            return {}
        spec = INITIAL[self._conf.initial_offset]
        found = self._cluster.offsets([TopicPartition(*claim.at) for claim in claims], spec)
        if spec is OffsetSpec.LATEST:
            for at, offset in found.items():
                if isinstance(offset, int):
                    self._offsets.mark_as_processed(*at, offset - 1)
            self._offsets.flush()
        return found

    def _bound(self, claim: Claim, spec: OffsetSpec) -> int:
        at = TopicPartition(*claim.at)
        found = self._cluster.offsets([at], spec)[at]
        if isinstance(found, str):
            raise ConnectError(f"no offset of {claim.topic}/{claim.partition}: {found}")
        return found

    def _well(self, claim: Claim) -> None:
        self._failing.pop(claim, None)
        self._told.discard(claim)

    def _stop_reading(self, claim: Claim) -> None:
        if self._reading.get(claim.partition) is claim:
            self._feed.remove([claim.partition])
            del self._reading[claim.partition], self._next[claim.partition]
        self._again = [each for each in self._again if each[2] is not claim]
        self._well(claim)

    def _finish(self, claim: Claim) -> None:
        self._stop_reading(claim)
        left_s = max(0.0, claim.deadline - time.monotonic())
        lost = claim.state is ClaimState.LOST
        try:
            self._offsets.finalize_partition(*claim.at, claim.last_delivered, 0.0 if lost else left_s)
        except ConnectError as failure:
            if not lost and left_s > 0:
                raise
            self._fail(claim, failure)
        except ClaimLost as failure:
            log.info("claim lost", topic=claim.topic, partition=claim.partition, why=str(failure))
        except KoffError as failure:
            if not lost:
                self._fail(claim, failure)
        claim.finished = True
        self._finished()

    def _note_lost(self, lost: PartitionLost) -> None:
        """Says what cannot be read any more, and goes on where the log goes on."""
        claim = self._reading.get(lost.partition)
        if claim is None:
            return
        position = self._next[lost.partition]
        self._feed.remove([lost.partition])
        del self._reading[lost.partition]
        self._again.append((time.monotonic(), lambda again: self._go_on(again, position, lost), claim))

    def _go_on(self, claim: Claim, position: int, lost: PartitionLost) -> None:
        if claim.state is not ClaimState.READING:
            return
        first, end = self._bound(claim, OffsetSpec.EARLIEST), self._bound(claim, OffsetSpec.LATEST)
        start = min(max(position, first), end)
        if start > position:
            self._fail(
                claim, KoffError(f"offsets {position} to {start - 1} left the log before they were read")
            )
        elif start < position:
            self._fail(
                claim, KoffError(f"the log ends at {end}, before {position}: it was cut, or made anew")
            )
        self._feed.add({claim.partition: start})
        self._reading[claim.partition], self._next[claim.partition] = claim, start

    def _tell(self, claim: Claim, failure: KoffError) -> None:
        """Of what is tried again: once, when it does not pass soon."""
        since = self._failing.setdefault(claim, time.monotonic())
        if time.monotonic() > since + _SOON_S and claim not in self._told:
            self._told.add(claim)
            self._fail(claim, failure)

    def _fail(self, claim: Claim, failure: KoffError) -> None:
        told = PartitionError(claim.topic, claim.partition, str(failure))
        told.__cause__ = failure
        self._failed(told)
