"""Where batches begin and end, when lag may be computed, and when a log counts as truncated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from koff.client import Isolation, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.client.cluster_conf import TopicInfo
from koff.spark.job.log_progress import LogProgress
from koff.spark.rows.decoding import DataLost
from koff.spark.source.log_position import LogPosition
from koff.spark.tables.coverage import Span, count_offsets
from koff.spark.tables.schemas import Tables


class Log:
    """A cluster whose offsets topic starts at 10 and ends at `ends`. A partition with None has an error."""

    def __init__(self, *ends: int | None) -> None:
        self.ends = ends

    def fetch_topic(self, name: str) -> TopicInfo | None:
        return TopicInfo(name, len(self.ends), "") if self.ends else None

    def fetch_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, int | str]:
        assert isolation is Isolation.READ_COMMITTED
        ends = {at: self.ends[at.partition] for at in partitions}
        starts = spec is OffsetSpec.EARLIEST
        return {
            at: "LEADER_NOT_AVAILABLE" if end is None else 10 if starts else end for at, end in ends.items()
        }


class Followed(LogProgress):
    """The progress of a stream whose checkpoint has these batches."""

    def __init__(self, log: Log, *batches: dict[int, int], once: bool = False) -> None:
        super().__init__(cast(Tables, None), cast(Cluster, log), "c", "offsets", once=once)
        self._batches = batches
        self.fetch_bounds()

    def _read_position(self, batch: int) -> LogPosition:
        return LogPosition(self._batches[batch] if 0 <= batch < len(self._batches) else {})

    def write(self, batch: int) -> tuple[int, bool]:
        """How many offsets are left after the batch, and whether it may have a sample."""
        self.begin_batch(batch)
        left, may_sample = self.fetch_ends(), self.may_sample
        self.note_sample()
        return left, may_sample


def test_a_batch_begins_where_the_one_before_ends_also_after_a_restart() -> None:
    batches = {0: 20, 1: 15}, {0: 30, 1: 15}
    progress = Followed(Log(30, 15), *batches)
    progress.begin_batch(0)
    assert (progress.starts, progress.spans) == ({}, [Span(0, 0, 20), Span(1, 0, 15)])
    assert progress.offsets_to_target == 20 + 5  # no checkpoint: from the log start
    assert not progress.is_done
    for later in (progress, Followed(Log(30, 15), *batches)):
        later.begin_batch(1)
        assert (count_offsets(later.spans), later.offsets_to_target, later.is_done) == (10, 10, True)


def test_lag_is_computed_once_the_commits_before_the_last_sample_are_in_the_tables() -> None:
    log = Log(30)
    progress = Followed(log, {0: 20}, {0: 30}, {0: 30}, {0: 40})
    assert progress.write(0) == (10, False)
    log.ends = (40,)
    assert progress.write(1) == (10, True)  # it has read what there was after the batch before
    assert progress.write(2) == (10, False)
    assert progress.write(3) == (0, True)


def test_lag_is_not_computed_when_the_offsets_topic_is_gone_or_truncated() -> None:
    log = Log(30)
    progress = Followed(log, *[{0: 30}] * 5)
    assert progress.write(0) == (0, True)
    log.ends = (None,)
    progress.write(1)
    assert progress.write(2) == (0, False)
    log.ends = (29,)
    assert progress.write(3) == (0, False)
    log.ends = (30,)
    assert progress.write(4) == (0, True)  # a new leader did not know its last stable offset at once


@pytest.mark.parametrize("once", [False, True])
def test_a_log_that_stays_truncated_is_an_error(once: bool) -> None:
    log = Log(30)
    progress = Followed(log, *[{0: 30}] * 3, once=once)
    progress.write(0)
    log.ends = (12,)
    if not once:
        assert progress.write(1) == (0, False)
    with pytest.raises(DataLost, match="cluster c: partition 0 of offsets ends at 12, below offset 30"):
        progress.write(2)


def test_a_batch_counts_up_to_the_target_of_the_start() -> None:
    progress = Followed(Log(30, 15), {0: 20, 1: 12}, {0: 50, 1: 15})
    assert progress.count_batch(0) == (20 + 5, 10 + 2)
    assert progress.count_batch(1) == (10 + 3, 10 + 3)
    assert Followed(Log(30, 15), {0: 20, 1: 12}, {0: 50, 1: 15}).count_batch(1) == (13, 13)
