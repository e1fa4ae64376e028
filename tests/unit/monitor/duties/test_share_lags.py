"""Share groups whose state may not be read have the lags that their coordinators return."""

from typing import Any

import pytest

from koff.monitor.duties.record_ages import FirstRecordsRead, ReadFirstRecords
from koff.monitor.duties.retention import FetchTopicConfigs
from koff.monitor.duties.share_lags import FetchShareLags, ShareLagsFetched
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.requests import Failed, Polled, Read, ReadFailed, Records, Topic
from koff.records import encode
from koff.records.topics import SHARE_STATE_TOPIC
from koff.tracker import PartitionLag, ShareLag
from tests.group_records import Share
from tests.unit.builders import commit
from tests.unit.monitor.driven import IDS, OFFSETS, Driven
from tests.unit.tracker.share_groups import snapshot_of

T_ID = IDS["t"]
ALL = frozenset({0})


def answer_offsets(driven: Driven) -> None:
    """Everything ends at 100, but the internal topics: at 2 records, and without any."""
    driven.report_ends()
    ends = {OFFSETS: 2, SHARE_STATE_TOPIC: 0}
    driven.respond_offsets(
        lambda at, kind: 0 if kind == "start" or type(kind) is int else ends.get(at[0], 100)
    )


def start(*, lists_share_state: bool = False, groups: bool = True, **conf: Any) -> Driven:
    """A core that has read a share group s, and a classic group."""
    driven = Driven(**conf)
    ids = {OFFSETS: Topic(IDS[OFFSETS], 1), "t": Topic(T_ID, 1)}
    if lists_share_state:
        ids[SHARE_STATE_TOPIC] = Topic("S" * 22, 1)
    driven.give(TopicsFetched(driven.last(FetchTopics).id, ids))
    answer_offsets(driven)
    if lists_share_state:
        driven.give(ReadFailed(SHARE_STATE_TOPIC, "grant READ", denied=True))
    own = encode(Share.own("s", 1)) if groups else commit("other", "t", 0, 1)
    driven.poll(own, commit("classic", "t", 0, 90))
    answer_offsets(driven)
    return driven


def respond(driven: Driven, lag: int | None, **more: Any) -> None:
    lags = {"s": [ShareLag("t", T_ID, 0, lag)]}
    driven.give(ShareLagsFetched(driven.last(FetchShareLags).id, lags, more.pop("partitions", ALL), **more))


def go_on(driven: Driven, seconds: int) -> None:
    """So many seconds pass. All offsets are answered, coordinators are silent."""
    for _ in range(seconds):
        driven.give(None, after_s=1)
        answer_offsets(driven)


def row(driven: Driven, group: str = "s") -> PartitionLag:
    """The row of the group, as it is served."""
    view = driven.take_view()
    (found,) = (row for row in view.snapshot.rows() if row.group == group)
    return found


@pytest.mark.parametrize("lists_share_state", [True, False], ids=["denied", "absent in the list"])
def test_the_coordinators_are_asked_at_each_sample_and_their_lags_are_served(lists_share_state):
    driven = start(lists_share_state=lists_share_state)
    for lag in (7, 0, 30):
        before = driven.last(FetchShareLags)
        respond(driven, lag)
        assert (row(driven).lag, row(driven).committed) == (lag, None)
        go_on(driven, 5)
        assert driven.last(FetchShareLags).id > before.id


def with_three_partitions() -> Driven:
    """A core that has read the share group s in an offsets topic with three partitions."""
    driven = Driven(start="replay")
    driven.list_topics(**{OFFSETS: 3, "t": 1})
    answer_offsets(driven)
    starts = driven.last(Read).starts
    key, value = encode(Share.own("s", 1))
    empty = {number: (place.attempt, 2) for number, place in starts.items()}
    records = [Records(0, starts[0].attempt, [key], [value], [0])]
    driven.give(Polled(OFFSETS, records, empty))
    answer_offsets(driven)
    go_on(driven, 6)
    return driven


def test_a_coordinator_that_has_responded_is_asked_again_while_another_one_is_silent():
    driven = with_three_partitions()
    first = driven.last(FetchShareLags)
    assert (first.partitions, first.partition_count) == ({0, 1, 2}, 3)
    respond(driven, 7, partitions=frozenset({0, 2}), final=False)
    go_on(driven, 5)
    assert driven.last(FetchShareLags).partitions == {0, 2}


def test_the_log_takes_over_when_it_may_be_read_and_a_late_response_is_ignored():
    driven = start(lists_share_state=True)
    respond(driven, 7)
    go_on(driven, 5)
    reads = [read for read in driven.requests(Read) if read.topic == SHARE_STATE_TOPIC]
    attempt = reads[-1].starts[0].attempt
    key, value = snapshot_of("s", 95, topic_id=T_ID)
    driven.give(Polled(SHARE_STATE_TOPIC, [Records(0, attempt, [key], [value], [0])]))
    assert row(driven).lag == 7
    late = driven.last(FetchShareLags)
    go_on(driven, 5)
    assert (row(driven).lag, row(driven).committed) == (5, 95)
    driven.give(ShareLagsFetched(late.id, {"s": [ShareLag("t", T_ID, 0, 8)]}, ALL))
    go_on(driven, 5)
    assert row(driven).committed == 95
    assert driven.last(FetchShareLags) is late


def respond_again(driven: Driven, lag: int) -> None:
    """The coordinators respond to the next request."""
    go_on(driven, 5)
    respond(driven, lag)


def why_missing(driven: Driven) -> str | None:
    """Why lags of share groups are missing, if the total of s is not known."""
    view = driven.take_view()
    (found,) = (each for each in view.snapshot.totals() if each.group.name == "s")
    return None if found.whole else view.stats.missing_shares_why


SILENT = "not all of their coordinators have responded lately"


def test_missing_lags_have_a_reason():
    driven = start()
    assert why_missing(driven) == SILENT
    driven.give(ShareLagsFetched(driven.last(FetchShareLags).id, {}, ALL, why="b1: too old"))
    assert why_missing(driven) == "b1: too old"
    go_on(driven, 5)
    driven.give(ShareLagsFetched(driven.last(FetchShareLags).id, {}, ALL))
    assert "koff needs DESCRIBE on the groups" in str(why_missing(driven))
    respond_again(driven, 7)
    assert why_missing(driven) is None
    warnings = [text for text in driven.take_texts() if "share" in text]
    assert warnings == ["lags of share groups are missing", "all lags of share groups were returned"]


def test_a_silent_coordinator_is_not_taken_for_one_that_may_not_say():
    driven = start()
    respond(driven, 7)
    go_on(driven, 29)
    assert why_missing(driven) == SILENT
    go_on(driven, 41)
    assert why_missing(driven) == "no response in time"
    respond(driven, 7)
    assert why_missing(driven) is None


def test_a_failed_request_for_share_lags_shows_that_the_cluster_does_not_answer():
    driven = start()
    go_on(driven, 5)
    assert driven.core.outbox.failure is None
    driven.give(None, after_s=30)
    driven.give(Failed(driven.last(FetchShareLags).id, "b1 refuses"))
    assert driven.core.outbox.failure == "b1 refuses"


def test_a_request_that_fails_has_failed_only_for_those_that_have_not_responded_to_it():
    driven = with_three_partitions()
    respond(driven, 7, partitions=frozenset({0, 2}), final=False)
    driven.give(Failed(driven.last(FetchShareLags).id, "b1 is gone"))
    view = driven.take_view()
    assert view.stats.missing_shares_why == "b1 is gone"
    go_on(driven, 5)
    respond(driven, 7, partitions=frozenset({1}), final=False)
    assert "b1 is gone" not in str(driven.take_view().stats.missing_shares_why)


def test_the_error_of_a_partition_that_is_hidden_now_is_no_reason():
    driven = with_three_partitions()
    respond(driven, None, partitions=frozenset({2}), why="b3: too old")
    assert driven.take_view().stats.missing_shares_why == "b3: too old"
    driven.core.logs.offsets.hide("may not be described")
    assert driven.take_view().stats.missing_shares_why == SILENT


def test_lags_are_missing_with_the_log_as_the_only_source_which_may_not_be_read():
    driven = start(source="log", groups=True)
    go_on(driven, 10)
    assert "__share_group_state" in str(why_missing(driven))


def test_koff_is_settled_only_after_the_coordinators_have_responded():
    driven = start()
    while not driven.core.is_dated and driven.second < 60:
        go_on(driven, 1)
    assert not driven.core.is_settled
    respond(driven, 7)
    driven.give(FirstRecordsRead(driven.last(ReadFirstRecords).id, {}))
    assert not driven.core.is_settled
    driven.give(Failed(driven.last(FetchTopicConfigs).id, "may not be asked"))
    assert driven.core.is_settled
