"""Share groups: lag by KIP-1226, as Kafka's own tool has it."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from koff.kafkatest import LocalKafka, wait_until
from koff.records.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from tests.clusters import lend_kafka
from tests.kafka_groups import allow, commit, produce, sharing
from tests.koff_process import Monitor, as_user, describe_groups, monitoring, run_lag

pytestmark = pytest.mark.kafka
COMMITTED = "koff_group_committed_offset"
TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalKafka]:
    """A share group that is behind, beside a group that commits."""
    with lend_kafka() as kafka:
        topic = kafka.create_topic("jobs", partitions=2)
        commit(kafka, "plain", (topic, 0, 0))
        share_and_fall_behind(kafka, topic)
        yield kafka


def share_and_fall_behind(kafka: LocalKafka, topic: str) -> None:
    """The group `workers` reads 30 of 42 records; 12 of them are written after its consumer has gone.

    The consumer acknowledges records when it polls again. One that is killed before has acknowledged none.
    """
    for partition in range(2):
        produce(kafka, topic, 15, partition=partition)
    with sharing(kafka, "workers", topic, count=30):
        read_all = {(topic, partition): 0 for partition in range(2)}
        wait_until(lambda: kafkas_lags(kafka) == read_all, what="the consumer to acknowledge all")
    for partition in range(2):
        produce(kafka, topic, 6, partition=partition)


def kafkas_lags(kafka: LocalKafka) -> dict[tuple[str, int], int]:
    printed = kafka.run_tool(
        TOOL, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", "workers", "--offsets"
    )
    return {
        (topic, partition): int(row["LAG"]) for (_, topic, partition), row in describe_groups(printed).items()
    }


def served(monitor: Monitor, family: str = "koff_group_lag") -> dict[tuple[str, int], float]:
    """The values of the group `workers` by topic and partition."""
    return {at[1:]: value for at, value in monitor.rows(family).items() if at[0] == "workers"}


def test_koff_lag_agrees_with_kafkas_own_tool_for_a_share_group(shared):
    def agreed() -> dict:
        document = run_lag(shared.bootstrap, group="workers")
        lags = {(row["topic"], row["partition"]): row["lag"] for row in document["partitions"]}
        return document if lags == kafkas_lags(shared) else {}

    document = wait_until(agreed, what="koff and Kafka to agree")
    assert [row["lag"] for row in document["partitions"]] == [6, 6]
    (group,) = document["groups"]
    assert (group["type"], group["lag"]) == ("share", 12)


def test_the_monitor_serves_the_lag_of_a_share_group_and_lets_it_go_with_the_group(shared):
    with monitoring(shared.bootstrap) as monitor:
        monitor.wait_until_ready()

        wait_until(lambda: served(monitor) == kafkas_lags(shared), what="the lag of both partitions")

        def deleted() -> bool:
            """Kafka refuses while it takes the consumer, which was killed, for a member; the tool exits 0."""
            shared.run_tool(TOOL, "--bootstrap-server", shared.bootstrap, "--delete", "--group", "workers")
            return "workers" not in shared.run_tool(TOOL, "--bootstrap-server", shared.bootstrap, "--list")

        wait_until(deleted, timeout_s=60, what="Kafka to delete the group")
        wait_until(lambda: not served(monitor), what="the deleted group to go")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param(False, id="may be described", marks=pytest.mark.long),
        pytest.param(True, id="may not be described"),
    ],
)
def test_without_the_right_to_read_the_state_lags_come_from_the_coordinators_until_it_is_back(
    more_kafka, hidden: bool
):
    kafka = more_kafka(security=True)
    topic = kafka.create_topic(partitions=2)
    described = [topic, OFFSETS_TOPIC, *([] if hidden else [SHARE_STATE_TOPIC])]
    allow(
        kafka,
        *(("koff", ResourceType.TOPIC, name, AclOperation.DESCRIBE) for name in described),
        ("koff", ResourceType.GROUP, "*", AclOperation.DESCRIBE),
        ("koff", ResourceType.TOPIC, OFFSETS_TOPIC, AclOperation.READ),
    )
    for partition in range(2):
        produce(kafka, topic, 15, partition=partition)
    with sharing(kafka, "workers", topic, count=30):
        pass
    with monitoring(kafka.sasl_bootstrap, "--end-offset-interval", "1", env=as_user("koff")) as monitor:

        def agreed() -> dict[tuple[str, int], int]:
            lags = kafkas_lags(kafka)
            return lags if len(lags) == 2 and served(monitor) == lags else {}

        for count in (6, 3):
            for partition in range(2):
                produce(kafka, topic, count, partition=partition)
            lags = wait_until(agreed, timeout_s=60, what="koff and Kafka to agree")
        assert served(monitor, COMMITTED) == {}
        allow(kafka, ("koff", ResourceType.TOPIC, SHARE_STATE_TOPIC, AclOperation.READ))
        committed = {at: 24 - lag for at, lag in lags.items()}
        wait_until(lambda: served(monitor, COMMITTED) == committed, timeout_s=60, what="committed offsets")
        assert served(monitor) == lags
