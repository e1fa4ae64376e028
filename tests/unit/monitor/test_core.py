"""What the simulation does not show of the core: inputs that cannot be used, and late results."""

import gc
import re
import subprocess
import sys
from typing import Any

import pytest

from koff.monitor.core import HOLD_S
from koff.monitor.duties.end_offsets import TIMEOUT_S
from koff.monitor.duties.groups import FetchGroups
from koff.monitor.duties.history import HistoryRead, ReadHistory
from koff.monitor.duties.loading import Load, Loaded
from koff.monitor.duties.offsets import FetchOffsets
from koff.monitor.duties.record_ages import FirstRecord, FirstRecordsRead, ReadFirstRecords, RecordPlace
from koff.monitor.duties.retention import FetchTopicConfigs, TopicConfigsFetched
from koff.monitor.duties.stored_groups import FetchStoredGroups, StoredGroupsFetched
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Display, Failed, Lost, Polled, Read, ReadFailed, Topic, Watermarks
from koff.monitor.saved import Origin, Saved
from koff.tracker import Group, Shard, Tracker
from koff.view.cluster_view import ClusterFacts, TopicFacts
from tests.unit.builders import apply, commit, save
from tests.unit.monitor.driven import IDS, OFFSETS, Driven


def test_a_record_that_makes_the_tracker_fail_is_skipped_and_counted(monkeypatch):
    driven = Driven().read()
    apply = driven.core.tracker.apply

    def fail_on_poison(partition: int, keys: Any, values: Any, **more: Any) -> None:
        if any(b"poison" in key for key in keys):
            raise OverflowError("too long")
        apply(partition, keys, values, **more)

    monkeypatch.setattr(driven.core.tracker, "apply", fail_on_poison)
    driven.poll(commit("a", "t", 0, 1), (b"poison", b""), commit("b", "t", 0, 1))
    assert driven.groups() == {"a", "b"}
    assert driven.core.skipped == {"record: OverflowError": 1}
    assert driven.core.logs.offsets.partitions[0].position == 3


def test_inputs_and_parts_of_records_that_cannot_be_used_are_counted_and_end_nothing():
    driven = Driven().read()
    driven.give(Polled(OFFSETS, [None]))  # type: ignore[list-item]  # no worker may send this
    driven.poll(commit("a", "t", 0, 1), commit("a", "t", -1, 1))
    assert driven.groups() == {"a"}
    skipped = driven.take_view().stats.skipped
    assert skipped == {"Polled: AttributeError": 1, "impossible partition": 1}


def test_a_result_that_comes_after_its_deadline_is_ignored():
    driven = Driven()
    late = driven.last(FetchTopics).id
    driven.give(None, after_s=TIMEOUT_S)
    driven.give(None, after_s=TIMEOUT_S)
    assert driven.last(FetchTopics).id != late
    driven.give(TopicsFetched(late, {OFFSETS: Topic("id", 1)}))
    assert driven.core.logs.offsets.exists is None
    driven.list_topics(**{OFFSETS: 1})
    assert driven.core.logs.offsets.exists is True


def test_why_the_topic_may_not_be_read_is_said_once_and_that_it_may_again():
    driven = Driven(source="log").read()
    for _ in range(3):
        driven.give(ReadFailed(OFFSETS, "grant READ", denied=True), after_s=1)
    driven.give(None, after_s=30)
    driven.poll(commit("a", "t", 0, 1))
    texts = driven.take_texts()
    assert texts.count("topic may not be read") == 1
    assert texts.count("topic may be read again") == 1
    assert driven.groups() == {"a"}


def test_the_state_of_a_topic_that_was_created_again_meanwhile_is_not_used():
    driven = Driven(start="resume", cluster_id="c")
    driven.list_topics(**{OFFSETS: 1})
    load = driven.last(Load)
    assert load.origin == Origin("c", OFFSETS, IDS[OFFSETS], 1)
    driven.core.logs.offsets.note_topic(Topic("another", 1))
    driven.give(Loaded(load.id, {}, "nothing was saved"))
    assert "the saved state is not used" in driven.take_texts()


# --- Responses that fail, come late, or cannot be used ---------------------------------------------------


def committed(driven: Driven) -> list[int | None]:
    return [row.committed for row in driven.take_view().snapshot.rows()]


def start(**conf: Any) -> Driven:
    """A core that has read five commits of group a to t-0: 0 to 4."""
    driven = Driven(**conf).read()
    driven.poll(*[commit("a", "t", 0, offset) for offset in range(5)])
    driven.run(6)
    return driven


@pytest.fixture
def up():
    return start()


def test_a_failed_request_to_the_coordinators_takes_no_row_back(up):
    up.give(ReadFailed(OFFSETS, "denied", denied=True))
    for _ in range(30):
        up.run(2, log_end=500)
        if up.core.outbox.has(FetchGroups):
            up.respond_groups({("a", "t", 0): 9})
    up.wait_for(FetchGroups)
    up.poll(commit("a", "t", 0, 5), first=5)  # the log may be read again, and this record is old
    up.give(Failed(up.last(FetchGroups).id, "the broker restarts"))
    assert committed(up) in ([9], [None])


@pytest.mark.parametrize("is_taken", [True, False])
def test_one_look_holds_back_what_is_read_after_the_logs_until_its_view_is_taken(is_taken):
    driven = Driven(tail=8_000, records_per_s=None).read()
    driven.poll(*[commit("a", "t", 0, offset) for offset in range(5)])
    driven.report_ends()
    driven.give(None)
    for offset in (5, 6):
        driven.poll(commit("a", "t", 0, offset), first=offset)
    assert committed(driven) == [4]
    if is_taken:
        driven.core.stop_holding()
    driven.give(None, after_s=0 if is_taken else HOLD_S)
    assert committed(driven) == [6]


def is_requested(driven: Driven) -> bool:
    """Whether an offset of the offsets topic was requested."""
    return any((OFFSETS, 0) in request.partitions for request in driven.requests(FetchOffsets))


def test_an_idle_partition_stays_current_by_what_its_leader_returns_to_the_reader(up):
    attempt, offsets = up.last(Read).starts[0].attempt, up.core.logs.offsets.partitions[0]
    up.run(6)
    up.sent.clear()
    for _ in range(60):
        asked = up.now()
        up.give(Polled(OFFSETS, ends={0: Watermarks(attempt, 5, 5, asked)}), after_s=1)
        assert offsets.current == asked
        up.respond_log_end()  # of the topic that the group commits to
    assert not is_requested(up)
    up.report_ends(stable=5, end=7)
    assert offsets.is_held_back


def test_ends_of_an_earlier_attempt_prove_nothing(up):
    attempt, offsets = up.last(Read).starts[0].attempt, up.core.logs.offsets.partitions[0]
    before = offsets.current
    up.give(Polled(OFFSETS, ends={0: Watermarks(attempt - 1, 5, 5, up.now())}))
    assert offsets.current == before


@pytest.mark.parametrize("way", ["replay", "resume"])
def test_a_retention_that_is_never_answered_does_not_block_the_start(way):
    driven = Driven(start=way)
    driven.list_topics(**{OFFSETS: 1})
    if way == "resume":
        driven.give(Loaded(driven.last(Load).id, {}, "nothing was saved"))
    driven.respond_log_end()
    for _ in range(30):
        driven.give(None, after_s=1)
    assert driven.requests(Read)


def test_a_group_that_commits_to_an_internal_topic_has_a_lag():
    driven = Driven().read()
    driven.poll(commit("spy", OFFSETS, 0, 3), *[commit("g", "t", 0, offset) for offset in range(4)])
    driven.run(20)
    view = driven.take_view()
    assert view.readiness.ready
    assert (view.stats.rows, view.stats.withheld) == (2, 0)


def test_a_stored_offset_that_is_impossible_does_not_end_the_requests():
    driven = start(zookeeper_interval_s=5.0)
    first = driven.last(FetchStoredGroups).id
    driven.give(StoredGroupsFetched(first, {("z", "t", 0): (10**30, 5)}, {"z": Group("z")}))
    driven.run(60)
    assert driven.last(FetchStoredGroups).id != first


def test_a_group_of_zookeeper_that_may_not_be_read_any_more_is_withheld_and_not_deleted():
    driven = start(zookeeper_interval_s=5.0)

    def respond_with(offsets: dict[tuple[str, str, int], tuple[int, int]], **more: Any) -> None:
        while not driven.core.outbox.has(FetchStoredGroups):
            driven.run(1)
        groups = {name: Group(name) for name, _, _ in offsets}
        driven.give(StoredGroupsFetched(driven.last(FetchStoredGroups).id, offsets, groups, **more))
        driven.run(1)

    def lags() -> dict[str, int | None]:
        return {row.group: row.lag for row in driven.take_view().snapshot.rows()}

    both = {("y", "t", 0): (4, 5), ("z", "t", 0): (7, 5)}
    respond_with(both)
    assert lags() == {"a": 6, "y": 6, "z": 3}
    for _ in range(2):
        respond_with({("y", "t", 0): (4, 5)}, refused={"z": "/consumers/z/offsets"})
        assert lags() == {"a": 6, "y": 6, "z": None}
    assert driven.take_view().stats.withheld == 1
    respond_with(both)
    assert lags() == {"a": 6, "y": 6, "z": 3}
    respond_with({("y", "t", 0): (4, 5)})
    assert lags() == {"a": 6, "y": 6}


def test_partitions_do_not_wait_for_ever_after_a_response_that_cannot_be_used(monkeypatch):
    driven = Driven(start="snapshot").read()

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(driven.core.tracker, "seed_partitions", fail)
    driven.respond_groups({("a", "t", 0): 9})
    assert not driven.core.logs.offsets.partitions[0].is_waiting
    assert driven.core.skipped == {"GroupsFetched: ZeroDivisionError": 1}


@pytest.mark.parametrize("is_failure", [True, False])
def test_the_log_is_never_read_if_the_coordinators_are_the_source(is_failure):
    driven = Driven(start="snapshot", source="coordinators").read()
    request = driven.last(FetchGroups).id
    driven.give(Failed(request, "refused")) if is_failure else driven.respond_groups({})
    driven.run(20)
    assert driven.requests(Read) == []
    assert driven.last(FetchGroups).id != request


def test_a_topic_that_may_not_be_read_is_not_gone_if_it_may_not_be_described_either(up):
    up.give(ReadFailed(OFFSETS, "denied", denied=True))
    up.run(60, t=1)
    assert up.take_view().stats.rows == 1


def test_a_loss_is_settled_by_the_next_list_of_topics_soon(up):
    up.run(30)
    up.wait_for(FetchTopics)
    attempt = up.last(Read).starts[0].attempt
    up.give(Polled(OFFSETS, lost=[Lost(0, attempt, "out of range")]), after_s=1)
    sent = len(up.sent)
    up.list_topics(**{OFFSETS: 1, "t": 1})  # it was requested before the loss
    up.give(None, after_s=2)
    assert any(isinstance(request, FetchTopics) for request in up.sent[sent:])


def test_koff_is_not_up_if_the_only_other_row_is_of_a_topic_that_is_gone():
    driven = Driven().read()
    driven.poll(commit("a", "t", 0, 1), commit("b", "no such topic", 0, 1), *[commit("a", "t", 0, 2)] * 3)
    driven.run(20)
    assert driven.take_view().stats.up
    driven.give(None, after_s=100)
    view = driven.take_view()
    assert not view.stats.up
    assert not view.readiness.ready


def test_a_history_that_makes_progress_is_not_given_up_and_others_have_their_turn():
    driven = Driven(start="snapshot").read()
    driven.respond_groups({("a", "t", 0): 9})
    driven.run(10)
    request = driven.last(ReadHistory)
    for _ in range(30):
        driven.give(HistoryRead(request.id, [], [], [], 1, final=False), after_s=5)
    assert driven.last(ReadHistory) is request
    driven.give(HistoryRead(request.id, [], [], [], request.until, final=True))
    assert not driven.core.logs.offsets.partitions[0].needs_history


def test_a_record_that_makes_a_history_fail_is_left_out(monkeypatch):
    driven = Driven(start="snapshot").read()
    driven.respond_groups({("a", "t", 0): 9})
    apply = Shard.apply

    def fail_on_poison(self: Shard, keys: Any, values: Any, **more: Any) -> None:
        if b"poison" in keys:
            raise OverflowError
        apply(self, keys, values, **more)

    monkeypatch.setattr(Shard, "apply", fail_on_poison)
    driven.run(10)
    request = driven.last(ReadHistory)
    (key, value), (other, offset) = commit("a", "t", 0, 9), commit("b", "t", 0, 1)
    keys, values = [key, b"poison", other], [value, b"", offset]
    driven.give(HistoryRead(request.id, keys, values, [0, 1, 2], request.until, final=True))
    assert driven.groups() == {"a", "b"}
    hidden = {"count": 1, "groups": ["b"]}  # the coordinators did not describe it
    assert [event.is_warning for event in driven.core.take_events() if event.details == hidden] == [True]


def test_saved_states_are_let_go_once_they_are_restored():
    driven = Driven(start="resume", cluster_id="c")
    saved = resume(driven, driven.now())
    assert driven.groups() == {"a"}
    holders = [each for each in gc.get_referrers(saved) if isinstance(each, dict) and 0 in each]
    assert holders == []


def resume(driven: Driven, stamp: Moment) -> Saved:
    """koff has saved a commit of group a at `stamp`, and loads it. delete.retention.ms is one minute."""
    driven.list_topics(**{OFFSETS: 1})
    tracker = Tracker()
    apply(tracker, commit("a", "t", 0, 1))
    saved = Saved(0, 5, -1, stamp, save(tracker))
    driven.give(Loaded(driven.last(Load).id, {0: saved}, "nothing was saved"))
    driven.give(
        TopicConfigsFetched(driven.last(FetchTopicConfigs).id, {OFFSETS: {"delete.retention.ms": "60000"}})
    )
    driven.respond_log_end()
    return saved


@pytest.mark.parametrize("step_s", [0, -300, -250, 300])
def test_a_clock_that_is_set_back_after_the_start_does_not_make_a_pause_shorter(step_s):
    driven = Driven(start="resume", cluster_id="c")
    saved_at = Moment(0, driven.now().wall_ms - 300_000)
    driven.wall_step_ms = step_s * 1000
    resume(driven, saved_at)
    assert driven.groups() == set()


def test_without_permission_the_log_stays_the_source_if_koff_was_told_so():
    driven = Driven(source="log").read()
    driven.give(ReadFailed(OFFSETS, "denied", denied=True))
    assert driven.take_view().stats.source == "log"


def test_records_at_the_commits_of_groups_are_requested_once_the_log_is_read():
    driven = Driven(records_per_s=None).read()
    driven.poll(*[commit("a", "t", 0, 3)] * 4, commit("b", "t", 0, 2))
    driven.run(7)
    place = RecordPlace("t", 0, 3)
    assert driven.last(ReadFirstRecords).places == {place, RecordPlace("t", 0, 2)}
    assert not driven.core.is_settled
    request = driven.last(ReadFirstRecords).id
    driven.give(FirstRecordsRead(request, {place: FirstRecord(3, driven.now().wall_ms - 30_000)}))
    rows = {row.group: row for row in driven.take_view().snapshot.rows()}
    assert (rows["a"].time_lag_source, rows["a"].time_lag_s) == ("record", 30)


def test_a_failed_request_for_records_is_sent_again_and_due_in_time():
    driven = Driven().read()
    driven.poll(*[commit("a", "t", 0, 3)] * 5)
    driven.run(13)
    first = driven.last(ReadFirstRecords)
    driven.give(Failed(first.id, "no leader"))
    assert driven.core.next_due_s() <= driven.second + 5
    driven.run(31)
    driven.run(12)
    again = driven.last(ReadFirstRecords)
    assert again.id != first.id
    assert again.places == first.places


def test_what_the_cluster_lists_is_shown_for_three_intervals():
    driven = Driven(topics_interval_s=20.0)
    assert driven.take_view().facts == ClusterFacts()
    facts = ClusterFacts(3, {"t": TopicFacts(1, 3)}, coordinators=(2,))
    topics = {OFFSETS: Topic(IDS[OFFSETS], 1)}
    driven.give(TopicsFetched(driven.last(FetchTopics).id, topics, facts))
    driven.second += 60.0
    assert driven.take_view().facts == facts
    driven.second += 0.1
    assert driven.take_view().facts == ClusterFacts()


def test_a_copy_of_the_offsets_topic_has_no_coordinators_here():
    driven = Driven(offsets_topic="copy")
    facts = ClusterFacts(3, {}, coordinators=(2,))
    driven.give(TopicsFetched(driven.last(FetchTopics).id, {"copy": Topic("id", 1)}, facts))
    assert driven.take_view().facts == ClusterFacts(3)


def test_a_view_has_the_labels_of_the_newest_configuration():
    driven, patterns = Driven(), (re.compile("(?P<team>.)"),)
    driven.give(Display(labels={"region": "eu"}, group_labels=patterns))
    view = driven.take_view()
    assert (view.labels, view.group_labels) == ({"region": "eu"}, patterns)


def test_the_core_loads_nothing_that_does_io():
    """Requests import the client when they are carried out."""
    code = "import sys, koff.monitor.core; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = {name.partition(".")[0] for name in loaded.split()} | {
        ".".join(n.split(".")[:2]) for n in loaded.split()
    }
    assert "koff.tracker" in names
    assert not names & {"koff.client", "structlog", "confluent_kafka", "kio", "asyncio"}
