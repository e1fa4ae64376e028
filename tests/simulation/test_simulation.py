"""What the runs rely on: the contract's checks, the network, the fault plan."""

import random
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from koff.lag import Reason
from koff.monitor.duties.groups import FetchGroups, GroupsFetched
from koff.monitor.duties.history import HistoryRead, ReadHistory
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import FirstRecord, ReadFirstRecords, RecordPlace
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Command, Input, Polled, Read, ReadFailed, Start, StopReading
from tests.simulation.catalog import BROKER_KINDS, Catalog
from tests.simulation.cluster import EPOCH_MS, OFFSETS, Cluster, PlainLog
from tests.simulation.conditions import Conditions, Disturbance
from tests.simulation.contract import ContractBroken, check, check_not_hidden, check_recovered
from tests.simulation.disk import Disk
from tests.simulation.faults import FaultPlan
from tests.simulation.logs import Written
from tests.simulation.network import NO_RECORD, Network
from tests.simulation.truth import Truth

# --- The contract -----------------------------------------------------------------------------------------

ROW, T0 = ("g", "t", 0), ("t", 0)
END, COMMITS = Reason.END_NOT_CURRENT, Reason.COMMITS_NOT_CURRENT
WITHHELD: dict[str, Any] = {"lag": None, "partition": 1, "reasons": END}
WRONG_TIMES: list[dict[str, Any]] = [
    {"lag": 50, "time_lag_s": seconds, "at_least": at_least}
    for seconds, at_least in (
        (100.0, False),
        (780.0, False),
        (1_300.0, False),
        (10.0, True),
        (700_000.0, True),
    )
]
"""The oldest record is 1,000 s old: a fifth less or more is near enough."""


def serve(
    *rows: dict[str, Any],
    now_s: float = 100.0,
    knows_clock: bool = True,
    hostile: str = "",
    age_s: float = 1_000.0,
    **view: Any,
) -> None:
    """koff serves these rows of `_cluster`."""
    served, cluster = _view(*(_row(**row) for row in rows), **view), _cluster(hostile, age_s)
    check(served, cluster, now_s, limit_s=25.0, knows_clock=knows_clock)


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([{"lag": 50}], {}),  # end 150 at 90 s, committed 100 at 80 s
        ([{"lag": 30}], {}),  # end 150 at 90 s, committed 120 at 95 s: of different moments
        ([{"lag": 50}], {"now_s": 119.0}),
        ([{"lag": 50}], {"members": 2}),
        ([{"lag": 50}, WITHHELD], {"total": None}),
        ([{"lag": 7}], {"hostile": "g"}),
        *(([{"lag": 50}], {"ends": {T0: end}}) for end in (100, 150, -1)),
        ([{"lag": 50}], {"ends": {T0: 151}, "withheld": True}),
        *(([{"lag": 50, "time_lag_s": seconds}], {}) for seconds in (830.0, 1_000.0, 1_200.0)),
        # A lower bound of seven days, of a record that is older.
        ([{"lag": 50, "time_lag_s": 604_800.0, "at_least": True}], {"age_s": 900_000.0}),
        *(([wrong], {"knows_clock": False}) for wrong in WRONG_TIMES),
    ],
)
def test_what_was_true_within_the_limit_may_be_served(rows, more):
    serve(*rows, **more)


@pytest.mark.parametrize(
    ("rows", "more", "why"),
    [
        *(([{"lag": lag}], {}, "was never true") for lag in (1, 49, 51, 100)),
        ([{"lag": 50}], {"now_s": 121.0}, "was never true"),  # it was, before the limit
        ([{"lag": 50, "group": "nobody"}], {}, "was never true"),
        ([{"lag": 50}], {"ends": {T0: 151}}, "was never 151"),
        ([{"lag": 50}] * 2, {}, "twice"),
        ([{"lag": 7}] * 2, {"hostile": "g"}, "twice"),
        ([{"lag": 50}, WITHHELD], {"total": 50}, "total"),
        ([{"lag": None, "reasons": COMMITS, "time_lag_s": 1.0}], {"total": None}, "withheld"),
        ([{"lag": 50}], {"members": 3}, "members"),
        *(([wrong], {}, "time lag") for wrong in WRONG_TIMES),
    ],
)
def test_what_was_never_true_or_contradicts_itself_breaks_the_contract(rows, more, why):
    with pytest.raises(ContractBroken, match=why):
        serve(*rows, **more)


def test_a_negative_difference_may_be_served_as_zero():
    cluster = _cluster()
    cluster.truth.set_committed(ROW, 99.0, 500)
    check(_view(_row(lag=-350)), cluster, 100.0, limit_s=25.0)


def test_a_kept_commit_to_an_earlier_topic_may_be_served_unless_koff_knows_the_topic_ids():
    cluster, view = _cluster(), _view(_row(lag=30))
    cluster.truth.set_committed(ROW, 150.0, None)
    with pytest.raises(ContractBroken, match="was never true"):
        check(view, cluster, 200.0, limit_s=25.0)
    cluster.truth.set_kept(ROW, 150.0, 120)
    check(view, cluster, 200.0, limit_s=25.0)
    check_recovered(view, cluster, 200.0, 0.0, knows_clock=False)
    with pytest.raises(ContractBroken, match="was never true"):
        check_recovered(view, cluster, 200.0, 0.0, knows_clock=False, knows_ids=True)


def test_an_end_offset_that_is_not_served_after_all_faults_breaks_the_contract():
    more: dict[str, Any] = {"knows_clock": False, "other_topics": "t"}
    check_recovered(_view(_row(lag=30)), _cluster(), 200.0, 25.0, knows_clock=False)
    check_recovered(_view(_row(lag=30), ends={T0: 150}), _cluster(), 200.0, 25.0, **more)
    with pytest.raises(ContractBroken, match="is not served"):
        check_recovered(_view(_row(lag=30)), _cluster(), 200.0, 25.0, **more)


def test_koff_has_recovered_when_all_rows_are_served_as_they_are():
    check_recovered(_view(_row(lag=30, time_lag_s=1_000.0)), _cluster(), 100.0, settled_s=0.0)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"lag": 50}, "was never true"),
        ({"lag": None, "reasons": END}, "withheld"),
        ({"lag": None, "reasons": Reason.TOPIC_GONE}, "not served"),
        ({"lag": None, "group": "other", "reasons": Reason.NO_COMMIT}, "not served"),
        ({"lag": 30}, "no time lag"),
    ],
)
def test_koff_has_not_recovered_while_a_row_is_old_or_missing_or_its_time_lag_unknown(row, why):
    with pytest.raises(ContractBroken, match=why):
        check_recovered(_view(_row(**row), total=None), _cluster(), 100.0, settled_s=0.0)


def test_koff_has_not_recovered_while_it_is_not_ready():
    with pytest.raises(ContractBroken, match="not ready"):
        check_recovered(_view(_row(lag=30), ready=False), _cluster(), 100.0, settled_s=0.0)


@pytest.mark.parametrize(
    ("row", "now_s"), [({"lag": None, "reasons": END}, 100.0), ({"lag": 30}, 130.0)], ids=["row", "time lag"]
)
def test_a_row_or_its_time_lag_may_only_be_hidden_by_a_fault_that_concerns_it(row, now_s):
    check_not_hidden([_row(**row)], _cluster(), now_s, 25.0, lambda row: row == ROW)
    with pytest.raises(ContractBroken, match="hidden without a reason"):
        check_not_hidden([_row(**row)], _cluster(), now_s, 25.0, lambda row: False)


@pytest.mark.parametrize(("now_s", "broken"), [(100.0, False), (130.0, True)])
def test_a_simple_group_may_be_missing_only_if_it_had_no_commit_lately(now_s, broken):
    cluster = _cluster()
    cluster.truth.set_members("simple", 0.0, 0)
    cluster.truth.set_committed(("simple", "t", 0), 90.0, 7)
    with pytest.raises(ContractBroken, match="simple") if broken else nullcontext():
        check_recovered(_view(_row(lag=30, time_lag_s=now_s + 900.0)), cluster, now_s, settled_s=25.0)


def _cluster(hostile: str = "", age_s: float = 1_000.0) -> Any:
    """A cluster with one row: its end is 150 from 90 s on, its commit 100, and 120 from 95 s on.

    At 100 s, all records are of that age.
    """
    truth = Truth(lambda group: group == hostile)
    truth.set_end("t", 0, 0.0, 100)
    truth.set_end("t", 0, 90.0, 150)
    truth.set_committed(ROW, 0.0, 80)
    truth.set_committed(ROW, 60.0, 100)
    truth.set_committed(ROW, 95.0, 120)
    truth.set_members("g", 0.0, 2)
    log = PlainLog(1)
    log.write(150, EPOCH_MS + round((100.0 - age_s) * 1000))
    truth.set_log("t", 0, 0.0, log)
    return SimpleNamespace(truth=truth)


def _row(
    *,
    lag: int | None,
    group: str = "g",
    partition: int = 0,
    reasons: Reason | None = None,
    time_lag_s: float | None = None,
    at_least: bool = False,
) -> Any:
    return SimpleNamespace(
        group=group,
        topic="t",
        partition=partition,
        lag=lag,
        published_lag=None if lag is None else max(0, lag),
        readable=None,
        lag_to_stable=None,
        time_lag_s=time_lag_s,
        at_least=at_least,
        end=None,
        committed=None if lag is None else 100 - lag,
        reasons=reasons or Reason(0),
    )


def _view(
    *rows: Any,
    total: int | None = -1,
    members: int = 2,
    ready: bool = True,
    ends: Mapping[tuple[str, int], int] = MappingProxyType({}),
    withheld: bool = False,
) -> Any:
    """A view of these rows. Without a `total`, it is the sum. `withheld`: the end offsets are not served."""
    partitions = SimpleNamespace(
        topic=[topic for topic, _ in ends],
        partition=[partition for _, partition in ends],
        end=np.array([*ends.values()], np.int64),
    )
    lags = [row.published_lag for row in rows if row.published_lag is not None]
    group = SimpleNamespace(
        name=rows[0].group, state="Stable", members=[SimpleNamespace(present=True)] * members
    )
    total_lag = (sum(lags) if lags else None) if total == -1 else total
    snapshot = SimpleNamespace(
        rows=lambda: iter(rows),
        totals=lambda: [
            SimpleNamespace(group=group, lag=total_lag, time_lag_s=None, partitions=len(rows), whole=True),
        ],
        groups=lambda: iter([group]),
        partitions=partitions,
        withheld_ends=lambda: np.full(len(ends), withheld),
    )
    return SimpleNamespace(snapshot=snapshot, readiness=SimpleNamespace(ready=ready, text=""))


# --- The network ------------------------------------------------------------------------------------------


class Bench:
    """A cluster at rest, and the network before it."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = Cluster(random.Random(seed))
        self.cluster.advance(30.0)
        self.cluster.stop_lives()
        self.cluster.advance(40.0)
        self.conditions = Conditions(random.Random(seed))
        self.disk = Disk(random.Random(seed))
        self.network = Network(
            self.cluster,
            random.Random(seed),
            self.conditions,
            self.disk,
            lambda: Moment(self.cluster.now, self.cluster.wall_ms()),
        )
        logs = self.cluster.topics[OFFSETS].partitions
        self.partition = max(range(len(logs)), key=lambda number: logs[number].end)

    @property
    def log(self) -> Any:
        """The partition of the offsets topic that had the most records at the start."""
        return self.cluster.topics[OFFSETS].partitions[self.partition]

    @property
    def logs(self) -> list[tuple[tuple[str, int], Any]]:
        """Every partition with its log."""
        topics = self.cluster.topics.items()
        return [
            ((name, number), log) for name, topic in topics for number, log in enumerate(topic.partitions)
        ]

    def receive(self, seconds: float, *requests: Command) -> list[Any]:
        """Sends the requests; returns what arrives within so many seconds."""
        self.network.send(requests, self.cluster.now)
        until_s = self.cluster.now + seconds
        arrived: list[Input] = []
        while self.network.next_event_s() <= until_s:
            self.cluster.advance(self.network.next_event_s())
            arrived += self.network.receive(self.cluster.now)
        self.cluster.advance(until_s)
        return arrived

    def fetch_groups(self, seconds: float, **conf: Any) -> list[GroupsFetched]:
        """The responses of the coordinators of all partitions."""
        count = len(self.cluster.topics[OFFSETS].partitions)
        arrived = self.receive(seconds, FetchGroups(1, frozenset(range(count)), count, **conf))
        return [given for given in arrived if isinstance(given, GroupsFetched)]

    def fetch_ends(self, seconds: float) -> list[OffsetsFetched]:
        """The responses of the leaders of all partitions."""
        return self.receive(seconds, FetchOffsets(1, "end", frozenset(at for at, _ in self.logs)))

    def read(self, offset: int = 0, attempt: int = 1, epoch: int = -1) -> Read:
        """A request to read the partition with the most records."""
        return Read(OFFSETS, {self.partition: Start(offset, attempt, epoch)})


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.disk.close()


def _polled(arrived: list[Input]) -> list[Polled]:
    return [given for given in arrived if isinstance(given, Polled)]


def _offsets_of(arrived: list[Input]) -> list[int]:
    return [o for given in _polled(arrived) for records in given.records for o in records.offsets]


def _lost(arrived: list[Input]) -> list[tuple[int, bool]]:
    return [(lost.attempt, lost.gone) for given in _polled(arrived) for lost in given.lost]


def test_a_reader_gets_every_visible_record_once_and_in_order(bench):
    arrived = bench.receive(20.0, bench.read())
    assert _offsets_of(arrived) == [record.offset for record in bench.log.read(0, 10_000)[0]]
    assert len(_polled(arrived)) > 1


def test_a_reader_learns_that_it_is_past_records_it_does_not_get(bench):
    bench.receive(20.0, bench.read())
    producer = bench.cluster.hang_transaction()
    assert producer is not None
    bench.cluster.end_transaction(producer, commit=False)
    logs = bench.cluster.topics[OFFSETS].partitions
    arrived = bench.receive(
        5.0, Read(OFFSETS, {p: Start(max(0, log.end - 2), 2) for p, log in enumerate(logs)})
    )
    ends = {p: position for given in _polled(arrived) for p, (_, position) in given.positions.items()}
    assert [p for p, end in ends.items() if end == logs[p].end and logs[p].replay()[-1].marker]


def test_a_reader_stops_at_an_open_transaction(bench):
    bench.receive(20.0, bench.read())
    logs = bench.cluster.topics[OFFSETS].partitions
    assert bench.cluster.hang_transaction() is not None
    arrived = bench.receive(5.0, Read(OFFSETS, {p: Start(log.start, 2) for p, log in enumerate(logs)}))
    held_back = next((p, log.stable) for p, log in enumerate(logs) if log.stable < log.end)
    read = [r for given in _polled(arrived) for r in given.records if r.partition == held_back[0]]
    assert max(offset for records in read for offset in records.offsets) < held_back[1]


def test_a_reader_loses_a_partition_that_was_truncated_below_its_position(bench):
    bench.receive(20.0, bench.read())
    bench.cluster.unclean_election(OFFSETS, bench.partition)
    assert _lost(bench.receive(20.0)) == [(1, False)]


def test_a_reader_with_the_epoch_of_a_truncated_log_loses_it(bench):
    end, epoch = bench.log.end, bench.log.epoch
    bench.cluster.unclean_election(OFFSETS, bench.partition)
    while bench.log.end < end:  # the log grows until its end says nothing any more
        bench.cluster.append_hostile(OFFSETS, bench.partition, [Written(b"\0\x63", b"")])
    assert _lost(bench.receive(20.0, bench.read(end, epoch=epoch))) == [(1, False)]
    assert not _lost(bench.receive(20.0, bench.read(end, attempt=2)))


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_a_reader_that_starts_outside_the_log_loses_it(bench, offset):
    assert _lost(bench.receive(20.0, bench.read(offset))) == [(1, False)]


def test_a_reader_loses_a_topic_that_is_deleted(bench):
    bench.receive(20.0, bench.read())
    bench.cluster.delete_topic(OFFSETS)
    assert [attempt for attempt, _ in _lost(bench.receive(20.0))] == [1]


def test_nothing_arrives_from_a_partition_whose_broker_koff_cannot_reach(bench):
    bench.conditions.disturbances.append(Disturbance("silent", BROKER_KINDS, bench.log.leader))
    assert not bench.receive(20.0, bench.read())
    bench.conditions.disturbances.clear()
    assert _offsets_of(bench.receive(30.0))


def test_a_denied_topic_fails_as_a_whole(bench):
    bench.receive(20.0, bench.read())
    bench.conditions.denied_topics.add(OFFSETS)
    arrived = bench.receive(5.0)
    assert [given.denied for given in arrived if isinstance(given, ReadFailed)] == [True]
    bench.conditions.denied_topics.clear()
    assert not bench.receive(5.0)  # the reader has stopped


def test_what_was_read_before_may_arrive_after_a_partition_is_stopped(bench):
    bench.conditions.disturbances.append(Disturbance("slow", frozenset({"read"}), seconds=5.0))
    bench.receive(0.4, bench.read())
    arrived = bench.receive(20.0, StopReading(OFFSETS, frozenset([bench.partition])))
    assert {records.attempt for given in _polled(arrived) for records in given.records} == {1}


def test_records_of_an_earlier_attempt_may_arrive_after_a_partition_is_begun_again():
    attempts = set()
    for seed in range(60):
        bench = Bench(seed)
        bench.receive(20.0, bench.read(bench.log.end))
        bench.cluster.append_hostile(OFFSETS, bench.partition, [Written(b"\0\x63", b"")])
        bench.network.send([bench.read(bench.log.end - 1, attempt=2)], bench.cluster.now)
        arrived = bench.receive(5.0)
        attempts.add(tuple(r.attempt for given in _polled(arrived) for r in given.records))
        bench.disk.close()
    assert (2,) in attempts
    assert attempts & {(1, 2), (2, 1)}


def test_history_is_read_up_to_the_offset_that_was_asked_for(bench):
    until = bench.log.end - 3
    arrived = bench.receive(20.0, ReadHistory(7, OFFSETS, bench.partition, until))
    pieces = [given for given in arrived if isinstance(given, HistoryRead)]
    read = [offset for piece in pieces for offset in piece.offsets]
    assert read == [r.offset for r in bench.log.read(0, 10_000)[0] if r.offset < until]
    assert [piece.final for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_each_broker_answers_for_the_partitions_that_it_leads(bench):
    answers = bench.fetch_ends(20.0)
    assert len(answers) == len({log.leader for _, log in bench.logs})
    assert [answer.final for answer in answers] == [False] * (len(answers) - 1) + [True]
    offsets = {at: offset for answer in answers for at, offset in answer.offsets.items()}
    assert offsets == {at: log.end for at, log in bench.logs}


@pytest.mark.parametrize("effect", ["silent", "refused"])
def test_an_unreachable_broker_answers_late_or_never(bench, effect):
    broker = bench.log.leader
    bench.conditions.disturbances.append(Disturbance(effect, BROKER_KINDS, broker))
    asked = {at for given in bench.fetch_ends(5.0) for at in given.offsets}
    assert asked == {at for at, log in bench.logs if log.leader != broker}
    errors = [offset for given in bench.receive(20.0) for offset in given.offsets.values()]
    assert all(isinstance(error, str) for error in errors)
    assert bool(errors) == (effect == "refused")


def test_a_deposed_leader_answers_with_an_old_end_offset(bench):
    bench.cluster.truth.set_end("topic-0", 0, bench.cluster.now, 1 << 40)
    bench.cluster.topics["topic-0"].partitions[0].end = 1 << 40
    bench.conditions.deposed["topic-0", 0], bench.conditions.old_end_age_s = 1, 3.0
    request = FetchOffsets(1, "end", frozenset({("topic-0", 0)}))
    (old,) = bench.receive(1.0, request)
    (new,) = bench.receive(1.0, request)
    assert old.offsets["topic-0", 0] < new.offsets["topic-0", 0] == 1 << 40


def test_a_list_of_topics_may_lack_topics_for_a_moment(bench):
    bench.conditions.missing_topics, bench.conditions.wrong_topic_lists = frozenset({OFFSETS}), 1
    lists = [*bench.receive(1.0, FetchTopics(1)), *bench.receive(1.0, FetchTopics(2))]
    assert [OFFSETS in given.topics for given in lists] == [False, True]


def test_answers_overtake_each_other(bench):
    bench.conditions.latency_s = 4.0
    ids = [given.id for given in bench.receive(10.0, *(FetchTopics(id_) for id_ in range(20)))]
    assert sorted(ids) == list(range(20)) != ids


def test_coordinators_answer_for_all_groups(bench):
    (given,) = bench.fetch_groups(1.0)
    assert sorted(given.groups) == bench.cluster.group_names()
    found = given.commits
    columns = (found.group.tolist(), found.topic.tolist(), found.partition.tolist(), found.offset.tolist())
    rows = {
        (found.groups[group], found.topics[topic], partition): offset
        for group, topic, partition, offset in zip(*columns, strict=True)
    }
    share = {life.group for life in bench.cluster.lives if life.kind == "share"}
    assert rows == {key: o for key, o in bench.cluster.truth.rows().items() if key[0] not in share}


def test_groups_of_an_unreachable_coordinator_are_incomplete(bench):
    bench.conditions.disturbances.append(Disturbance("refused", BROKER_KINDS, bench.log.leader))
    (given,) = bench.fetch_groups(30.0)
    assert given.incomplete


def test_only_the_response_about_a_leaderless_partition_waits_for_its_leader(bench):
    count = len(bench.cluster.topics[OFFSETS].partitions)
    bench.cluster.take_leader(OFFSETS, 0)
    at_once = bench.fetch_groups(1.0)
    fetched = {number for given in at_once for number in given.partitions or ()}
    assert fetched == set(range(1, count))
    assert not any(given.incomplete for given in at_once)
    (late,) = bench.receive(30.0)
    assert (late.partitions, late.final) == (frozenset({0}), True)
    assert late.incomplete == {0: "has no leader"}


def test_what_a_group_has_left_in_an_earlier_partition_is_listed_but_not_found(bench):
    cluster = bench.cluster
    cluster.grow_topic(OFFSETS, len(cluster.topics[OFFSETS].partitions) + 7)
    for broker in cluster.brokers:
        cluster.restart_broker(broker)
        cluster.advance(cluster.now + 10)
    moved = {name for broker in cluster.brokers for name in cluster.list_groups(broker)} - {
        name for name in cluster.group_names() if cluster.described(name)
    }
    (given,) = bench.fetch_groups(30.0, together=True)
    assert moved
    assert given.failed.keys() == moved
    assert set(given.failed.values()) <= {"GROUP_ID_NOT_FOUND", "NOT_COORDINATOR"}
    assert not given.incomplete


def test_coordinators_are_not_ready_for_partitions_that_they_do_not_know_yet(bench):
    bench.cluster.grow_topic(OFFSETS, len(bench.cluster.topics[OFFSETS].partitions) + 40)
    fetched = bench.fetch_groups(40.0)
    assert [given.final for given in fetched] == [False] * (len(fetched) - 1) + [True]
    reasons = {why for given in fetched for why in given.incomplete.values()}
    assert reasons == {"its coordinator is not ready"}


def test_a_user_who_may_not_describe_the_offsets_topic_gets_the_groups_all_the_same(bench):
    bench.conditions.hidden_topics = frozenset({OFFSETS})
    groups, topics = bench.receive(1.0, FetchGroups(1, frozenset({0}), 1), FetchTopics(2))
    if isinstance(groups, TopicsFetched):
        groups, topics = topics, groups
    assert sorted(groups.groups) == bench.cluster.group_names()
    assert not groups.incomplete
    assert OFFSETS not in topics.topics
    bench.conditions.disturbances.append(Disturbance("refused", BROKER_KINDS, bench.log.leader))
    (groups,) = bench.receive(30.0, FetchGroups(3, frozenset({0}), 1))
    assert groups.incomplete.keys() == {0}


def test_the_first_record_at_an_offset_has_the_time_at_which_it_was_written(bench):
    name = bench.cluster.ordinary_topics()[0]
    log: Any = bench.cluster.topics[name].partitions[0]
    log.write(10, EPOCH_MS)
    log.write(10, EPOCH_MS + 5_000)
    log.trim(log.end - 15)
    places = [RecordPlace(name, 0, offset) for offset in (0, log.end - 5, log.end)]
    (given,) = bench.receive(1.0, ReadFirstRecords(1, frozenset(places)))
    assert [given.records[place] for place in places] == [
        FirstRecord(log.start, EPOCH_MS),
        FirstRecord(log.end - 5, EPOCH_MS + 5_000),
        FirstRecord(log.end, NO_RECORD),
    ]
    bench.conditions.denied_topics.add(name)
    (given,) = bench.receive(1.0, ReadFirstRecords(2, frozenset(places)))
    assert given.denied == {name}


def test_nothing_of_a_killed_koff_arrives(bench):
    bench.network.send([FetchTopics(1), bench.read()], bench.cluster.now)
    bench.network.restart()
    assert not bench.receive(20.0)


# --- The fault plan ---------------------------------------------------------------------------------------


class NoProcess:
    """A koff that nothing happens to."""

    def kill(self, down_s: float, *, reboot: bool) -> None: ...
    def step_clock(self, seconds: float) -> None: ...


def _catalog(bench: Bench | None = None, seed: int = 1) -> Catalog:
    bench = bench or Bench()
    return Catalog(random.Random(seed), bench.cluster, bench.conditions, bench.disk, NoProcess())


@pytest.mark.parametrize("seed", range(3))
def test_every_fault_can_begin_and_end_and_leaves_nothing_wrong(seed):
    for name in [make.__name__ for make in _catalog().weights()]:
        bench = Bench(seed)
        catalog = _catalog(bench, seed)
        fault = getattr(catalog, name)()
        fault.begin()
        bench.cluster.advance(bench.cluster.now + 5.0)
        fault.end()
        catalog.heal()
        bench.cluster.advance(bench.cluster.now + 15.0)
        bench.disk.close()
        assert not bench.conditions.disturbances
        assert not bench.conditions.denied_topics
        assert all(bench.cluster.brokers.values()), name
        assert all(log.leader is not None for _, log in bench.logs), name
        assert all(log.stable == log.end for at, log in bench.logs if at[0] == OFFSETS), name


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_heals_everything_at_its_end(seed):
    bench = Bench(seed)
    plan = _plan(bench, seed)
    while plan.next_event_s() < float("inf"):
        bench.cluster.advance(plan.next_event_s())
        plan.advance(bench.cluster.now)
    bench.disk.close()
    assert bench.cluster.now == plan.until_s
    assert not bench.conditions.disturbances


def test_plans_differ_and_have_every_kind_of_fault_and_some_none():
    bench = Bench()
    plans = [tuple(drawn.kind for drawn in _plan(bench, seed).faults) for seed in range(1_000)]
    assert len(set(plans[:100])) > 80
    assert () in plans
    assert {make.__name__ for make in _catalog().weights()} == {kind for plan in plans for kind in plan}


def test_an_unreachable_broker_may_hide_only_the_rows_that_need_it(bench):
    hides: dict[str, Any] = {}
    for seed in range(20):
        fault = _catalog(bench, seed).unreachable_broker()
        hides[fault.name] = fault.hides
    rows = bench.cluster.truth.rows()
    for row in rows:
        leader = bench.cluster.topics[row[1]].partitions[row[2]].leader
        assert any(hide(row) for name, hide in hides.items() if f"at broker {leader} " in name)
    assert not all(hide(row) for hide in hides.values() for row in rows)


def _plan(bench: Bench, seed: int) -> FaultPlan:
    now_s = bench.cluster.now
    rng = random.Random(seed)
    return FaultPlan(rng, bench.cluster, bench.conditions, bench.disk, NoProcess(), now_s, now_s + 60.0)
