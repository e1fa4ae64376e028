"""What becomes of the offsets of a claim that ends while its store does not respond. Needs no ZooKeeper."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.zookeeper import ConsumerGroupConf
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.errors import PartitionError, ZooKeeperLost
from koff.client.zookeeper.intake import Intake
from koff.client.zookeeper.offset_manager import OffsetManagerConf, PeriodicOffsets
from koff.errors import KoffError
from koff.kafkatest import wait_until

NOWHERE = ClusterConf("127.0.0.1:1")


class Offsets(PeriodicOffsets):
    """Stores nothing while `error` is set; `stored` and `tried` are by partition."""

    def __init__(self) -> None:
        self.error: KoffError | None = ZooKeeperLost("no connection")
        self.stored: dict[TopicPartition, int] = {}
        self.tried = 0
        super().__init__(lambda _topic, _partition: True, OffsetManagerConf(commit_interval_s=3600))

    def _load_offset(self, partition: TopicPartition) -> int | None:
        return self.stored.get(partition)

    def _store_offsets(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
        self.tried += 1
        if self.error is not None:
            return dict.fromkeys(offsets, self.error)
        self.stored.update(offsets)
        return {}

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        raise NotImplementedError


@pytest.fixture
def offsets() -> Iterator[Offsets]:
    manager = Offsets()
    yield manager
    manager.error = None
    manager.close()


def test_an_offset_is_kept_while_there_is_time_for_another_attempt_and_then_forgotten(
    offsets: Offsets,
) -> None:
    offsets.initialize_partition("t", 0)
    assert offsets.mark_as_processed("t", 0, 7)
    with pytest.raises(ZooKeeperLost):
        offsets.finalize_partition("t", 0, 7, 1.0)
    with pytest.raises(ZooKeeperLost):
        offsets.finalize_partition("t", 0, 7, 0.0)
    assert offsets.tried == 2
    offsets.error = None
    offsets.flush()  # the partition may have another owner by now, whose offset must not be overwritten
    assert offsets.tried == 2
    assert not offsets.stored


@pytest.mark.parametrize(
    ("state", "reported"), [(ClaimState.LOST, 0), (ClaimState.DRAINING, 1)], ids=["lost", "draining"]
)
def test_a_lost_claim_that_cannot_be_committed_is_no_error(
    offsets: Offsets, state: ClaimState, reported: int
) -> None:
    errors: list[PartitionError] = []
    conf = ConsumerGroupConf(cluster=NOWHERE)
    delivery = cast(Any, None)  # nothing is read
    with Intake("t", Cluster(NOWHERE), conf, delivery, offsets, errors.append, lambda: None) as intake:
        claim = Claim("t", 0, session_number=0, czxid=1, state=state)
        offsets.initialize_partition("t", 0)
        offsets.mark_as_processed("t", 0, 7)
        intake.end_claim(claim)  # its deadline has passed
        wait_until(lambda: claim.finalized, what="the claim to end")
    assert len(errors) == reported
    assert offsets.tried == 1
