"""What becomes of the offsets of a claim that ends while its store does not respond. Needs no ZooKeeper."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.redelivery.errors import PartitionError
from koff.client.zookeeper import ConsumerGroupConf
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.errors import ZooKeeperLost
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


def test_an_offset_is_tried_again_until_the_timeout_and_then_forgotten(
    offsets: Offsets,
) -> None:
    offsets.initialize_partition("t", 0)
    assert offsets.mark_as_processed("t", 0, 7)
    with pytest.raises(ZooKeeperLost):
        offsets.finalize_partition("t", 0, 7, 2.0)
    tried = offsets.tried
    assert tried > 1
    offsets.error = None
    offsets.flush()  # the partition may have another owner by now, whose offset must not be overwritten
    assert offsets.tried == tried
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
        claim = Claim("t", 0, session_number=0, czxid=1, state=state, initialized=True)
        offsets.initialize_partition("t", 0)
        offsets.mark_as_processed("t", 0, 7)
        intake.end_claim(claim)  # its deadline has passed
        wait_until(lambda: claim.finalized, what="the claim to end")
    assert len(errors) == reported
    assert offsets.tried == 1


class Broken(Offsets):
    """Fails as a user's offset manager may: with errors that koff does not know."""

    def __init__(self, *, starts: bool) -> None:
        super().__init__()
        self.starts = starts

    def initialize_partition(self, topic: str, partition: int) -> int | None:
        if partition == 0 and not self.starts:
            raise TimeoutError("slow")
        return super().initialize_partition(topic, partition)

    def finalize_partition(
        self, topic: str, partition: int, last_offset: int | None, timeout_s: float
    ) -> None:
        raise ValueError("odd")


def test_an_unknown_error_fails_its_own_claim_and_the_intake_serves_the_others() -> None:
    errors: list[PartitionError] = []
    conf, delivery = ConsumerGroupConf(cluster=NOWHERE), cast(Any, None)
    manager = Broken(starts=False)
    manager.error = None
    with (
        manager,
        Intake("t", Cluster(NOWHERE), conf, delivery, manager, errors.append, lambda: None) as intake,
    ):
        bad, good = (Claim("t", partition, session_number=0, czxid=1) for partition in (0, 1))
        intake.start_claim(bad)
        wait_until(lambda: bad.failed, what="the claim to fail")
        assert isinstance(errors[0].__cause__, TimeoutError)
        intake.end_claim(bad)
        wait_until(lambda: bad.finalized, what="the failed claim to end")
        # An error at the end of a claim is reported too, and the claim ends.
        good.initialized = True
        intake.end_claim(good)
        wait_until(lambda: good.finalized, what="the other claim to end")
        assert isinstance(errors[-1].__cause__, ValueError)
        assert len(errors) == 2


def test_a_commit_thread_survives_an_error_of_a_library(offsets: Offsets) -> None:
    offsets.initialize_partition("t", 0)
    offsets.mark_as_processed("t", 0, 7)
    offsets.error = cast(Any, None)
    store, offsets._store_offsets = offsets._store_offsets, cast(Any, _raise)  # type: ignore[method-assign]  # a fault
    with pytest.raises(KoffError, match="ZeroDivisionError"):
        offsets.flush()
    offsets._store_offsets = store  # type: ignore[method-assign]  # the fault ends
    offsets.flush()
    assert offsets.stored == {TopicPartition("t", 0): 8}


def _raise(_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, KoffError]:
    raise ZeroDivisionError
