"""What a `Reader` knows of each of its readers, and of each partition that it reads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.stats import NO_VALUES, ClientStats, ReaderStats, Summary
from koff.client.redelivery.acknowledgements import Acknowledgements
from koff.client.redelivery.conf import RedeliveryCounts
from koff.client.redelivery.dead_letters import DeadLetters
from koff.client.redelivery.delivered_partition import DeliveredPartition
from koff.client.redelivery.errors import PartitionError
from koff.errors import KoffError


@dataclass(slots=True, eq=False)
class ReadPartition(DeliveredPartition):
    """A partition from `set_offset` to the next `set_offset`, or from its assignment to its revocation.

    Another one takes its place then: nothing of this one is handed out, acknowledged or committed any more.

    - `start_at`: where the thread has yet to start reading. Messages that come before that are dropped.
    - `assignment`: the number of its assignment to the group's member.
    - `queued`: how many of its messages are in the inbox.
    - `delayed`: messages that failed, each with the time of its next delivery (monotonic).
    - `read_to`: the offset up to which it was read when the end was last reached. It may be after the last
      message: transactions end with control records.
    - `to_commit`: the offset that the group's thread has yet to commit.
    """

    start_at: int | None = None
    assignment: int = 0
    queued: int = 0
    delayed: list[tuple[float, Any]] = field(default_factory=list)
    read_to: int = -1
    to_commit: int | None = None

    def pop_due(self, now: float) -> list[Any]:
        """confluent-kafka's messages that are due to be delivered again, in log order."""
        due = [raw for due_at, raw in self.delayed if due_at <= now]
        self.delayed = [each for each in self.delayed if each[0] > now]
        unprocessed = (raw for raw in due if not self.was_processed(raw.offset()))
        return sorted(unprocessed, key=methodcaller("offset"))


@dataclass(slots=True, eq=False)
class ReaderSubscription:
    """The state of one `ReaderConf` in one cluster: its position, its counts, and its error.

    The inbox's lock guards it. `response_at` and `reported_at` belong to its thread.

    - `partitions`: those that are read now.
    - `failure`: why it cannot be read; None once it can. `is_reported`: the inbox has raised it.
    - `failed_attempts`: how often in a row it could not be read.
    - `ended`: its thread has ended with `failure`; nothing more is read.
    - `paused`: the partitions of which no message is handed out; None in it: all.
    - `response_at`: when its cluster last responded. `reported_at`: when silence was last reported
      (monotonic).
    - `acknowledgements`, `dead_letters`: with `ReaderConf.redelivery`.
    """

    conf: ReaderConf
    cluster_conf: ClusterConf
    offset: int
    lag: int = -1
    partitions: dict[int, ReadPartition] = field(default_factory=dict)
    failure: KoffError | None = None
    is_reported: bool = False
    failed_attempts: int = 0
    ended: bool = False
    paused: frozenset[int | None] = frozenset()
    response_at: float = field(default_factory=time.monotonic)
    reported_at: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    wait_s: Summary = NO_VALUES
    read_s: Summary = NO_VALUES
    acknowledgements: Acknowledgements[ReadPartition] | None = None
    dead_letters: DeadLetters | None = None

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.cluster_conf.cluster_name

    @property
    def partition(self) -> int:
        """The partition that is read; -1 with a group."""
        return -1 if self.conf.group_id else self.conf.partition or 0

    @property
    def free_capacity(self) -> int:
        """The free places in its queue; negative if a fetch returned more messages than there was room for.

        Messages of paused partitions do not count: they must not keep the others from being fetched.
        """
        waiting = (
            len(each.delayed) + (0 if self.is_paused(number) else each.queued)
            for number, each in self.partitions.items()
        )
        return self.conf.queue_capacity - sum(waiting)

    def is_paused(self, partition: int) -> bool:
        """Whether no message of the partition may be handed out."""
        return None in self.paused or partition in self.paused

    def is_read(self, partition: ReadPartition) -> bool:
        """Whether the partition is still read: no later object has taken its place."""
        return self.partitions.get(partition.partition) is partition

    def start_partition(self, number: int, *, start_at: int | None = None, assignment: int = 0) -> None:
        """Reads the partition from now on. What was known of it before is forgotten."""
        self.partitions[number] = ReadPartition(
            self.conf.topic, number, start_at=start_at, assignment=assignment
        )

    def clear_error(self) -> None:
        """Notes that it can be read again, or shall be read elsewhere."""
        self.failure, self.is_reported, self.failed_attempts = None, False, 0

    def accept_acknowledgements(
        self, lock: threading.RLock, on_error: Callable[[PartitionError], None]
    ) -> None:
        """Tracks the messages that are handed out, if the configuration has `redelivery`.

        `lock` is the inbox's. `on_error` gets each message that is passed over.
        """
        redelivery = self.conf.redelivery
        if redelivery is None:
            return
        if redelivery.dead_letter_topic:
            self.dead_letters = DeadLetters(
                self.cluster_conf, redelivery.dead_letter_topic, self.conf.group_id
            )
        self.acknowledgements = Acknowledgements(
            lock,
            max_redeliveries=self.conf.max_redeliveries,
            redelivery=redelivery,
            is_lost=lambda partition: not self.is_read(partition),
            delay=self._delay,
            on_processed=self._note_processed,
            on_error=on_error,
            write_dead_letter=self.dead_letters.write_message if self.dead_letters else None,
        )

    def build_stats(self, client: ClientStats) -> ReaderStats:
        """The statistics now, with those of its client."""
        return ReaderStats(
            cluster=self.cluster,
            topic=self.conf.topic,
            partition=self.partition,
            offset=self.offset,
            lag=self.lag,
            queue_length=sum(each.queued + len(each.delayed) for each in self.partitions.values()),
            queue_capacity=self.conf.queue_capacity,
            failure=str(self.failure or ""),
            wait_s=self.wait_s,
            read_s=self.read_s,
            client=client,
            redelivery=self.acknowledgements.counts if self.acknowledgements else RedeliveryCounts(),
            **self.counts,
        )

    def _delay(self, partition: ReadPartition, raw: Any, delay_s: float) -> None:
        partition.delayed.append((time.monotonic() + delay_s, raw))

    def _note_processed(self, partition: ReadPartition, processed_up_to: int) -> None:
        partition.to_commit = processed_up_to + 1
