"""`koff monitor` and `koff lag` where Kafka itself is broken, hides something, or has a hostile client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation, ResourceType

from koff.kafkatest import LocalKafka, wait_until
from koff.records.placement import group_partition
from koff.records.topics import SHARE_STATE_TOPIC
from tests.fault_cluster import LEADERLESS, OFFSETS_TOPIC, FaultCluster, fault_cluster
from tests.fault_scrapes import FOLLOWED_S, RECOVERED_S, check_lag_command, wait_for, wait_for_rows, watching
from tests.forgetful import Forgetful
from tests.hostile_member import join_with_partitions
from tests.kafka_groups import allow, commit, make_lag, produce, revoke, sharing
from tests.koff_process import Monitor, as_user, monitoring

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


# Partitions without a leader


@pytest.fixture(scope="module")
def one_replica() -> Iterator[FaultCluster]:
    """A cluster whose internal topics have one replica: they are leaderless without their broker."""
    ones = {"offsets_topic_replication_factor": "1", "share_coordinator_state_topic_replication_factor": "1"}
    with fault_cluster(**ones) as cluster:
        yield cluster


@pytest.fixture
def fragile(one_replica: FaultCluster) -> Iterator[FaultCluster]:
    """The cluster with one replica. A broker that the test kills is started again."""
    yield one_replica
    one_replica.restore()


def kill(cluster: FaultCluster, broker: int) -> None:
    """Kills a broker, and waits until other brokers lead all but its partitions of internal topics."""
    cluster.kafka.nodes[broker - 1].kill()
    cluster.wait_until_led_by_others(broker, leaderless=[OFFSETS_TOPIC])


def test_leaderless_offsets_partitions_hide_their_groups_only(fragile):
    with watching(fragile) as monitor:
        wait_for(monitor, fragile, RECOVERED_S)
        kill(fragile, 3)
        for _ in range(2):
            print(f"right after {wait_for(monitor, fragile, RECOVERED_S, without=LEADERLESS):.1f} s")
            fragile.advance()
        assert monitor.get("/readyz")[0] == 200
        # A monitor that starts now can know no group of the leaderless partitions.
        with watching(fragile) as second:
            print(f"served after {wait_for_rows(second, fragile, LEADERLESS):.1f} s")
            second.wait_until_ready()
            fragile.restore()
            for running in (monitor, second):
                print(f"recovered after {wait_for(running, fragile, RECOVERED_S):.1f} s")
            fragile.advance()
            for running in (monitor, second):
                wait_for(running, fragile, FOLLOWED_S)


@pytest.mark.thorough
def test_koff_lag_says_that_groups_of_leaderless_offsets_partitions_are_not_known(fragile):
    kill(fragile, 3)
    check_lag_command(fragile, LEADERLESS)


@pytest.mark.thorough
def test_leaderless_share_state_hides_its_rows_only(fragile):
    kafka, count = fragile.kafka, 12
    group = next(name for n in itertools.count() if fragile.coordinator(name := f"share-{n}") == 1)
    with fragile.new_topic(count) as topic:
        for partition in range(count):
            produce(kafka, topic, 3, partition=partition)
        with sharing(kafka, group, topic, count=3 * count):
            pass
        # The broker that is killed leads the share state of some rows, but does not coordinate the group.
        leaders = share_state_leaders(kafka, group, topic)
        broker = next(leader for leader in leaders.values() if leader != 1)
        hidden = {partition for partition, leader in leaders.items() if leader == broker}
        assert hidden < leaders.keys()
        with watching(fragile) as monitor:
            wait_until(lambda: len(share_lags(monitor, group)) == count, timeout_s=60, what="the lags")
            before = share_lags(monitor, group)
            kill(fragile, broker)
            for partition in range(count):
                produce(kafka, topic, 2, partition=partition)
            rest = {partition: lag + 2 for partition, lag in before.items() if partition not in hidden}
            wait_until(lambda: share_lags(monitor, group) == rest, timeout_s=60, what=f"the lags {rest}")
            wait_for(monitor, fragile, RECOVERED_S, without=LEADERLESS, may_serve_more=True)
            assert monitor.get("/readyz")[0] == 200
            fragile.restore()
            every = {partition: lag + 2 for partition, lag in before.items()}
            wait_until(lambda: share_lags(monitor, group) == every, timeout_s=60, what=f"the lags {every}")


def share_state_leaders(kafka: LocalKafka, group: str, topic: str) -> dict[int, int]:
    """By partition of the topic, the broker that leads the share state of the group for it."""
    described = kafka.admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    topic_id = str(described.topic_id).rstrip("=").replace("+", "-").replace("/", "_")
    leaders = kafka.leaders(SHARE_STATE_TOPIC)
    # Kafka hashes its SharePartitionKey, this text, as the name of a group.
    return {
        partition: leaders[group_partition(f"{group}:{topic_id}:{partition}", len(leaders))]
        for partition in range(len(described.partitions))
    }


def share_lags(monitor: Monitor, group: str) -> dict[int, float]:
    return {partition: lag for (name, _, partition), lag in monitor.rows().items() if name == group}


# Brokers that are forgotten, rights, and hostile clients


def test_a_monitor_stays_right_while_the_broker_names_no_brokers_and_after(kafka):
    """librdkafka forgets every broker for good then (its issue 5301)."""
    topic = make_lag(kafka, committed=4)
    with (
        Forgetful(kafka.bootstrap) as broker,
        monitoring(broker.bootstrap, "--end-offset-interval", "1") as monitor,
    ):
        monitor.wait_for_lag(topic, 6)
        broker.forgets = True
        wait_until(lambda: broker.empty_responses >= 4, timeout_s=90, what="the clients to forget")
        commit(kafka, topic, (topic, 0, 7))
        wait_until(lambda: monitor.lag(topic) != 6, what="the commit to be noticed")
        assert monitor.lag(topic) in (3, None)
        broker.forgets = False
        commit(kafka, topic, (topic, 0, 8))
        monitor.wait_for_lag(topic, 2)


READ = "koff", ResourceType.TOPIC, OFFSETS_TOPIC, AclOperation.READ


def test_without_the_right_to_read_commits_come_from_the_coordinators_until_it_is_back(more_kafka):
    kafka = more_kafka(security=True)
    topic = make_lag(kafka, "g", committed=1, records=100)
    allow(
        kafka,
        ("koff", ResourceType.TOPIC, "*", AclOperation.DESCRIBE),
        ("koff", ResourceType.GROUP, "*", AclOperation.DESCRIBE),
        READ,
    )
    auto = ("--source", "auto", "--end-offset-interval", "1")
    with monitoring(kafka.sasl_bootstrap, *auto, env=as_user("koff")) as monitor:
        monitor.wait_for_lag("g", 99)
        revoke(kafka, READ)
        for committed in (10, 20):
            commit(kafka, "g", (topic, 0, committed))
            monitor.wait_for_lag("g", 100 - committed)
        assert monitor.get("/readyz")[0] == 200
        allow(kafka, READ)
        for committed in (30, 40):
            commit(kafka, "g", (topic, 0, committed))
            monitor.wait_for_lag("g", 100 - committed)


def test_a_member_with_an_assignment_of_impossible_partitions_ends_nothing(kafka):
    topic = make_lag(kafka, committed=4)
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_for_lag(topic, 6)
        name = f"hostile-{topic}"
        join_with_partitions(kafka, name, topic, (-5, -(2**31), 2**31 - 1, 0))
        members = (kafka.cluster_id, name)
        wait_until(
            lambda: monitor.metrics().get("koff_group_members", {}).get(members) == 1,
            what="the hostile group",
        )
        commit(kafka, topic, (topic, 0, 7))
        monitor.wait_for_lag(topic, 3)
        with monitoring(kafka.bootstrap) as second:  # its start sees the group, too
            second.wait_for_lag(topic, 3)
            rows = {labels[3] for labels in second.metrics()["koff_group_lag"] if labels[1] == name}
            assert rows <= {"0"}
