"""The model of a cluster does what Kafka does, and knows what is true in it."""

import random

import pytest

from koff import records
from tests.simulation.cluster import OFFSETS, SHARE_STATE, Cluster
from tests.simulation.facts import Classic, ClassicMember, Commit, Own, ShareProgress
from tests.simulation.logs import read_all
from tests.simulation.placement import kafka_hash

NO_ID = "A" * 22
SEEDS = range(12)
Row = tuple[str, str, int]


FAULTS = (
    "take_leader",
    "give_leader",
    "move_leader",
    "unclean_election",
    "stop_broker",
    "start_broker",
    "restart_broker",
    "delete_topic",
    "create_topic",
    "grow_topic",
    "hang_transaction",
    "end_all_transactions",
    "compact",
    "delete_group",
    "expire_group",
    "write_hostile",
    "create_internal_topics",
)


def do_harm(cluster: Cluster, rng: random.Random) -> None:
    """One fault, or the end of one."""
    fault = rng.choice(FAULTS)
    topic = rng.choice((OFFSETS, OFFSETS, SHARE_STATE, *cluster.ordinary_topics()))
    arguments: tuple[object, ...] = ()
    if fault in {"take_leader", "give_leader", "move_leader", "unclean_election"}:
        arguments = (topic, rng.randrange(4))
    elif fault in {"stop_broker", "start_broker", "restart_broker"}:
        arguments = (rng.choice(list(cluster.brokers)),)
    elif fault == "delete_topic":
        arguments = (topic if rng.random() < 0.3 else f"topic-{rng.randrange(6)}",)
    elif fault == "create_topic":
        arguments = (f"topic-{rng.randrange(6)}", rng.randint(1, 4))
    elif fault == "grow_topic":
        arguments = (topic, rng.randint(2, 8))
    getattr(cluster, fault)(*arguments)


def live_through_faults(seed: int) -> Cluster:
    cluster, rng = Cluster(random.Random(seed)), random.Random(-seed)
    while cluster.now < 120:  # faults are far more frequent here than in a run of the simulation
        cluster.advance(cluster.now + rng.expovariate(0.5))
        do_harm(cluster, rng)
    return cluster


def decode_rows(cluster: Cluster) -> dict[Row, int]:
    """The commits that koff's decoder finds in the bytes of the logs, as a reader gets them."""
    found: dict[Row, tuple[int, str]] = {}
    count = len(cluster.topics[OFFSETS].partitions)
    for number, log in enumerate(cluster.topics[OFFSETS].partitions):
        for each in read_all(log):
            record = records.decode(each.key, each.value).record
            if not isinstance(record, records.OffsetCommit) or kafka_hash(record.group) % count != number:
                continue
            row = (record.group, record.topic, record.partition)
            found.pop(row, None)
            if record.value is not None:
                found[row] = (record.value.offset, record.value.topic_id)
    topics = cluster.topics
    return {
        row: offset
        for row, (offset, id_) in found.items()
        if offset >= 0 and (id_ == NO_ID or row[1] not in topics or topics[row[1]].id == id_)
    }


def decode_share_rows(cluster: Cluster, groups: set[str]) -> dict[Row, int]:
    names = {topic.id: name for name, topic in cluster.topics.items()}
    found: dict[tuple[str, str, int], tuple[int, int]] = {}
    for log in cluster.topics[SHARE_STATE].partitions:
        for each in read_all(log):
            record = records.decode_share_state(each.key, each.value).record
            if isinstance(record, records.ShareSnapshot | records.ShareUpdate):
                key = (record.group_id, record.topic_id, record.partition)
                value = record.value
                if value is None:
                    found.pop(key, None)
                    continue
                is_update = isinstance(record, records.ShareUpdate)
                start = found.get(key, (-1, 0))[0] if is_update and value.start_offset == -1 else None
                found[key] = (value.start_offset if start is None else start, value.delivery_complete_count)
    return {
        (group, names[id_], partition): start + completed
        for (group, id_, partition), (start, completed) in found.items()
        if group in groups and id_ in names and min(start, completed) >= 0
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bytes_in_the_logs_say_what_the_truth_says_whatever_happened(seed):
    cluster = live_through_faults(seed)
    cluster.end_faults()
    cluster.advance(cluster.now + 60)  # until brokers with an outdated partition count have restarted
    cluster.stop_lives()
    cluster.advance(cluster.now + 10)  # and for the last transactions to end
    assert all(log.stable == log.end for log in cluster.topics[OFFSETS].partitions)
    anything = {group for group, *_ in decode_rows(cluster) if cluster.truth.is_any(group)}
    # What a group has left in its earlier partition cannot be told from a group that is still there.
    left = {
        group
        for number, shard in enumerate(cluster._shards)
        for group in shard.names()
        if number != cluster.coordinator(group)[1]
    }
    assert all(group.startswith(("hostile", "�")) or group in left for group in anything)
    share = {
        g for g in cluster.group_names() if cluster.described(g) and cluster.described(g).kind == "share"
    }
    decoded = decode_rows(cluster) | decode_share_rows(cluster, share)
    assert cluster.truth.rows() == {row: at for row, at in decoded.items() if row[0] not in anything}
    assert decoded


@pytest.mark.parametrize("seed", SEEDS)
def test_coordinators_answer_what_is_true(seed):
    cluster = live_through_faults(seed)
    cluster.end_faults()
    cluster.advance(cluster.now + 60)
    rows = {
        (group, *place): offset
        for group in cluster.group_names()
        if not cluster.truth.is_any(group)
        for place, offset in cluster.committed(group).items()
    }
    assert rows == cluster.truth.rows()
    described = {group: cluster.described(group) for group in cluster.group_names()}
    members = {name: sum(m.present for m in group.members) for name, group in described.items() if group}
    assert {g: n for g, n in members.items() if not cluster.truth.is_any(g)} == cluster.truth.groups()


def test_a_seed_repeats_its_cluster():
    assert fingerprint(live_through_faults(3)) == fingerprint(live_through_faults(3))
    assert fingerprint(live_through_faults(3)) != fingerprint(live_through_faults(4))


def fingerprint(cluster: Cluster) -> object:
    logs = cluster.topics[OFFSETS].partitions if OFFSETS in cluster.topics else []
    return [log.records for log in logs], cluster.truth.rows(), cluster.topics.keys()


def test_lives_of_every_kind_are_lived():
    kinds, states = set(), set()
    for seed in range(20):
        cluster = Cluster(random.Random(seed))
        for until in range(20, 200, 20):
            cluster.advance(until)
            for group in filter(None, map(cluster.described, cluster.group_names())):
                kinds.add(group.kind)
                states.add(group.state)
                states |= {"away" for member in group.members if not member.present}
    assert kinds == {"simple", "classic", "consumer", "share", "streams"}
    assert states >= {"Empty", "Stable", "Assigning", "Reconciling", "away"}


def make_cluster(seed: int = 1) -> Cluster:
    """A cluster in which nothing happens by itself."""
    cluster = Cluster(random.Random(seed))
    cluster.stop_lives()
    cluster.advance(60)
    return cluster


@pytest.fixture
def cluster():
    return make_cluster()


def commit(cluster: Cluster, group: str, offset: int, producer: int | None = None) -> None:
    cluster.write(group, [Commit(group, "topic-0", 0, offset)], producer)


def committed_now(cluster: Cluster, group: str) -> set[int | None]:
    return cluster.truth.committed(group, "topic-0", 0, cluster.now + 0.5, cluster.now + 1)


def test_a_reader_may_see_the_members_that_are_there_after_a_part_of_a_batch(cluster):
    members = [ClassicMember(str(number), None, (), ()) for number in range(2)]
    cluster.write("g", [Classic("g", 1, tuple(members[:1])), Classic("g", 1, tuple(members))])
    assert cluster.truth.members("g", cluster.now, cluster.now) >= {1, 2}
    assert cluster.truth.members("g", cluster.now + 0.1, cluster.now + 1) == {2}


def test_a_transactional_commit_counts_from_its_control_record_on(cluster):
    commit(cluster, "g", 5)
    commit(cluster, "g", 6, producer=1)
    assert committed_now(cluster, "g") == {5}
    cluster.end_transaction(1, commit=True)
    assert committed_now(cluster, "g") == {6}
    commit(cluster, "g", 7, producer=1)
    commit(cluster, "g", 8)
    cluster.end_transaction(1, commit=True)
    assert committed_now(cluster, "g") == {8}  # its record is the newest


def test_nothing_changes_while_the_offsets_partition_has_no_leader(cluster):
    commit(cluster, "g", 5)
    partition = cluster.coordinator("g")[1]
    cluster.take_leader(OFFSETS, partition)
    commit(cluster, "g", 6)
    assert cluster.coordinator("g") == (None, partition)
    assert (cluster.committed("g"), committed_now(cluster, "g")) == ({}, {5})
    cluster.give_leader(OFFSETS, partition)
    assert cluster.committed("g") == {("topic-0", 0): 5}


def test_after_an_unclean_election_the_coordinator_knows_what_is_left_of_the_log(cluster):
    commit(cluster, "g", 1)
    cluster.advance(61)
    for offset in range(2, 13):
        cluster.advance(cluster.now + 1)
        commit(cluster, "g", offset)
    partition = cluster.coordinator("g")[1]
    log = cluster.topics[OFFSETS].partitions[partition]
    epoch, end = log.epoch, log.end
    cluster.unclean_election(OFFSETS, partition)
    lost = end - log.end
    assert 1 <= lost <= 10
    assert log.epoch == epoch + 1
    assert committed_now(cluster, "g") == {12 - lost}


def test_groups_move_to_an_empty_partition_once_brokers_know_that_the_offsets_topic_has_grown(cluster):
    count = len(cluster.topics[OFFSETS].partitions)
    group = next(name for name in map(str, range(99)) if kafka_hash(name) % count != kafka_hash(name) % 11)
    commit(cluster, group, 5)
    cluster.grow_topic(OFFSETS, 11)
    assert (committed_now(cluster, group), cluster.truth.is_any(group)) == ({5}, True)
    for broker in cluster.brokers:
        cluster.restart_broker(broker)
        cluster.advance(cluster.now + 10)
    assert cluster.coordinator(group)[1] == kafka_hash(group) % 11
    assert committed_now(cluster, group) == {None}
    cluster.advance(cluster.now + 30)
    assert cluster.truth.is_any(group)  # nothing in the log says that it has left its earlier partition
    commit(cluster, next(name for name in map(str, range(99)) if kafka_hash(name) % 11 == 10), 1)
    commit(cluster, group, 7)
    cluster.advance(cluster.now + 31)
    assert not cluster.truth.is_any(group)
    assert committed_now(cluster, group) == {7}
    assert group in cluster.group_names()


def test_the_commits_of_a_deleted_topic_are_deleted_within_a_second(cluster):
    commit(cluster, "g", 5)
    cluster.delete_topic("topic-0")
    assert cluster.truth.ends("topic-0", 0, cluster.now + 0.01, cluster.now + 1) == {None}
    assert committed_now(cluster, "g") == {5}
    cluster.advance(cluster.now + 1)
    assert committed_now(cluster, "g") == {None}
    assert cluster.truth.members("g", cluster.now - 1, cluster.now) == {0, None}


def test_a_leaderless_partition_keeps_commits_to_an_earlier_topic_and_they_may_count_or_not(cluster):
    cluster.write("g", [Commit("g", "topic-0", 0, 5, cluster.topics["topic-0"].id)])
    partition = cluster.coordinator("g")[1]
    cluster.take_leader(OFFSETS, partition)  # so that the commit stays
    cluster.delete_topic("topic-0")
    cluster.advance(cluster.now + 2)
    assert committed_now(cluster, "g") == {5}
    cluster.create_topic("topic-0", 1)
    assert committed_now(cluster, "g") == {5, None}
    assert ("g", "topic-0", 0) not in cluster.truth.rows()  # so koff need not show it
    cluster.give_leader(OFFSETS, partition)
    assert cluster.committed("g") == {("topic-0", 0): 5}  # Kafka's own tool shows it
    cluster.write("g", [Commit("g", "topic-0", 0, 7, cluster.topics["topic-0"].id)])
    assert committed_now(cluster, "g") == {7}


def test_coordinators_do_not_return_commits_to_an_earlier_topic_that_they_have_deleted(cluster):
    cluster.write("g", [Commit("g", "topic-0", 0, 5, cluster.topics["topic-0"].id)])
    cluster.delete_topic("topic-0")
    cluster.create_topic("topic-0", 1)
    assert cluster.committed("g") == {("topic-0", 0): 5}
    cluster.advance(cluster.now + 2)
    assert (cluster.committed("g"), committed_now(cluster, "g")) == ({}, {None})


def test_a_commit_to_the_present_topic_outlives_the_deletion_of_an_earlier_one(cluster):
    cluster.delete_topic("topic-0")
    cluster.create_topic("topic-0", 1)  # before the coordinators deleted the commits of the earlier topic
    cluster.write("old", [Commit("old", "topic-0", 0, 5)])
    cluster.write("new", [Commit("new", "topic-0", 0, 5, cluster.topics["topic-0"].id)])
    cluster.advance(cluster.now + 1)
    assert committed_now(cluster, "old") == {None}  # a commit without a topic id is deleted by the name
    assert committed_now(cluster, "new") == {5}


def test_a_transaction_that_lost_its_control_record_ends_again_by_itself(cluster):
    commit(cluster, "g", 5, producer=1)
    cluster.advance(cluster.now + 1)
    cluster.end_transaction(1, commit=True)
    log = cluster.topics[OFFSETS].partitions[cluster.coordinator("g")[1]]
    log.batch_start = lambda offset: log.end - 1  # only the control record is lost
    cluster.unclean_election(OFFSETS, cluster.coordinator("g")[1])
    assert (log.open, committed_now(cluster, "g")) == ({1: log.stable}, {None})
    cluster.advance(cluster.now + 5)
    assert log.stable == log.end


def test_a_control_record_waits_for_a_leader(cluster):
    commit(cluster, "g", 5, producer=1)
    partition = cluster.coordinator("g")[1]
    cluster.take_leader(OFFSETS, partition)
    cluster.end_transaction(1, commit=True)
    cluster.advance(cluster.now + 1)
    assert committed_now(cluster, "g") == {None}
    cluster.give_leader(OFFSETS, partition)
    cluster.advance(cluster.now + 1)
    assert committed_now(cluster, "g") == {5}


def test_a_hanging_transaction_holds_the_stable_offset_back_until_it_is_ended(cluster):
    producer = cluster.hang_transaction()
    assert producer is not None
    (log,) = (log for log in cluster.topics[OFFSETS].partitions if log.open)
    cluster.advance(cluster.now + 600)
    assert log.stable < log.end
    cluster.end_transaction(producer, commit=False)
    assert log.stable == log.end


def write_share_progress(cluster: Cluster, start: int, completed: int, *, snapshot: bool = True) -> None:
    id_ = cluster.topics["topic-0"].id
    cluster.write("g", [Own("share", "g", 1)])
    cluster.write_share([ShareProgress("g", id_, 0, snapshot, start, completed)])


def test_a_share_group_has_committed_its_start_offset_and_the_completed_deliveries(cluster):
    write_share_progress(cluster, 10, 3)
    assert (committed_now(cluster, "g"), cluster.committed("g")) == ({13}, {("topic-0", 0): 13})
    write_share_progress(cluster, -1, 5, snapshot=False)
    assert committed_now(cluster, "g") == {15}  # an update without a start offset leaves it as it is
    write_share_progress(cluster, 20, -1)
    assert (committed_now(cluster, "g"), cluster.committed("g")) == ({None}, {})


def test_nothing_is_asserted_of_share_state_whose_group_was_lost(cluster):
    write_share_progress(cluster, 10, 0)
    assert not cluster.truth.is_any("g")
    cluster.delete_topic(OFFSETS)
    cluster.create_internal_topics()
    assert (committed_now(cluster, "g"), cluster.truth.is_any("g")) == ({None}, True)
    write_share_progress(cluster, 20, 0)
    cluster.advance(cluster.now + 29)
    assert cluster.truth.is_any("g")
    cluster.advance(cluster.now + 2)
    assert not cluster.truth.is_any("g")


def test_the_share_state_of_a_deleted_topic_counts_until_it_is_deleted_too(cluster):
    write_share_progress(cluster, 10, 3)
    for number in range(len(cluster.topics[SHARE_STATE].partitions)):
        cluster.take_leader(SHARE_STATE, number)  # so that the state stays
    cluster.delete_topic("topic-0")
    cluster.advance(cluster.now + 2)
    assert committed_now(cluster, "g") == {13}
    cluster.create_topic("topic-0", 1)
    assert committed_now(cluster, "g") == {None}


def test_share_state_is_reloaded_after_an_unclean_election(cluster):
    write_share_progress(cluster, 10, 0)
    for start in range(11, 31):
        cluster.advance(cluster.now + 0.1)
        write_share_progress(cluster, start, 0)
    partition = next(n for n, log in enumerate(cluster.topics[SHARE_STATE].partitions) if log.end > 20)
    end = cluster.topics[SHARE_STATE].partitions[partition].end
    cluster.unclean_election(SHARE_STATE, partition)
    lost = end - cluster.topics[SHARE_STATE].partitions[partition].end
    assert 1 <= lost <= 10
    assert committed_now(cluster, "g") == {30 - lost}


def test_what_a_stopped_broker_led_without_failover_has_no_leader_until_it_starts(cluster):
    led = [log for topic in cluster.topics.values() for log in topic.partitions if log.leader == 0]
    cluster.stop_broker(0, failover=False)
    assert {log.leader for log in led} == {None}
    cluster.start_broker(0)
    assert {log.leader for log in led} == {0}
    cluster.stop_broker(0)
    assert {None, 0}.isdisjoint(log.leader for log in led)


def test_a_deleted_group_is_gone_with_its_offsets_and_its_share_state():
    for seed in range(5):
        cluster = make_cluster(seed)
        for _ in range(200):
            cluster.delete_group()
        assert (cluster.truth.rows(), cluster.truth.groups(), cluster.group_names()) == ({}, {}, [])


def test_only_empty_groups_expire(cluster):
    with_members = {group for group, members in cluster.truth.groups().items() if members}
    commit(cluster, "g", 5)
    for _ in range(200):
        cluster.expire_group()
    assert with_members <= cluster.truth.groups().keys()
    assert with_members
    assert "group-0" not in cluster.truth.groups()  # a simple group has no members


def test_without_the_offsets_topic_there_are_no_groups(cluster):
    commit(cluster, "g", 5)
    cluster.delete_topic(OFFSETS)
    assert (cluster.truth.rows(), cluster.truth.groups(), cluster.group_names()) == ({}, {}, [])
    cluster.create_internal_topics(4)
    commit(cluster, "g", 6)
    assert cluster.truth.rows() == {("g", "topic-0", 0): 6}


def test_hostile_records_change_nothing_about_other_groups():
    for seed in range(5):
        cluster = make_cluster(seed)
        before = cluster.truth.rows(), cluster.truth.groups()
        for _ in range(200):
            cluster.write_hostile()
        assert (cluster.truth.rows(), cluster.truth.groups()) == before
        assert any(cluster.truth.is_any(group) for group in cluster.group_names())
