"""Partitions of the offsets topic begin with what the coordinators said, each by itself."""

from typing import Any

import pytest

from koff.monitor.duties.groups import FetchGroups
from koff.monitor.duties.retention import FetchTopicConfigs
from koff.monitor.duties.savings import ForgetSaved
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.known_groups import MOVING_S
from koff.monitor.requests import Failed, Lost, Polled, Read, ReadFailed, Records, Topic, TopicPartition
from koff.records.placement import group_partition
from koff.view.cluster_view import ClusterFacts
from tests.unit.builders import commit
from tests.unit.monitor.driven import IDS, OFFSETS, Driven

PARTITIONS = 3
REVOKED = "GROUP_AUTHORIZATION_FAILED"


def name_in(partition: int) -> str:
    """The name of a group that belongs to that partition."""
    return next(f"g{i}" for i in range(1000) if group_partition(f"g{i}", PARTITIONS) == partition)


EVERY = {name_in(p) for p in range(PARTITIONS)}


def respond_bounds(driven: Driven) -> None:
    """The first three partitions of the offsets topic have records from 0 to 4, the others none."""

    def find_bound(at: TopicPartition, kind: Any) -> int | None:
        if at[0] != OFFSETS or kind not in ("start", "stable"):
            return None
        return 5 if kind == "stable" and at[1] < PARTITIONS else 0

    driven.respond_offsets(find_bound)


def start(partitions: int = PARTITIONS, **conf: Any) -> Driven:
    """A core that has asked the coordinators about so many partitions."""
    driven = Driven(start="snapshot", **conf)
    driven.list_topics(**{OFFSETS: partitions, "t": 1})
    respond_bounds(driven)
    driven.give(Failed(driven.last(FetchTopicConfigs).id, "may not be asked"))
    return driven


def respond(driven: Driven, *partitions: int, **more: Any) -> None:
    """The coordinators return one group of each of these partitions."""
    driven.respond_groups({(name_in(partition), "t", 0): 7 for partition in partitions}, **more)


def test_only_the_partitions_whose_coordinator_is_silent_are_read_from_their_start():
    driven = start()
    respond(driven, 0, 2, incomplete={1: "broker 2: no response in time"})
    assert driven.groups() == {name_in(0), name_in(2)}
    assert driven.starts() == {1: 0}
    (event,) = [event for event in driven.core.take_events() if event.text == "partitions start: replay"]
    assert event.details == {"partitions": 1, "why": "broker 2: no response in time"}


@pytest.mark.parametrize(("interval_s", "poll_s"), [(1.0, 2.5), (5.0, 5.0)])
def test_a_poll_waits_for_a_coordinator_for_half_of_the_limit_at_most(interval_s, poll_s):
    driven = start(source="coordinators", end_interval_s=interval_s)
    assert driven.last(FetchGroups).patience_s == 5.0
    respond(driven, 0, 2, incomplete={1: "broker 2: no response in time"})
    driven.give(None, after_s=6)
    assert driven.last(FetchGroups).patience_s == 5.0  # partition 1 begins with this response
    respond(driven, 0, 1, 2)
    driven.give(None, after_s=6)
    assert driven.last(FetchGroups).patience_s == poll_s


def test_a_coordinator_that_hangs_does_not_delay_the_next_request_to_the_others():
    driven = start(source="coordinators")
    request = driven.last(FetchGroups)
    respond(driven, 0, 2, partitions=frozenset({0, 2}), final=False)
    driven.give(None, after_s=6)
    assert driven.last(FetchGroups).partitions == {0, 2}
    assert driven.core.outbox.get(request.id) is not None


def test_a_silent_coordinator_leaves_only_its_own_partitions_as_old_as_they_were():
    driven = start(source="coordinators")
    for _ in range(2):
        respond(driven, 0, 1, 2)
    before = {p: part.current for p, part in driven.core.logs.offsets.partitions.items()}
    driven.give(None, after_s=6)
    respond(driven, 0, 2, incomplete={1: "broker 2: no response in time"})
    after = {p: part.current for p, part in driven.core.logs.offsets.partitions.items()}
    assert [p for p in after if after[p] == before[p]] == [1]
    assert driven.groups() == EVERY


# --- The topic has grown ----------------------------------------------------------------------------------

GROWN = 2 * PARTITIONS
MOVING = next(
    f"g{i}" for i in range(1000) if group_partition(f"g{i}", PARTITIONS) != group_partition(f"g{i}", GROWN)
)
BEFORE, AFTER = group_partition(MOVING, PARTITIONS), group_partition(MOVING, GROWN)


def grow(driven: Driven) -> None:
    """The topic has twice as many partitions now. The new ones are empty, and so far not in use."""
    driven.wait_for(FetchTopics)
    driven.list_topics(**{OFFSETS: GROWN, "t": 1})
    driven.respond_offsets(
        lambda at, kind: None if kind not in ("start", "stable") else 0 if at[1] >= PARTITIONS else 5
    )


def respond_with(driven: Driven, *names: str, **more: Any) -> None:
    """The coordinators return these groups, to a new request."""
    driven.wait_for(FetchGroups)
    driven.respond_groups({(name, "t", 0): 7 for name in names}, **more)


def open_transaction(driven: Driven) -> None:
    """A transaction holds back the newest records of partition `AFTER`: the coordinators are asked."""
    part = driven.core.logs.offsets.partitions[AFTER]
    part.stable, part.end = part.position, part.position + 2
    driven.core.logs.start.fetch_held_back(driven.now(), driven.second)
    driven.give(None)


def stale_groups(driven: Driven, partition: int) -> set[str]:
    return set(driven.core.logs.offsets.partitions[partition].stale_groups)


def grown(**conf: Any) -> Driven:
    """A core of a topic that has grown, with a group that belongs to another partition now."""
    driven = start(**conf)
    respond_with(driven, MOVING)
    grow(driven)
    while driven.last(FetchGroups).partitions != frozenset(range(GROWN)):
        respond_with(driven, MOVING)
        driven.give(None, after_s=5)
    return driven


def test_a_group_that_no_partition_shows_is_not_taken_out_of_a_response():
    driven = start()
    respond_with(driven, MOVING)
    grow(driven)
    driven.core.tracker.set_offsets_partitions(GROWN, last_written=GROWN - 1)  # not by a coordinator
    assert driven.groups() == set()
    open_transaction(driven)
    assert driven.last(FetchGroups).partitions == {AFTER}
    respond_with(driven, MOVING)
    assert driven.core.tracker.group_names(AFTER) == set()


def test_a_response_does_not_place_a_group_that_may_be_in_a_partition_which_is_read_anew():
    driven = start()
    respond_with(driven, MOVING)
    grow(driven)
    logs = driven.core.logs
    place = logs.offsets.partitions[BEFORE]
    driven.give(Polled(OFFSETS, [], {}, [Lost(BEFORE, place.attempt, "truncated")]))
    assert (driven.groups(), logs.offsets.partitions[BEFORE].current) == (set(), None)
    open_transaction(driven)
    assert (AFTER in driven.last(FetchGroups).partitions, driven.last(FetchGroups).together) == (True, True)
    respond_with(driven, MOVING)
    assert driven.core.tracker.group_names(AFTER) == set()
    assert stale_groups(driven, AFTER) == {MOVING}


def test_what_a_group_has_left_in_its_earlier_partition_is_dropped():
    driven = grown(source="coordinators")
    respond_with(driven, failed={MOVING: "GROUP_ID_NOT_FOUND"})
    assert driven.groups() == set()
    respond_with(driven, MOVING, failed={"another": "NOT_COORDINATOR"})  # it has begun anew
    assert driven.core.tracker.group_names(AFTER) == {MOVING}


@pytest.mark.parametrize(
    "response",
    [{"incomplete": {AFTER: "broker 2: no response in time"}}, {"failed": {MOVING: REVOKED}}],
    ids=["is silent", "refuses"],
)
def test_a_group_is_kept_if_the_coordinator_that_it_may_have_now_does_not_say_that_it_is_gone(response):
    driven = grown(source="coordinators")
    respond_with(driven, **response)
    assert driven.groups() == stale_groups(driven, BEFORE) == {MOVING}


def test_the_log_says_where_a_group_is_that_its_coordinator_has_by_an_earlier_partition_count():
    driven = start(GROWN)
    others = frozenset(range(GROWN)) - {BEFORE}
    driven.respond_groups({}, partitions=others, final=False)
    driven.respond_groups({}, partitions=frozenset({BEFORE}), elsewhere=frozenset({MOVING}))
    place = driven.last(Read).starts[BEFORE]
    assert place.offset == 0
    assert BEFORE in driven.core.logs.offsets.unread
    keys, values = zip(commit(MOVING, "t", 0, 7), strict=True)
    driven.give(
        Polled(OFFSETS, [Records(BEFORE, place.attempt, keys, values, [0])], {BEFORE: (place.attempt, 5)})
    )
    assert driven.groups() == {MOVING}
    assert driven.core.tracker.group_names(BEFORE) == {MOVING}


def test_coordinators_learn_which_partitions_are_empty_and_no_group_of_them_is_asked_for():
    request = start(GROWN).last(FetchGroups)
    assert request.empty == set(range(PARTITIONS, GROWN))
    assert request.partitions == set(range(PARTITIONS))


# --- The list of topics lacks __consumer_offsets ---------------------------------------------------------


def list_without_offsets_topic(driven: Driven) -> None:
    """Several lists lack the offsets topic."""
    for _ in range(3):
        driven.list_topics(t=1)
        driven.wait_for(FetchTopics)


def is_ready(driven: Driven) -> bool:
    return driven.take_view().readiness.ready


@pytest.mark.parametrize("source", ["auto", "coordinators"])
def test_the_coordinators_are_asked_if_the_list_of_topics_lacks_the_offsets_topic(source):
    driven = Driven(start="snapshot", source=source)
    list_without_offsets_topic(driven)
    assert not is_ready(driven)
    respond(driven, 0, 1, 2)
    driven.respond_offsets(lambda at, kind: 9)
    assert driven.groups() == EVERY
    assert is_ready(driven)
    assert [row.lag for row in driven.take_view().snapshot.rows()] == [2, 2, 2]
    assert driven.take_texts().count("the coordinators are asked about all groups") == 1
    respond(driven, 0, 1, 2)
    before = driven.last(FetchGroups)
    driven.give(None, after_s=6)
    assert driven.last(FetchGroups) is not before  # again and again
    assert driven.requests(Read) == []


MOVED = pytest.mark.parametrize("failed", [{}, {name_in(1): "NOT_COORDINATOR"}], ids=["unlisted", "listed"])


@MOVED
def test_a_group_is_kept_that_may_be_moving_to_another_coordinator(failed):
    driven = Driven(start="snapshot")
    list_without_offsets_topic(driven)
    everything = EVERY
    respond_with(driven, *everything)
    part = driven.core.logs.offsets.partitions[0]
    before = part.current
    respond_with(driven, name_in(0), name_in(2), failed=failed)
    assert driven.groups() == everything
    assert part.stale_groups == {name_in(1): before}
    respond_with(driven, *everything)
    assert part.stale_groups == {}


def test_a_group_that_goes_on_to_have_no_coordinator_is_dropped():
    failed = {name_in(1): "NOT_COORDINATOR"}
    driven = Driven(start="snapshot")
    list_without_offsets_topic(driven)
    respond_with(driven, name_in(0), name_in(1))
    part = driven.core.logs.offsets.partitions[0]
    since_s = part.current.at_s if part.current else 0.0
    while driven.groups() == {name_in(0), name_in(1)}:
        respond_with(driven, name_in(0), failed=failed)
        assert driven.now().at_s <= since_s + 2 * MOVING_S
    assert driven.groups() == {name_in(0)}
    assert driven.now().at_s >= since_s + MOVING_S
    assert part.stale_groups == {}


def test_the_coordinators_are_asked_where_groups_are_in_other_partitions_than_by_kafkas_hash():
    driven = Driven(start="snapshot")
    topics = {OFFSETS: Topic(IDS[OFFSETS], PARTITIONS), "t": Topic(IDS["t"], 1)}
    for _ in range(3):
        request = driven.last(FetchTopics)
        driven.give(TopicsFetched(request.id, topics, ClusterFacts(1, {}, (1, 2, 3)), "redpanda.9f3c"))
        driven.wait_for(FetchTopics)
    respond(driven, 0, 1, 2)
    driven.respond_offsets(lambda at, kind: 9)
    assert driven.groups() == EVERY
    assert is_ready(driven)
    assert driven.take_view().facts.coordinators == ()
    assert driven.requests(Read) == []


def test_a_hidden_topic_is_not_waited_for_if_the_log_is_the_source():
    driven = Driven(start="snapshot", source="log")
    list_without_offsets_topic(driven)
    assert is_ready(driven)
    assert driven.requests(FetchGroups) == []


def test_the_offsets_topic_is_read_once_it_appears():
    driven = Driven(start="snapshot", saves=True)
    list_without_offsets_topic(driven)
    respond(driven, 0, 1, 2)
    driven.list_topics(**{OFFSETS: PARTITIONS, "t": 1})
    respond_bounds(driven)
    driven.give(Failed(driven.last(FetchTopicConfigs).id, "may not be asked"))
    assert driven.last(FetchGroups).partition_count == PARTITIONS
    assert driven.last(Read).starts.keys() == {0, 1, 2}
    assert driven.groups() == set()
    respond(driven, 0, 1, 2)
    assert driven.groups() == EVERY
    assert driven.core.logs.offsets.denied is None
    assert driven.requests(ForgetSaved) == []


def test_late_records_of_a_topic_that_was_deleted_do_not_end_the_requests_to_the_coordinators():
    driven = Driven(start="snapshot")
    list_without_offsets_topic(driven)
    respond(driven)
    driven.give(Polled(OFFSETS, [Records(0, 1, [b""], [b""], [7])]))
    driven.give(ReadFailed(OFFSETS, "no such topic"))
    respond(driven)
    before = driven.last(FetchGroups)
    for _ in range(4):
        driven.give(None, after_s=3)
    assert driven.last(FetchGroups) is not before
    assert driven.requests(Read) == []


# --- The topic may be read again -------------------------------------------------------------------------


def deny(driven: Driven, seconds: int) -> None:
    """The topic may not be read for so long; the coordinators respond."""
    for _ in range(seconds):
        driven.give(ReadFailed(OFFSETS, "denied", denied=True), after_s=1)
        if driven.core.outbox.has(FetchGroups):
            respond(driven, 0, 1, 2)
        answer_watermarks(driven, 1_000_000)


def answer_watermarks(driven: Driven, offset: int) -> None:
    driven.respond_offsets(lambda at, kind: 0 if kind == "start" else offset)


def poll_partition(driven: Driven, partition: int, *offsets: int) -> None:
    driven.poll(*[(b"", b"")] * len(offsets), partition=partition, first=offsets[0])


def waiting_records(driven: Driven) -> int:
    parts = driven.core.logs.offsets.partitions.values()
    return sum(len(records.offsets) for part in parts for records, _, _ in part.waiting)


@pytest.mark.parametrize("way", ["snapshot", "replay"])
def test_after_a_long_denial_partitions_begin_again_with_a_new_response(way):
    driven = start()
    respond(driven, 0, 1, 2)
    driven.core.logs.start._way = way  # the start itself was the same
    deny(driven, 60)
    poll_partition(driven, 0, *range(5, 1000))
    assert waiting_records(driven) == 0
    answer_watermarks(driven, 1_000_000)
    assert driven.starts() == dict.fromkeys(range(3), 1_000_000)
    respond(driven, 0, 1, 2)
    assert {part.is_read for part in driven.core.logs.offsets.partitions.values()} == {True}
    assert driven.groups() == EVERY


def test_after_a_denial_partitions_begin_again_that_a_response_has_removed_groups_from():
    driven = start()
    respond(driven, 0, 1, 2)
    driven.give(ReadFailed(OFFSETS, "denied", denied=True))
    driven.wait_for(FetchGroups)
    respond(driven, 0, 2, failed={name_in(1): "GROUP_ID_NOT_FOUND"})
    assert driven.groups() == {name_in(0), name_in(2)}
    poll_partition(driven, 0, 5)
    answer_watermarks(driven, 6)
    assert driven.starts() == {1: 6}
    respond(driven, 1)
    assert driven.groups() == EVERY


def test_after_a_denial_a_topic_that_has_grown_is_read_from_its_start():
    driven = start()
    respond(driven, 0, 1, 2)
    grow(driven)
    deny(driven, 10)
    answer_watermarks(driven, 5)
    poll_partition(driven, 0, 5)
    assert driven.groups() == EVERY
    answer_watermarks(driven, 5)
    assert driven.starts() == dict.fromkeys(range(GROWN), 0)
    assert driven.groups() == set()


# --- koff may not DESCRIBE groups any more ---------------------------------------------------------------


def lose_log(driven: Driven) -> None:
    if driven.core.conf.source == "auto":
        driven.give(ReadFailed(OFFSETS, "denied", denied=True))


def poll_coordinators(driven: Driven, seconds: int, *partitions: int) -> None:
    """The coordinators list one group of each of these partitions, and refuse the others by name."""
    for _ in range(seconds):
        driven.give(None, after_s=1)
        lose_log(driven)
        if driven.core.outbox.has(FetchGroups):
            known = driven.last(FetchGroups).known
            refused = known - {name_in(partition) for partition in partitions}
            respond(driven, *partitions, failed=dict.fromkeys(refused, REVOKED))
        if driven.core.outbox.has(FetchTopics):
            driven.list_topics(**{OFFSETS: PARTITIONS, "t": 1})
        driven.respond_offsets(lambda at, kind: 9)


def see_all(source: str) -> Driven:
    """A core that serves the lags of three groups."""
    driven = start(source=source)
    respond(driven, 0, 1, 2)
    lose_log(driven)
    poll_coordinators(driven, 10, 0, 1, 2)
    assert is_ready(driven)
    return driven


BOTH = pytest.mark.parametrize("source", ["auto", "coordinators"])


@BOTH
def test_an_empty_list_after_a_full_one_is_a_loss_of_sight(source):
    driven = see_all(source)
    poll_coordinators(driven, 90)
    view = driven.take_view()
    assert driven.groups() == EVERY
    assert (view.stats.rows, view.stats.withheld, view.stats.up) == (3, 3, False)
    assert view.readiness.text.endswith("none of 3 lags is current: koff may not DESCRIBE 3 groups")
    assert driven.take_texts().count("groups may not be described any more") == 1
    poll_coordinators(driven, 10, 0, 1, 2)
    assert is_ready(driven)
    assert driven.take_view().stats.withheld == 0
    assert driven.take_texts().count("all groups may be described again") == 1


@BOTH
def test_groups_that_a_list_lacks_are_withheld_and_the_others_served(source):
    driven = see_all(source)
    poll_coordinators(driven, 60, 0, 2)
    view = driven.take_view()
    lags = {row.group: row.lag for row in view.snapshot.rows()}
    assert lags == {name_in(0): 2, name_in(1): None, name_in(2): 2}
    assert (view.readiness.ready, view.stats.withheld) == (True, 1)
    assert view.stats.missing == ("koff may not DESCRIBE 1 group: they are not shown",)


@BOTH
def test_a_group_that_no_coordinator_explains_is_kept(source):
    driven = see_all(source)
    for _ in range(60):
        driven.give(None, after_s=1)
        lose_log(driven)
        if driven.core.outbox.has(FetchGroups):
            respond(driven, 0, 1)
    assert driven.groups() == EVERY


def test_partitions_are_read_from_their_start_if_the_log_may_be_read_again_and_groups_not_described():
    driven = see_all("auto")
    poll_coordinators(driven, 60)
    poll_partition(driven, 0, 5)
    answer_watermarks(driven, 1_000_000)
    assert driven.last(FetchGroups).known == EVERY
    respond(driven, 0, failed={name_in(1): REVOKED, name_in(2): "GROUP_ID_NOT_FOUND"})
    assert driven.starts() == {1: 0}
    assert driven.core.logs.offsets.partitions[1].current is None  # no group of it counts as deleted
    assert not driven.core.logs.offsets.partitions[2].is_unseeded


def test_the_groups_of_a_partition_that_is_lost_are_not_taken_for_deleted_if_a_response_lacks_them():
    driven = start()
    respond(driven, 0, 1, 2)
    attempt = driven.core.logs.offsets.partitions[1].attempt
    driven.give(Polled(OFFSETS, [], {}, [Lost(1, attempt, "truncated")]))
    assert driven.groups() == {name_in(0), name_in(2)}
    respond_bounds(driven)
    assert driven.last(FetchGroups).known == {name_in(1)}
    respond(driven, failed={name_in(1): REVOKED}, partitions=frozenset({1}))
    assert driven.starts() == {1: 0}
