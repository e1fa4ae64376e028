"""Which rows are withheld, and when koff is ready."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from koff.lag import Reason
from koff.monitor.confidence import Facts, build_view
from koff.monitor.followed_log import FollowedLog
from koff.monitor.plan import Replay
from koff.monitor.requests import Moment, Topic
from koff.records import OffsetCommit, OffsetCommitValue, encode
from koff.tracker import Tracker
from tests.unit.builders import Share, commit

NOW_MS, LIMIT_MS = 100_000, 25_000
OLD, FRESH = Moment(70.0, 0), Moment(90.0, 0)
TOPIC_ID = Share.places[0]


def follow(topic: str, partitions: int, current: Moment | None) -> FollowedLog:
    log = FollowedLog(topic, lambda *_: None)
    log.note_topic(Topic("id", partitions))
    log.begin({p: Replay(0, "") for p in range(partitions)}, Moment(0, 0))
    for part in log.partitions.values():
        part.current, part.is_read = current, current is not None
    return log


class Known:
    """Groups g0 and g1 in two partitions, both with a commit to t-0."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        for partition in (0, 1):
            self.commit(partition, f"g{partition}", "t", 0)
        self.sample(ms=90_000)
        self.facts = Facts(
            offsets=follow("__consumer_offsets", 2, FRESH),
            share=follow("__share_group_state", 0, None),
            doubtful=set(),
            stored=None,
            steady_ms=lambda moment: round(moment.at_s * 1000),
            oldest_ms=NOW_MS - LIMIT_MS,
            topics_asked=FRESH,
            failure=None,
            ends_answered=True,
            was_ready=True,
            record_counts={},
        )

    def commit(self, shard: int, group: str, topic: str, partition: int, offset: int | None = 5) -> None:
        key, value = commit(group, topic, partition, offset)
        self.tracker.apply(shard, [key], [value])

    def sample(self, ms: int) -> None:
        self.tracker.add_samples(ends={("t", 0): 9}, at_ms=ms)

    def reasons(self, **change: Any) -> dict[str, Reason]:
        facts = dataclasses.replace(self.facts, **change)
        view = build_view(self.tracker.take_snapshot(NOW_MS), facts)
        return {row.group: row.reasons for row in view.snapshot.rows()}

    def readiness(self, **change: Any) -> str:
        facts = dataclasses.replace(self.facts, **change)
        return build_view(self.tracker.take_snapshot(NOW_MS), facts).readiness.text


@pytest.fixture
def known() -> Known:
    return Known()


def test_a_row_with_two_current_sides_is_served(known: Known) -> None:
    assert known.reasons() == {"g0": Reason(0), "g1": Reason(0)}


@pytest.mark.parametrize("current", [None, OLD])
def test_commits_that_are_not_current_hide_only_their_partition(known: Known, current: Moment | None) -> None:
    known.facts.offsets.partitions[1].current = current
    assert known.reasons() == {"g0": Reason(0), "g1": Reason.COMMITS_NOT_CURRENT}


def test_an_old_end_offset_hides_its_rows(known: Known) -> None:
    known.sample(ms=NOW_MS - LIMIT_MS - 1)
    assert set(known.reasons().values()) == {Reason.END_NOT_CURRENT}


def test_a_row_as_old_as_the_limit_is_served(known: Known) -> None:
    known.sample(ms=NOW_MS - LIMIT_MS)
    assert set(known.reasons().values()) == {Reason(0)}


def test_a_row_without_a_commit_has_nothing_to_withhold(known: Known) -> None:
    known.sample(ms=1)
    known.commit(0, "g0", "t", 0, -1)
    assert known.reasons()["g0"] == Reason.NO_COMMIT


def test_a_row_of_a_topic_that_is_gone_is_unknown_and_not_withheld(known: Known) -> None:
    known.tracker.forget_offsets([("t", 0)])
    assert set(known.reasons().values()) == {Reason.TOPIC_GONE}


def test_a_partition_that_was_never_sampled_is_withheld(known: Known) -> None:
    known.commit(0, "g2", "t", 1)
    assert known.reasons()["g2"] & Reason.END_NOT_CURRENT


def test_a_topic_that_may_be_another_one_hides_all_that_was_read_of_it(known: Known) -> None:
    assert set(known.reasons(doubtful={"__consumer_offsets"}).values()) == {Reason.COMMITS_NOT_CURRENT}


def test_a_commit_to_a_topic_that_is_newer_than_the_list_is_withheld_and_not_taken_for_an_old_one(
    known: Known,
) -> None:
    known.tracker.identify_topics({"t": TOPIC_ID})
    value = OffsetCommitValue(version=4, offset=5, metadata="", commit_timestamp=1, topic_id=Share.places[1])
    key, encoded = encode(OffsetCommit(group="g0", topic="t", partition=0, value=value))
    known.tracker.apply(0, [key], [encoded], seen_at_ms=95_000)  # the list is of 90 s
    assert known.reasons()["g0"] & Reason.END_NOT_CURRENT
    assert known.reasons(topics_asked=Moment(96.0, 0))["g0"] == Reason.TOPIC_RECREATED


def test_a_group_that_the_coordinators_did_not_answer_for_hides_alone(known: Known) -> None:
    known.commit(0, "g2", "t", 0)
    known.facts.offsets.partitions[0].stale_groups = {"g2": OLD}
    assert known.reasons() == {"g0": Reason(0), "g1": Reason(0), "g2": Reason.COMMITS_NOT_CURRENT}


def test_groups_of_zookeeper_are_as_current_as_their_response(known: Known) -> None:
    known.tracker.apply_external_commits(-1, {("z", "t", 0): (5, 1)}, [], {})
    assert known.reasons(stored=OLD)["z"] == Reason.COMMITS_NOT_CURRENT
    assert known.reasons(stored=FRESH)["z"] == Reason(0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "ready"),
        ({"ends_answered": False}, "not ready: end offsets are not known yet"),
        ({"ends_answered": False, "failure": "no route"}, "not ready: no route"),
        ({"offsets": follow("o", 2, None)}, "not ready: 0 offsets of o are to be read, of 2 partitions"),
        ({"offsets": FollowedLog("o", lambda *_: None)}, "not ready: looking for o"),
        ({"share": follow("s", 1, None)}, "not ready: 0 offsets of s are to be read, of 1 partitions"),
    ],
)
def test_at_the_start_koff_is_ready_when_both_logs_were_read(
    known: Known, change: dict[str, Any], text: str
) -> None:
    assert known.readiness(was_ready=False, **change) == text


def test_a_leaderless_partition_does_not_delay_readiness(known: Known) -> None:
    part = known.facts.offsets.partitions[1]
    part.current, part.is_read = None, False
    assert known.readiness(was_ready=False).startswith("not ready")
    known.facts.offsets.leaderless = frozenset({1})
    assert known.readiness(was_ready=False) == "ready"


def test_a_cluster_without_groups_is_ready(known: Known) -> None:
    known.tracker = Tracker()
    assert known.readiness(was_ready=False) == "ready"
    assert known.readiness() == "ready"


def test_later_koff_is_ready_as_long_as_some_row_may_be_served(known: Known) -> None:
    known.facts.offsets.partitions[0].current = OLD
    assert known.readiness() == "ready"
    known.facts.offsets.partitions[1].current = OLD
    assert known.readiness() == "not ready: none of 2 lags is current: the cluster does not answer"
    known.facts.offsets.denied = "no READ"
    assert known.readiness().endswith("no READ")
