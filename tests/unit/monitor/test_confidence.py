"""Which rows are withheld, and when koff is ready."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from koff.lag import Reason
from koff.monitor.confidence import build_view
from koff.monitor.duties.history import Replayed
from koff.monitor.duties.stored_groups import SHARD as STORED_GROUPS_SHARD
from koff.monitor.followed_log import FollowedLog
from koff.monitor.followed_partition import FollowedPartition
from koff.monitor.known_facts import (
    CurrentTime,
    ListFacts,
    LogFacts,
    MonitorProgress,
    ShareFacts,
    StoredFacts,
    ViewFacts,
)
from koff.monitor.moment import Moment
from koff.monitor.plan import Replay, Seed
from koff.monitor.requests import Display, Topic
from koff.records import OffsetCommit, OffsetCommitValue, encode
from koff.records.placement import group_partition
from koff.serve.metrics.exposition import Exposition
from koff.tracker import GroupTotal, Tracker
from koff.tracker.selection import select_groups
from koff.view.cluster_view import ClusterFacts, ClusterView
from tests.group_records import Share
from tests.unit.builders import apply, commit
from tests.unit.serve.views import EVERYTHING
from tests.unit.tracker.share_groups import share, snapshot_of

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
        self.facts = ViewFacts(
            "c",
            Display(),
            CurrentTime(
                Moment(NOW_MS / 1000, 0), NOW_MS - LIMIT_MS, lambda moment: round(moment.at_s * 1000)
            ),
            LogFacts(follow("__consumer_offsets", 2, FRESH), follow("__share_group_state", 0, None)),
            ShareFacts(),
            StoredFacts(),
            ListFacts(undoubted=FRESH),
            MonitorProgress(ends_known=True, was_ready=True),
        )

    def commit(self, shard: int, group: str, topic: str, partition: int, offset: int | None = 5) -> None:
        apply(self.tracker, commit(group, topic, partition, offset), partition=shard)

    def sample(self, ms: int) -> None:
        self.tracker.add_samples(ends={("t", 0): 9}, at_ms=ms)

    def view(self, **change: Any) -> ClusterView:
        """The view after a change of facts: `part_field`, such as `stored_requested`, or a whole part."""
        facts = self.facts
        for name, value in change.items():
            part, _, field = name.partition("_")
            own = dataclasses.replace(getattr(facts, part), **{field: value}) if field else value
            facts = dataclasses.replace(facts, **{part: own})
        return build_view(self.tracker.take_snapshot(NOW_MS), facts)

    def reasons(self, **change: Any) -> dict[str, Reason]:
        return {row.group: row.reasons for row in self.view(**change).snapshot.rows()}

    def readiness(self, **change: Any) -> str:
        return self.view(**change).readiness.text

    def hold_back(self, partition: int, current: Moment | None) -> FollowedPartition:
        """An open transaction holds back all but the first 5 of 8 offsets of the partition."""
        part = self.facts.logs.offsets.partitions[partition]
        part.position, part.stable, part.end, part.current = 5, 5, 8, current
        return part


@pytest.fixture
def known():
    return Known()


def test_a_row_is_silent_up_to_the_moment_up_to_which_its_commits_are_known(known):
    known.facts.logs.offsets.partitions[1].current = Moment(80.0, 0)
    snapshot = known.view().snapshot
    known_until = [snapshot.commit_time_ms(snapshot.shards[number], NOW_MS) for number in (0, 1)]
    assert known_until == [90_000, 80_000]
    known.facts.logs.offsets.partitions[1].stale_groups = {"g1": FRESH}
    snapshot = known.view().snapshot
    part = select_groups(snapshot, {1: [0]})
    assert np.array_equal(part.commit_time_ms(part.shards[1], NOW_MS), [90_000])


def test_a_row_as_old_as_the_limit_is_served(known):
    known.sample(ms=NOW_MS - LIMIT_MS)
    assert set(known.reasons().values()) == {Reason(0)}


def test_a_commit_to_a_topic_that_is_newer_than_the_list_is_withheld_and_not_taken_for_an_old_one(known):
    known.tracker.identify_topics({"t": TOPIC_ID})
    value = OffsetCommitValue(version=4, offset=5, metadata="", commit_timestamp=1, topic_id=Share.places[1])
    key, encoded = encode(OffsetCommit(group="g0", topic="t", partition=0, value=value))
    known.tracker.apply(0, [key], [encoded], seen_at_ms=95_000)  # the list is of 90 s
    assert known.reasons()["g0"] & Reason.END_NOT_CURRENT
    assert known.reasons(listed_undoubted=Moment(96.0, 0))["g0"] == Reason.TOPIC_RECREATED


def test_a_group_of_zookeeper_is_unknown_while_the_partition_is_not_read_where_kafka_would_have_it(known):
    names = {group_partition(name, 2): name for name in ("za", "zb", "zc", "zd")}
    known.tracker.apply_external_commits(-1, {(name, "t", 0): (5, 1) for name in names.values()}, [], {})
    known.facts.logs.offsets.partitions[1].current = None
    reasons = known.reasons(stored_requested=FRESH)
    assert (reasons[names[0]], reasons[names[1]]) == (Reason(0), Reason.COMMITS_NOT_CURRENT)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "ready"),
        ({"stored_are_known": False}, "not ready: the groups of ZooKeeper are not known yet"),
        ({"progress_ends_known": False}, "not ready: end offsets are not known yet"),
        ({"progress_ends_known": False, "progress_failure": "no route"}, "not ready: no route"),
        ({"logs_offsets": follow("o", 2, None)}, "not ready: 0 offsets of o are to be read, of 2 partitions"),
        ({"logs_offsets": FollowedLog("o", lambda *_: None)}, "not ready: looking for o"),
        ({"logs_share": follow("s", 1, None)}, "not ready: 0 offsets of s are to be read, of 1 partitions"),
    ],
)
def test_at_the_start_koff_is_ready_when_both_logs_were_read(known, change, text):
    assert known.readiness(progress_was_ready=False, **change) == text


def test_a_leaderless_partition_does_not_delay_readiness(known):
    part = known.facts.logs.offsets.partitions[1]
    part.current, part.is_read = None, False
    assert known.readiness(progress_was_ready=False).startswith("not ready")
    known.facts.logs.offsets.leaderless = frozenset({1})
    assert known.readiness(progress_was_ready=False) == "ready"


def test_a_cluster_without_groups_is_ready(known):
    known.tracker = Tracker()
    assert known.readiness(progress_was_ready=False) == "ready"
    assert known.readiness() == "ready"


def test_later_koff_is_ready_as_long_as_some_row_may_be_served(known):
    known.facts.logs.offsets.partitions[0].current = OLD
    assert known.readiness() == "ready"
    known.facts.logs.offsets.partitions[1].current = OLD
    assert known.readiness() == "not ready: none of 2 lags is current: the cluster does not respond"
    known.facts.logs.offsets.denied = "no READ"
    assert known.readiness().endswith("no READ")


def test_koff_is_not_ready_at_the_start_if_no_row_may_be_served(known):
    known.sample(ms=1)
    view = known.view(progress_was_ready=False)
    assert view.readiness.text == "not ready: none of 2 lags is current: the cluster does not respond"
    assert not view.stats.up


def test_a_cluster_without_the_offsets_topic_is_ready_and_says_so(known):
    known.tracker, known.facts.logs.offsets.exists = Tracker(), False
    assert known.readiness() == "ready: no __consumer_offsets yet, so no groups"


def test_zookeeper_is_named_if_only_its_groups_are_there_and_old(known):
    known.tracker = Tracker()
    known.tracker.apply_external_commits(-1, {("z", "t", 0): (5, 1)}, [], {})
    known.sample(ms=90_000)
    assert known.readiness(stored_requested=FRESH) == "ready"
    assert known.readiness(stored_requested=OLD).endswith("ZooKeeper does not respond")


def test_the_view_has_the_cluster_and_counts_lags_and_those_that_are_withheld(known):
    known.commit(0, "g0", "t", 1, -1)  # no lag
    known.facts.logs.offsets.partitions[1].current = OLD
    view = known.view(progress_skipped={"record: ValueError": 3}, progress_record_counts={"Undecodable": 2})
    stats = view.stats
    assert (view.cluster, stats.rows, stats.withheld, stats.up, stats.source) == ("c", 2, 1, True, "log")
    assert (stats.skipped, stats.undecodable) == ({"record: ValueError": 3}, 2)
    assert view.snapshot.withheld_rows() == 1


def share_group(known: Known) -> None:
    """A share group s with state in two partitions of `__share_group_state`. A member has t-2 too."""
    tracker, held = known.tracker, {TOPIC_ID: (0, 1, 2)}
    tracker.identify_topics({"t": TOPIC_ID})
    tracker.set_offsets_partitions(2)
    place = group_partition("s", 2)
    for record in (Share.own("s", 1), Share.member("s", "m"), Share.current("s", "m", 1, held)):
        tracker.apply(place, *([part] for part in encode(record)))
    for partition in (0, 1):
        share(tracker, partition, snapshot_of("s", 4, partition=partition))
    tracker.add_samples(ends={("t", p): 9 for p in range(3)}, at_ms=90_000)
    logs = dataclasses.replace(known.facts.logs, share=follow("__share_group_state", 3, FRESH))
    known.facts = dataclasses.replace(known.facts, logs=logs)


def see_shares(view: ClusterView) -> dict[int, tuple[int | None, Reason]]:
    rows = [row for row in view.snapshot.rows() if row.group == "s"]
    return {row.partition: (row.lag, row.reasons) for row in rows}


def total_of(view: ClusterView, name: str) -> GroupTotal:
    (found,) = (total for total in view.snapshot.totals() if total.group.name == name)
    return found


def test_a_share_group_has_a_total_only_while_all_partitions_of_its_state_are_current(known):
    share_group(known)
    view = known.view()
    assert (total_of(view, "s").lag, total_of(view, "s").whole) == (10, True)
    assert see_shares(view)[2] == (None, Reason.NO_COMMIT)
    known.facts.logs.share.partitions[2].current = OLD  # no row is from there, as far as koff knows
    view, withheld = known.view(), Reason.COMMITS_NOT_CURRENT
    assert see_shares(view) == {0: (5, Reason(0)), 1: (5, Reason(0)), 2: (None, withheld)}
    found = total_of(view, "s")
    assert (found.lag, found.time_lag_s, found.complete) == (None, None, None)
    assert (found.whole, found.withheld, found.member_count, found.state) == (False, 1, 1, "Stable")
    assert total_of(view, "g0").lag == 4
    assert view.stats.missing[0].startswith("1 partitions of __share_group_state are not read")
    assert view.stats.internal_partitions > view.stats.not_current == 1


def test_the_sums_of_a_share_group_are_absent_while_a_part_of_its_state_is_not_read(known):
    share_group(known)
    sums = ("koff_group_total_lag", "koff_group_topic_lag")
    assert {name for name in sums if f'{name}{{cluster="c",group="s"' in render(known.view())} == set(sums)
    known.facts.logs.share.partitions[0].current = None
    text = render(known.view())
    assert not [name for name in sums if f'{name}{{cluster="c",group="s"' in text]
    assert 'koff_group_lag{cluster="c",group="s",topic="t",partition="1"} 5' in text
    assert 'koff_group_members{cluster="c",group="s"} 1' in text
    assert 'koff_group_total_lag{cluster="c",group="g0"} 4' in text


def render(view: ClusterView) -> str:
    return b"".join(Exposition(EVERYTHING).render_chunks(view)).decode()


def test_a_share_group_with_state_of_a_topic_that_no_list_has_had_has_no_total(known):
    share_group(known)
    view = known.view(shares_nameless={"s"})
    assert (total_of(view, "s").lag, total_of(view, "s").reason) == (None, "rows_missing")
    assert "the list of topics is too old" in str(view.stats.missing_shares_why)
    assert known.view().stats.missing_shares_why is None
    known.facts.logs.share.partitions[2].current = OLD  # why lags are missing is said already
    view = known.view(shares_nameless={"s"})
    assert (view.stats.missing_shares_why, len(view.stats.missing)) == (None, 1)


@pytest.mark.parametrize(("at_ms", "is_whole"), [(None, False), (70_000, False), (90_000, True)])
def test_a_group_that_coordinators_describe_has_a_total_if_a_late_response_had_all_its_lags(
    known, at_ms, is_whole
):
    share_group(known)
    known.facts.logs.share.partitions[0].current = None
    found = total_of(known.view(shares_described_ms={"s": at_ms}, shares_missing_why="why"), "s")
    assert found.whole == is_whole


def test_the_age_of_end_offsets_is_that_of_the_oldest_that_a_row_uses(known):
    assert known.view().stats.input_ages_s["end_offsets"] == 10.0
    known.tracker.add_samples(ends={("unused", 0): 9}, at_ms=50_000)
    known.commit(0, "g0", "never sampled", 0)
    assert known.view().stats.input_ages_s["end_offsets"] == 10.0
    known.commit(0, "g0", "u", 0)
    known.tracker.add_samples(ends={("u", 0): 9}, at_ms=60_000)
    assert known.view().stats.input_ages_s["end_offsets"] == 40.0
    known.tracker.partitions.forget_offsets([("u", 0)])
    assert known.view().stats.input_ages_s["end_offsets"] == 10.0


def test_commits_are_held_back_for_as_long_as_the_oldest_transaction_is_open_whoever_responds(known):
    assert (known.view().stats.held_back_records, known.view().stats.held_back_s) == (0, 0.0)
    known.facts.logs.offsets.partitions[1].current = OLD  # it is behind, but nothing holds it back
    first, second = known.hold_back(0, FRESH), known.facts.logs.offsets.partitions[1]
    for part in (first, second):
        part.note_held_back(OLD)
    assert (known.view().stats.held_back_records, known.view().stats.held_back_s) == (3, 30.0)
    assert known.view().stats.held_back_partitions == {0}
    known.hold_back(1, OLD).note_held_back(FRESH)
    assert (known.view().stats.held_back_records, known.view().stats.held_back_s) == (6, 30.0)
    first.stable = 6  # that transaction has ended, and another one is open
    first.position = 6
    first.note_held_back(Moment(95.0, 0))
    assert known.view().stats.held_back_s == 10.0
    second.stable = first.stable = 8
    for part in (first, second):
        part.note_held_back(Moment(95.0, 0))
    assert known.view().stats.held_back_s == 0.0


def test_the_history_that_is_left_is_that_before_the_position_of_each_partition(known):
    first, second = known.facts.logs.offsets.partitions.values()
    first.start, first.position, second.start, second.position = 10, 100, 0, 1000
    assert known.view().stats.backfill_remaining == 0
    first.needs_history = second.needs_history = True
    assert known.view().stats.backfill_remaining == 90 + 1000
    replayed = Replayed(1, 0, first.resets, until=80, counted_from=0, shard=known.tracker.create_shard())
    assert known.view(logs_history=replayed).stats.backfill_remaining == 70 + 1000
    replayed.position = 50
    assert known.view(logs_history=replayed).stats.backfill_remaining == 30 + 1000
    first.needs_history = False
    assert known.view().stats.backfill_remaining == 1000


def test_nothing_is_said_of_reading_the_log_while_the_coordinators_are_the_source(known):
    part = known.hold_back(0, OLD)
    part.needs_history, part.start, part.position = True, 0, 3
    stats = known.view().stats
    assert (stats.behind, stats.backfill_remaining) == (2, 3)
    stats = known.view(logs_source="coordinators").stats
    assert (stats.behind, stats.held_back_records, stats.held_back_s) == (None, 0, 0.0)
    assert (stats.backfill_remaining, stats.source) == (0, "coordinators")


def test_before_the_first_response_koff_waits_for_the_coordinators_if_the_log_is_never_read(known):
    log = follow("__consumer_offsets", 2, None)
    log.denied, log.is_never_read = "--source coordinators", True
    change = {"logs_offsets": log, "logs_source": "coordinators", "progress_was_ready": False}
    assert known.readiness(**change) == "not ready: the coordinators have not responded yet"
    assert known.readiness(**change, progress_failure="no route") == "not ready: no route"


def test_koff_is_not_ready_while_it_reads_all_partitions_anew(known):
    known.tracker = Tracker()
    for part in known.facts.logs.offsets.partitions.values():
        part.current, part.is_read = None, False
    assert known.readiness().startswith("not ready: 0 offsets of __consumer_offsets are to be read")


def test_groups_of_zookeeper_that_may_not_be_read_are_named_as_missing(known):
    assert known.view().stats.missing == ()
    (sentence,) = known.view(stored_refused={"shut": "/consumers/shut/ids"}).stats.missing
    assert "/consumers/shut/ids" in sentence


def test_a_group_elsewhere_is_as_current_as_the_partition_that_it_may_have_moved_to(known):
    other = group_partition("g0", 2)
    known.commit(1 - other, "stays", "t", 0)
    name = next(f"m{n}" for n in range(100) if group_partition(f"m{n}", 2) == other)
    known.commit(1 - other, name, "t", 0)
    elsewhere = {name: 1 - other}
    assert known.reasons(logs_elsewhere=elsewhere)[name] == Reason(0)
    for current in (OLD, None):  # not read yet, if the topic has just grown
        known.facts.logs.offsets.partitions[other].current = current
        reasons = known.reasons(logs_elsewhere=elsewhere)
        assert reasons[name] == Reason.COMMITS_NOT_CURRENT
        assert reasons["stays"] == Reason(0)


def find_name(partition: int) -> str:
    """The name of a group of that partition which is not there."""
    return next(name for n in range(99) if group_partition(name := f"absent{n}", 2) == partition)


def test_an_expected_group_is_absent_if_its_partition_is_current_and_does_not_have_it(known):
    first, second = find_name(0), find_name(1)
    display = Display(expected_groups=("g0", "g1", first, second))
    assert known.view(display=display).expected_groups == {
        "g0": True,
        "g1": True,
        first: False,
        second: False,
    }
    known.facts.logs.offsets.partitions[1].current = OLD
    assert known.view(display=display).expected_groups == {"g0": True, first: False}


def test_nothing_is_known_of_an_expected_group_that_another_process_reads(known):
    display = Display(expected_groups=(find_name(0), find_name(1)))
    del known.facts.logs.offsets.partitions[1]
    assert known.view(display=display).expected_groups == {find_name(0): False}


def test_an_expected_group_is_absent_while_there_is_no_offsets_topic(known):
    offsets = FollowedLog("__consumer_offsets", lambda *_: None)
    display = Display(expected_groups=("late",))
    known.tracker = Tracker()
    assert known.view(display=display, logs_offsets=offsets).expected_groups == {}
    offsets.note_topic(None)
    assert known.view(display=display, logs_offsets=offsets).expected_groups == {"late": False}


def test_an_expected_group_may_be_one_of_zookeeper_that_is_not_known_now(known):
    name = find_name(0)
    display = Display(expected_groups=(name,))
    known.commit(STORED_GROUPS_SHARD, "stored", "t", 0)
    assert known.view(display=display, stored_requested=OLD).expected_groups == {}
    assert known.view(display=display, stored_requested=FRESH).expected_groups == {name: False}


def test_koff_is_not_ready_if_it_may_not_see_the_topic_and_sees_no_group(known):
    log = follow("__consumer_offsets", 0, None)
    log.note_topic(None)
    log.hide("not listed")
    log.begin({0: Seed(0, "")}, Moment(0, 0))
    log.partitions[0].current, log.partitions[0].is_read = FRESH, True
    denied = ListFacts(facts=ClusterFacts(denied=frozenset({"__consumer_offsets"})), undoubted=FRESH)
    logs = dataclasses.replace(known.facts.logs, offsets=log)
    known.tracker = Tracker()
    assert known.readiness(logs=logs, progress_was_ready=False) == (
        "ready: no __consumer_offsets yet, so no groups"
    )
    assert known.readiness(logs=logs, listed=denied, progress_was_ready=False) == (
        "not ready: koff sees no group, and may not DESCRIBE __consumer_offsets: docs/security.md has the"
        " rights that it needs"
    )
    known.commit(0, "g0", "t", 0)
    known.sample(ms=90_000)
    assert known.readiness(logs=logs, listed=denied, progress_was_ready=False) == "ready"
