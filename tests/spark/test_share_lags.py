"""Lags of share groups in the table `lag`: what coordinators return, and what a row says when they do not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.cluster_stream import Progress
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.lag_changes import FullSamples
from koff.spark.job.table_view import TableView

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import DescribedGroup, FetchedGroups, ShareOffset, join_columns
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import ConnectError
from koff.records.placement import group_partition
from koff.spark.job import share_lags
from koff.spark.job.end_offsets import Sample
from koff.spark.job.samples import write_sample_and_lag
from koff.spark.job.share_lags import ShareLags, ShareRow, ShareState, read_share_states
from koff.spark.tables.schemas import Tables
from tests.spark.settings import next_transaction
from tests.unit.builders import Share, said
from tests.unit.lives import replayed, share_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def state(group: str, *assigned: tuple[str, int], has_state: bool = True) -> ShareState:
    """A share group with state of t-0 and t-1, in partition 3 of the offsets topic."""
    records = [Share.own(group, 1), *([share_topics(group, "initialized", ID)] if has_state else [])]
    return ShareState(group, 3, json.dumps(replayed([said(each) for each in records]).to_state()), assigned)


def offset(group: str, partition: int, lag: int | None, *, start: int = 5, topic: str = "t") -> ShareOffset:
    return ShareOffset(group, topic, ID, partition, start, 1, lag)


class Coordinators:
    """The double of `fetch_from_coordinators`, and of a cluster whose partitions all end at 20."""

    def __init__(self) -> None:
        self.conf, self.lister = ClusterConf("b:1"), object()
        self.offsets: list[ShareOffset] = []
        self.groups = ["g"]
        self.failed: dict[str, str] = {}
        self.incomplete: tuple[str, ...] = ()
        self.error: Exception | None = None
        self.are_leaders_silent = False
        self.asked: list[FetchOptions] = []

    def fetch(self, lister: object, options: FetchOptions) -> FetchedGroups:
        assert lister is self.lister
        self.asked.append(options)
        if self.error is not None:
            raise self.error
        groups = tuple(DescribedGroup(name, "share", "Empty", "share") for name in self.groups)
        return FetchedGroups(
            join_columns([]),
            groups,
            self.failed,
            1,
            0.1,
            share_offsets=tuple(self.offsets),
            incomplete=self.incomplete,
        )

    def fetch_ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        if self.are_leaders_silent:
            raise ConnectError("cannot reach Kafka")
        return dict.fromkeys(partitions, 20)


@pytest.fixture
def coordinators(monkeypatch: pytest.MonkeyPatch) -> Coordinators:
    made = Coordinators()
    monkeypatch.setattr(share_lags, "fetch_from_coordinators", made.fetch)
    return made


def fetched(
    coordinators: Coordinators, *groups: ShareState, lags: ShareLags | None = None, **options: Any
) -> dict[tuple[str, str, int], ShareRow]:
    """The rows after a response."""
    lags = lags or ShareLags(cast(Cluster, coordinators), **options)
    lags.load(groups)
    lags.fetch(coordinators.fetch_ends)
    return {row[:3]: row for row in lags.rows}


def unknown(group: str, topic: str, partition: int) -> ShareRow:
    return ShareRow(group, topic, partition, not_current=True)


def test_coordinators_are_asked_for_the_lags_of_the_share_groups_and_for_no_more(
    coordinators: Coordinators,
) -> None:
    coordinators.offsets = [offset("g", 0, 7), offset("g", 1, 0)]
    assert fetched(coordinators, state("g")) == {
        ("g", "t", 0): ShareRow("g", "t", 0, ID, 7, 20, not_current=False),
        ("g", "t", 1): ShareRow("g", "t", 1, ID, 0, 20, not_current=False),
    }
    (asked,) = coordinators.asked
    assert (asked.share_offsets, asked.describe, asked.partitions) == ("only", False, frozenset({3}))
    assert asked.is_chosen("g")
    assert not asked.is_chosen("other")


def test_a_cluster_without_share_groups_is_not_asked(coordinators: Coordinators) -> None:
    assert fetched(coordinators) == {}
    assert not coordinators.asked


def test_groups_in_a_topic_of_another_name_are_not_asked_for(coordinators: Coordinators) -> None:
    assert fetched(coordinators, state("g"), asks=False) == {
        ("g", "t", 0): unknown("g", "t", 0),
        ("g", "t", 1): unknown("g", "t", 1),
    }
    assert not coordinators.asked


def test_a_group_whose_coordinator_does_not_respond_is_not_current_and_the_others_are(
    coordinators: Coordinators,
) -> None:
    coordinators.offsets = [offset("g", 0, 7)]
    coordinators.incomplete = ("broker 2: no response",)
    rows = fetched(coordinators, state("g"), state("silent", (ID, 1), ("u", 2), has_state=True))
    assert rows["g", "t", 0].lag == 7
    silent = {slot[1:]: row for slot, row in rows.items() if slot[0] == "silent"}
    assert set(silent) == {("t", 0), ("t", 1), ("u", 2)}
    assert all(row.not_current and row.lag is None for row in silent.values())


def test_no_lag_of_the_sample_before_is_kept(coordinators: Coordinators) -> None:
    lags = ShareLags(cast(Cluster, coordinators))
    coordinators.offsets = [offset("g", 0, 7), offset("g", 1, 2)]
    assert fetched(coordinators, state("g"), lags=lags)["g", "t", 0].lag == 7
    coordinators.error = ConnectError("cannot reach Kafka")
    rows = fetched(coordinators, state("g"), lags=lags)
    assert all(row.not_current and row.lag is None for row in rows.values())
    coordinators.error = None
    assert fetched(coordinators, state("g"), lags=lags)["g", "t", 1].lag == 2


def test_coordinators_are_not_asked_while_no_leader_responds(coordinators: Coordinators) -> None:
    coordinators.are_leaders_silent = True
    assert fetched(coordinators, state("g"))["g", "t", 0].not_current
    assert not coordinators.asked


def test_partitions_that_a_response_with_an_error_lacks_are_not_current(coordinators: Coordinators) -> None:
    coordinators.offsets, coordinators.failed = [offset("g", 1, 2)], {"g": "UNKNOWN_SERVER_ERROR"}
    rows = fetched(coordinators, state("g"))
    assert (rows["g", "t", 1].lag, rows["g", "t", 1].not_current) == (2, False)
    assert rows["g", "t", 0].not_current


def test_a_partition_without_state_has_no_row_of_its_own(coordinators: Coordinators) -> None:
    coordinators.offsets = [offset("g", 1, 2)]
    assert set(fetched(coordinators, state("g"))) == {("g", "t", 1)}


def test_a_partition_that_the_group_has_not_read_has_no_lag_and_that_is_known(
    coordinators: Coordinators,
) -> None:
    coordinators.offsets = [offset("g", 0, None, start=-1)]
    assert fetched(coordinators, state("g")) == {
        ("g", "t", 0): ShareRow("g", "t", 0, ID, None, 20, not_current=False)
    }


def test_a_coordinator_that_returns_no_lag_makes_none_up(coordinators: Coordinators) -> None:
    """A broker of 4.1 returns the start offset alone, which is not what the group has done."""
    coordinators.offsets = [offset("g", 0, None, start=5), offset("g", 1, 4)]
    rows = fetched(coordinators, state("g"))
    assert rows["g", "t", 0] == unknown("g", "t", 0)
    assert rows["g", "t", 1].lag == 4


def test_brokers_without_the_request_are_not_asked_at_each_sample(
    coordinators: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    coordinators.error = UnsupportedVersion("the broker is too old")
    lags = ShareLags(cast(Cluster, coordinators))
    for _ in range(3):
        assert fetched(coordinators, state("g"), lags=lags)["g", "t", 0].not_current
    assert len(coordinators.asked) == 1
    now[0] += share_lags.UNSUPPORTED_S
    fetched(coordinators, state("g"), lags=lags)
    assert len(coordinators.asked) == 2


def test_only_topics_that_are_watched_have_rows(coordinators: Coordinators) -> None:
    coordinators.offsets = [offset("g", 0, 7), offset("g", 0, 8, topic="jobs")]
    assert set(fetched(coordinators, state("g"), topics="^jo")) == {("g", "jobs", 0)}


# the rows of the table


class Rows(ShareLags):
    """Share lags with these rows."""

    def __init__(self, *rows: ShareRow) -> None:
        super().__init__(cast(Cluster, None))
        self.load(state(name, has_state=False) for name in {row.group for row in rows})
        self._rows = {row[:3]: row for row in rows}


NOW = datetime.fromtimestamp(900, UTC)
SHARED = ("at-rest", "busy", "silent", "unread", "early")


@pytest.fixture(scope="module")
def lag(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The rows of the table `lag` by group. `at-rest` was a consumer group before."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("shares") / "t"))
    tables.create_tables()
    states: list[Any] = [("c", 0, name, 1, "share", "Empty", "{}", [], None) for name in SHARED]
    states.append(("c", 0, "plain", 1, "consumer", "Empty", "{}", [], None))
    append(tables, "group_states", states)
    record: tuple[Any, ...] = (1, None, None, 0, 0, None, False, [])
    append(tables, "current", [("c", name, "t", 0, *record) for name in ("at-rest", "plain")])
    shares = Rows(
        ShareRow("at-rest", "t", 0, ID, 7, 20, not_current=False),
        ShareRow("busy", "t", 0, ID, 6, 19, not_current=False),
        ShareRow("silent", "t", 0),
        ShareRow("unread", "t", 0, ID, None, 20, not_current=False),
        ShareRow("early", "t", 0, OTHER_ID, 7, 20, not_current=False),
    )

    def take(_: DataFrame, states: DataFrame) -> list[Sample]:
        assert {each.name for each in read_share_states(states)} == set(SHARED)
        return [Sample(NOW, "t", 0, ID, 15, 20, 18, gone=False)]

    curves, full = EndCurves("c", next_transaction, reach_s=86_400), FullSamples(600)
    assert write_sample_and_lag(
        BatchWriter(tables, "c"), take, 0, curves, full, reach_s=86_400, shares=shares
    )
    rows = tables.frame("lag").collect()
    assert len(rows) == 6
    return {row["group"]: row for row in rows}


def append(tables: Tables, name: str, rows: list[Any]) -> None:
    frame = tables.spark.createDataFrame(rows, tables.frame(name).schema)
    frame.write.format("delta").mode("append").save(tables.path(name))


def test_a_share_group_at_rest_has_the_lag_and_what_it_has_done(lag: dict[str, Any]) -> None:
    row = lag["at-rest"]
    assert (row.lag, row.committed, row.end_offset, row.type) == (7, 13, 20, "share")
    assert (row.readable, row.lost, row.lag_to_stable) == (5, 2, 5)
    assert (row.reasons, row.status) == (["below_log_start"], "UNKNOWN")


def test_of_a_partition_that_is_written_to_only_the_lag_is_known(lag: dict[str, Any]) -> None:
    row = lag["busy"]
    assert (row.lag, row.committed, row.end_offset) == (6, None, 20)
    assert (row.readable, row.lost, row.lag_to_stable, row.time_lag_s) == (None, None, None, None)
    assert (row.reasons, row.status) == ([], "UNKNOWN")


def test_a_lag_that_was_not_returned_is_null_with_a_reason(lag: dict[str, Any]) -> None:
    row = lag["silent"]
    assert (row.lag, row.committed, row.end_offset) == (None, None, 20)
    assert (row.reasons, row.status) == (["commits_not_current"], "UNKNOWN")
    row = lag["unread"]
    assert (row.lag, row.reasons, row.status) == (None, ["no_commit"], "UNKNOWN")


def test_a_lag_on_an_earlier_topic_of_that_name_is_null(lag: dict[str, Any]) -> None:
    assert (lag["early"].lag, lag["early"].reasons) == (None, ["topic_recreated"])


def test_other_groups_keep_their_commits(lag: dict[str, Any]) -> None:
    assert (lag["plain"].lag, lag["plain"].committed) == (19, 1)


# what `--listen` serves


def test_the_view_has_the_lags_of_the_newest_sample_and_none_that_is_not_current(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "t"))
    tables.create_tables()
    saved = [state("g"), state("h", has_state=False)]
    # h is where its name's hash does not say, as after the topic has grown.
    places = [group_partition("g", 50), (group_partition("h", 50) + 1) % 50]
    rows: list[Any] = [
        ("c", place, each.name, 1, "share", "Empty", each.saved, [], None)
        for place, each in zip(places, saved, strict=True)
    ]
    append(tables, "group_states", rows)
    view = TableView("c", 150)

    def serve(minute: int, *shares: ShareRow) -> dict[tuple[str, int], tuple[int | None, tuple[str, ...]]]:
        at = datetime.fromtimestamp(time.time() - 3600 + minute * 60, UTC)
        sample = [Sample(at, "t", partition, ID, 0, 20, 20, gone=False) for partition in range(2)]
        BatchWriter(tables, "c").write_sample(sample, minute)
        of_groups = {each.name: [row for row in shares if row.group == each.name] for each in saved}
        view.apply_batch(Progress("c", minute, 0, 0.1, 0, 2, 0, 50, of_groups), tables)
        snapshot = view.take_view().snapshot
        return {(row.group, row.partition): (row.lag, row.reasons.names) for row in snapshot.rows()}

    known = ShareRow("g", "t", 0, ID, 7, 20, not_current=False)
    elsewhere = ShareRow("h", "t", 1, ID, 3, 20, not_current=False)
    assert serve(0, known, ShareRow("g", "t", 1), elsewhere) == {
        ("g", 0): (7, ()),
        ("g", 1): (None, ("commits_not_current",)),
        ("h", 1): (3, ()),
    }
    assert serve(1, ShareRow("g", "t", 0), ShareRow("g", "t", 1), elsewhere) == {
        ("g", 0): (None, ("commits_not_current",)),
        ("g", 1): (None, ("commits_not_current",)),
        ("h", 1): (3, ()),
    }
    # A record of the group: its partition of the offsets topic is restored.
    append(tables, "group_states", [(*rows[0][:3], 2, *rows[0][4:])])
    assert serve(2, known._replace(lag=5), elsewhere) == {("g", 0): (5, ()), ("h", 1): (3, ())}
    assert serve(3, known._replace(lag=0)) == {("g", 0): (0, ())}
