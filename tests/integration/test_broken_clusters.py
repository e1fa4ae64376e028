"""`koff monitor` and `koff lag` where partitions of internal topics have no leader."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicCollection

from koff.kafkatest import LocalKafka, wait_until
from koff.records.placement import group_partition
from koff.records.topics import SHARE_STATE_TOPIC
from tests.fault_cluster import LEADERLESS, OFFSETS_TOPIC, FaultCluster, fault_cluster
from tests.fault_scrapes import FOLLOWED_S, RECOVERED_S, check_lag_command, wait_for, wait_for_rows, watching
from tests.kafka_groups import produce, sharing
from tests.koff_process import Monitor

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


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
