"""What becomes of the offsets of a claim that ends while its store does not respond. Needs no ZooKeeper."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.errors import PartitionError
from koff.client.delivery.partition import PartitionState
from koff.client.errors import OffsetOutOfRange, TopicRecreated
from koff.client.zookeeper import ConsumerGroupConf
from koff.client.zookeeper.claim_intake import ClaimIntake
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.errors import ZooKeeperLost
from koff.client.zookeeper.offset_manager import OffsetManager, OffsetManagerConf, PeriodicOffsets
from koff.errors import KoffError
from koff.kafkatest import wait_until

NOWHERE = ClusterConf("127.0.0.1:1")


class Offsets(PeriodicOffsets):
    """Stores nothing while `error` is set; `stored` and `tried` are by partition."""

    def __init__(self) -> None:
        self.error: KoffError | None = ZooKeeperLost("no connection")
        self.stored: dict[TopicPartition, int] = {}
        self.tried = 0
        super().__init__(cast(Any, SimpleNamespace(owns=None)), OffsetManagerConf(commit_interval_s=3600))

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


@contextmanager
def run_intake(offsets: OffsetManager) -> Iterator[tuple[ClaimIntake, list[PartitionError]]]:
    """An intake of a cluster that does not respond, and the errors that it reports."""
    errors: list[PartitionError] = []
    conf = ConsumerGroupConf(cluster=NOWHERE)
    delivery: Delivery[Claim] = Delivery(
        is_ready=lambda _: True, on_processed=lambda *_: None, on_error=errors.append
    )
    with (
        Cluster(NOWHERE) as cluster,
        ClaimIntake(cluster, conf, delivery, offsets, errors.append, lambda: None) as intake,
    ):
        intake.start()
        yield intake, errors


def make_claim(partition: int, state: PartitionState = PartitionState.READING, **values: Any) -> Claim:
    return Claim("t", partition, 1, session_number=0, state=state, **values)


@pytest.mark.parametrize(
    ("state", "remaining_s", "reported"),
    [(PartitionState.LOST, 9.0, 0), (PartitionState.ENDING, 0.0, 1), (PartitionState.ENDING, 1.0, 1)],
    ids=["lost", "late", "in time"],
)
def test_an_offset_is_tried_again_until_the_deadline_and_then_forgotten(
    offsets: Offsets, state: PartitionState, remaining_s: float, reported: int
) -> None:
    offsets.initialize_partition("t", 0)
    assert offsets.mark_as_processed("t", 0, 7)
    claim = make_claim(0, state, initialized=True, deadline=time.monotonic() + remaining_s)
    with run_intake(offsets) as (intake, errors):
        intake.add(claim)
        wait_until(lambda: claim.finalized, what="the claim to end")
    assert len(errors) == reported  # a lost claim is no error
    tried = offsets.tried
    assert (tried > 1) == (remaining_s == 1.0)
    offsets.error = None
    offsets.flush()  # the partition may have another owner by now, whose offset must not be overwritten
    assert offsets.tried == tried
    assert not offsets.stored


def test_a_store_that_responds_again_in_time_gets_the_offset(offsets: Offsets) -> None:
    offsets.initialize_partition("t", 0)
    assert offsets.mark_as_processed("t", 0, 7)
    claim = make_claim(0, PartitionState.ENDING, initialized=True, deadline=time.monotonic() + 60)
    claim.last_delivered = 7
    with run_intake(offsets) as (intake, errors):
        intake.add(claim)
        wait_until(lambda: offsets.tried > 0, what="a try")
        offsets.error = None
        wait_until(lambda: claim.finalized, what="the claim to end")
    assert errors == []
    assert offsets.stored == {TopicPartition("t", 0): 8}


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
    manager = Broken(starts=False)
    manager.error = None
    with manager, run_intake(manager) as (intake, errors):
        bad, good = make_claim(0), make_claim(1, PartitionState.DRAINING, initialized=True)
        intake.add(bad)
        wait_until(lambda: bad.failed, what="the claim to fail")
        assert isinstance(errors[0].__cause__, TimeoutError)
        bad.state = PartitionState.ENDING
        wait_until(lambda: bad.finalized, what="the failed claim to end")
        # An error at the end of a claim is reported too, and the claim ends.
        intake.add(good)
        good.state = PartitionState.ENDING
        wait_until(lambda: good.finalized, what="the other claim to end")
        assert isinstance(errors[-1].__cause__, ValueError)
        assert len(errors) == 2


def test_the_end_of_a_lost_claim_does_not_touch_a_newer_claim_of_its_partition(offsets: Offsets) -> None:
    offsets.error = None
    offsets.stored[TopicPartition("t", 0)] = 5
    lost, newer = make_claim(0, PartitionState.LOST, initialized=True), make_claim(0)
    lost.retry_at = time.monotonic() + 60  # an error came just before it was lost
    with run_intake(offsets) as (intake, errors):
        intake.add(lost)
        intake.add(newer)
        wait_until(lambda: newer.consumer is not None and lost.finalized, what="both")
        assert offsets.mark_as_processed("t", 0, 7)
        assert newer.position == 5
    assert errors == []


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


def test_what_does_not_respond_is_reported_once_and_only_after_a_while(
    offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koff.client.zookeeper.claim_intake._REPORT_AFTER_S", 0.2)
    monkeypatch.setattr("koff.client.delivery.intake.RETRY_S", 0.05)
    tries: list[float] = []

    def load(_: TopicPartition) -> int | None:
        tries.append(time.monotonic())
        raise ZooKeeperLost("no connection")

    monkeypatch.setattr(offsets, "_load_offset", load)
    offsets.error = None
    claim = make_claim(0)
    with run_intake(offsets) as (intake, errors):
        intake.add(claim)
        wait_until(lambda: errors, what="the error")
        reported_after_s = tries[-1] - tries[0]
        tried = len(tries)
        wait_until(lambda: len(tries) > tried + 5, what="further tries")
    assert reported_after_s >= 0.2
    assert [str(error) for error in errors] == ["t/0: no connection"]
    assert not claim.failed


def test_a_topic_that_is_created_again_is_read_when_no_old_message_is_in_progress(
    offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets.error = None
    reset: dict[TopicPartition, int] = {}
    monkeypatch.setattr(offsets, "reset", reset.update)
    claim = make_claim(0)
    with run_intake(offsets) as (intake, errors):
        intake.add(claim)
        wait_until(lambda: claim.consumer is not None, what="the start")
        claim.deliver(7, object())
        assert claim.consumer is not None
        found = TopicRecreated("t", 0, 8, 3, 20)
        monkeypatch.setattr(claim.consumer, "poll_batch", lambda _: _fail(found))
        wait_until(lambda: claim.recreated is not None and claim.consumer is None, what="the new topic")
        assert not reset
        claim.mark_processed(7)
        wait_until(lambda: claim.consumer is not None, what="the new log")
        assert (reset, claim.position, claim.processed_up_to) == ({("t", 0): 3}, 3, None)
    assert "created again: reading resumes at offset 3 of the new topic" in str(errors[0])


@pytest.mark.parametrize(
    ("offset", "resumed_at", "reason"),
    [(2, 6, "offsets 2 to 5 left the log"), (99, 20, "the log ends at 20")],
)
def test_an_offset_that_is_not_in_the_log_is_reported_and_the_nearest_is_read(
    offsets: Offsets, monkeypatch: pytest.MonkeyPatch, offset: int, resumed_at: int, reason: str
) -> None:
    offsets.error, offsets.stored = None, {TopicPartition("t", 0): offset}
    claim = make_claim(0)
    with run_intake(offsets) as (intake, errors):
        intake.add(claim)
        wait_until(lambda: claim.consumer is not None, what="the start")
        assert claim.consumer is not None
        poll, found = claim.consumer.poll_batch, [OffsetOutOfRange("t", 0, offset, 6, 20)]
        monkeypatch.setattr(
            claim.consumer, "poll_batch", lambda most: _fail(found.pop()) if found else poll(most)
        )
        wait_until(lambda: errors, what="the error")
        assert claim.consumer.buffer.next_offset == resumed_at
    assert reason in str(errors[0])


def _fail(error: Exception) -> Any:
    raise error
