"""What a `Reader` knows of each of its readers: its partitions, its counts, and its error."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field

from koff.client.cluster_conf import ClusterConf
from koff.client.delivery.conf import FailureRule, RedeliveryCounts
from koff.client.delivery.dead_letters import DeadLetters
from koff.client.delivery.partition import ReadPartition
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.stats import NO_VALUES, ClientStats, ReaderStats, Summary
from koff.errors import KoffError
from koff.logs import get_logger

log = get_logger("client.multicluster")


@dataclass(slots=True, eq=False)
class ReaderSubscription:
    """The state of one `ReaderConf` in one cluster. The lock of the reader's `Delivery` guards it.

    - `partitions`: those that are read now.
    - `failure`: why it cannot be read; None once it can. `is_reported`: the reader has raised it.
    - `failed_attempts`: how often in a row it could not be read.
    - `paused`: the partitions of which no message is handed out; None in it: all.
    - `rule`, `dead_letters`: with `ReaderConf.redelivery`.
    """

    conf: ReaderConf
    cluster_conf: ClusterConf
    partitions: dict[int, SubscribedPartition] = field(default_factory=dict)
    failure: KoffError | None = None
    is_reported: bool = False
    failed_attempts: int = 0
    paused: frozenset[int | None] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    wait_s: Summary = NO_VALUES
    read_s: Summary = NO_VALUES
    rule: FailureRule | None = None
    dead_letters: DeadLetters | None = None

    def __post_init__(self) -> None:
        conf = self.conf
        if conf.redelivery is not None:
            self.rule = FailureRule(conf.redelivery, conf.max_redeliveries)
            if letters := conf.redelivery.dead_letter_topic:
                self.dead_letters = DeadLetters(self.cluster_conf, letters, conf.group_id)
                self.rule.write_dead_letter = self.dead_letters.write_message

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.cluster_conf.cluster_name

    @property
    def partition(self) -> int:
        """The partition that is read; -1 with a group."""
        return -1 if self.conf.group_id else self.conf.partition or 0

    @property
    def position(self) -> ReadPartition | None:
        """The partition that is read without a group."""
        return self.partitions.get(self.partition)

    @property
    def waiting(self) -> int:
        """How many messages wait that are not paused: those must not keep the others from being fetched."""
        return sum(each.waiting for number, each in self.partitions.items() if not self.is_paused(number))

    def is_paused(self, partition: int) -> bool:
        """Whether no message of the partition may be handed out."""
        return None in self.paused or partition in self.paused

    def make_partition(self, number: int, start: int, assignment: int = 0) -> SubscribedPartition:
        """The partition, which is read from now on, in place of the one before."""
        made = self.partitions[number] = SubscribedPartition(
            self.conf.topic,
            number,
            assignment,
            self.cluster,
            self.rule,
            next_offset=start,
            subscription=self,
        )
        return made

    def report_error(self, error: KoffError) -> bool:
        """Notes a failed attempt to read it. Returns whether it has failed: after `max_attempts` in a row.

        Then the reason is kept, and logged, once until `clear_error`.
        """
        self.counts["errors"] += 1
        self.failed_attempts += 1
        if self.failed_attempts < self.conf.max_attempts:
            return False
        if self.failure is None:
            log.warning(
                "reader cannot read its cluster: the reader continues with the other clusters",
                cluster=self.cluster,
                topic=self.conf.topic,
                reason=str(error),
            )
        self.failure, self.is_reported = error, False
        return True

    def clear_error(self) -> None:
        """Notes that it can be read again, or shall be read elsewhere."""
        if self.failure is not None:
            log.info("reader can read its cluster again", cluster=self.cluster, topic=self.conf.topic)
        self.failure, self.is_reported, self.failed_attempts = None, False, 0

    def build_stats(self, client: ClientStats) -> ReaderStats:
        """The statistics now, with those of its client."""
        position = self.position
        return ReaderStats(
            cluster=self.cluster,
            topic=self.conf.topic,
            partition=self.partition,
            offset=-1 if position is None else position.position,
            lag=-1 if position is None else position.lag,
            queue_length=sum(each.waiting for each in self.partitions.values()),
            queue_capacity=self.conf.queue_capacity,
            failure=str(self.failure or ""),
            wait_s=self.wait_s,
            read_s=self.read_s,
            client=client,
            redelivery=self.rule.counts if self.rule else RedeliveryCounts(),
            **self.counts,
        )


@dataclass(slots=True, eq=False, kw_only=True)
class SubscribedPartition(ReadPartition):
    """A partition that a reader reads from `set_offset` to the next one, or while it is assigned to it."""

    subscription: ReaderSubscription
    committing: Future[None] | None = None
    """The commit of where its group starts in the log of a topic that was created again."""
