"""Reads the claimed partitions of a member, in a thread that also loads and finalizes their offsets."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.errors import PartitionError
from koff.client.delivery.intake import Intake, find_room
from koff.client.delivery.partition import PartitionState
from koff.client.errors import OffsetOutOfRange, TopicRecreated
from koff.client.start_offset import StartOffset
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.errors import ClaimLost
from koff.client.zookeeper.offset_manager import OffsetManager
from koff.errors import ConnectError, Denied, KoffError
from koff.logs import get_logger

log = get_logger("client.zookeeper")
_REPORT_AFTER_S = 5.0
"""The silence of Kafka or ZooKeeper is reported only after this long: leaders move, topics are created."""


class ClaimIntake(Intake[Claim]):
    """Reads the messages of each claim until the claim ends, and then finalizes its offsets.

    `on_error` gets the errors of single partitions. `on_finalized` is called when a claim is `finalized` or
    `failed`. Both are called from the intake's thread.
    """

    # Every KoffError is retried; at the end of a claim only a ConnectError, until the claim's deadline. Any
    # other error (TimeoutError, an error of the user's offset manager) makes its claim `failed`: the member
    # then releases the claim.

    def __init__(
        self,
        cluster: Cluster,
        conf: ConsumerGroupConf,
        delivery: Delivery[Claim],
        offsets: OffsetManager,
        on_error: Callable[[PartitionError], None],
        on_finalized: Callable[[], None],
    ) -> None:
        super().__init__(cluster, conf.feed, delivery, patience_s=_REPORT_AFTER_S)
        self._conf, self._offsets = conf, offsets
        self._on_error, self._on_finalized = on_error, on_finalized

    def note_response(self, requested_at: float) -> None:
        """Notes that the cluster has responded to a request that was sent at that monotonic time."""
        self._feed.note_response(requested_at)

    # --- Where claims are read ------------------------------------------------------------------------------

    def _find_starts(self, partitions: Sequence[Claim]) -> Mapping[Claim, int]:
        starts = {}
        for claim in partitions:
            with self._guard(claim):
                last_offset = self._offsets.initialize_partition(*claim.topic_partition)
                claim.initialized = True
                starts[claim] = self._conf.initial_offset if last_offset is None else last_offset + 1
        return starts

    def _note_starts(self, starts: Mapping[Claim, int]) -> None:
        """Commits the newest offsets at once.

        Otherwise the next owner would start at an offset that is newer still, and skip the messages in
        between. A failed flush does not say which partitions are committed, so the claims are initialized
        again: that returns an offset for each committed partition.
        """
        for claim, offset in starts.items():
            self._offsets.mark_as_processed(*claim.topic_partition, offset - 1)
        self._offsets.flush()

    def _may_restart(self, partition: Claim) -> bool:
        """Whether no message of the old log is in progress: `commit_up_to` would count in the new log."""
        is_over = time.monotonic() >= partition.recreated_at + self._conf.processing_timeout_s
        return is_over or self._delivery.is_drained(partition)

    def _restart(self, partition: Claim, error: TopicRecreated) -> int:
        at = partition.topic_partition
        reset = getattr(self._offsets, "reset", None)
        if reset is not None:
            reset({at: error.earliest})
            self._offsets.initialize_partition(*at)
        self._report(
            partition,
            KoffError(
                "the topic was deleted and created again: reading resumes at offset "
                f"{error.earliest} of the new topic"
            ),
        )
        return error.earliest

    def _choose_offset(self, partition: Claim, error: OffsetOutOfRange) -> int:
        """The offset in the log that is nearest."""
        return min(max(error.offset, error.earliest), error.latest)

    def _note_skipped(self, partition: Claim, error: OffsetOutOfRange, resumed_at: int, skipped: int) -> None:
        text = (
            f"the log ends at {error.latest}, before {error.offset}: it was truncated, or the topic was "
            f"deleted and created again; reading resumes at {resumed_at}"
        )
        if skipped:
            text = (
                f"offsets {error.offset} to {resumed_at - 1} left the log before they were read: check the "
                "topic's retention and this group's lag"
            )
        if resumed_at != error.offset:
            self._report(partition, KoffError(text))

    def _find_room(self, partition: Claim) -> int:
        return find_room(self._conf.buffer_messages, partition.waiting)

    # --- Ends and errors ------------------------------------------------------------------------------------

    def _has_ended(self, partition: Claim) -> bool:
        """Finalizes the offsets of a claim that ends. False if that has to be tried again.

        A lost claim does not wait: this member may own the partition again, and the offset manager knows one
        claim of a partition at a time.
        """
        claim, is_lost = partition, partition.state is PartitionState.LOST
        now = time.monotonic()
        if not is_lost and (claim.state is not PartitionState.ENDING or now < claim.retry_at):
            return False
        remaining_s = 0.0 if is_lost else max(0.0, claim.deadline - now)
        try:
            if claim.initialized:
                self._offsets.finalize_partition(*claim.topic_partition, claim.last_delivered, remaining_s)
        except Exception as error:
            if isinstance(error, ConnectError) and not isinstance(error, Denied) and remaining_s > 0:
                with self._guard(claim):
                    raise
                return False
            # A lost claim is no error: the partition's next owner delivers the uncommitted messages again.
            if isinstance(error, ClaimLost) or (is_lost and isinstance(error, KoffError)):
                log.info("claim lost before its last commit", at=claim.topic_partition, why=str(error))
            else:
                self._report(claim, error)
        claim.finalized = True
        self._on_finalized()
        return True

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, KoffError) and not isinstance(error, Denied)

    def _note_error(self, partition: Claim, error: Exception) -> None:
        if isinstance(error, KoffError):
            if partition.failing_since != math.inf:
                self._report(partition, error)
            partition.failing_since = math.inf  # reported once, until there is a response
            return
        log.warning("claim failed", at=partition.topic_partition, exc_info=error)
        if partition.state is PartitionState.READING:
            self._report(partition, error)
        partition.failed = True
        self._on_finalized()

    def _report(self, claim: Claim, error: Exception) -> None:
        text = str(error) if isinstance(error, KoffError) else repr(error)
        partition_error = PartitionError(claim.topic, claim.partition, text)
        partition_error.__cause__ = error
        self._on_error(partition_error)


def fetch_initial_offsets(
    cluster: Cluster, conf: ConsumerGroupConf, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset at which the group starts in each partition. Raises `ConnectError` unless all are known."""
    spec = OffsetSpec.EARLIEST if conf.initial_offset is StartOffset.OLDEST else OffsetSpec.LATEST
    # The newest offset is the last stable one: messages of open transactions are still to come.
    fetched = cluster.fetch_offsets(partitions, spec, Isolation(conf.feed.isolation))
    offsets = {at: offset for at, offset in fetched.items() if isinstance(offset, int)}
    for topic, number in fetched.keys() - offsets.keys():
        raise ConnectError(
            f"cannot fetch the initial offset of {topic}/{number}: {fetched[TopicPartition(topic, number)]}; "
            "check that its leader runs"
        )
    return offsets
