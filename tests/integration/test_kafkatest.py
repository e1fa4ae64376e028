"""The test kit itself: a Kafka that comes up, answers, and leaves nothing behind."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from koff.kafkatest import (
    KafkaCluster,
    KafkaTestError,
    LocalKafka,
    archive,
    kafka_jars,
    many_groups,
    wait_until,
)
from koff.kafkatest.java import archive_path
from tests.clusters import log_in

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_a_tool_of_kafka_prints_and_a_failing_one_says_why(kafka: KafkaCluster):
    assert "kafka-consumer-groups" not in kafka.run_tool(
        GROUPS, "--bootstrap-server", kafka.bootstrap, "--list"
    )
    with pytest.raises(KafkaTestError, match="bogus is not a recognized option"):
        kafka.run_tool(GROUPS, "--bogus")


@pytest.mark.kafka
def test_stopping_leaves_no_process_and_no_folder():
    with LocalKafka() as local:
        pid, folder = local.nodes[0].pid, local.folder
        assert pid is not None
        assert alive(pid)
    assert not alive(pid)
    assert not folder.exists()


@pytest.mark.kafka
def test_a_parent_that_is_killed_leaves_no_process_and_no_folder():
    script = """
        from koff.kafkatest import LocalKafka
        kafka = LocalKafka()
        kafka.start()
        print(kafka.nodes[0].pid, kafka.folder, flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            pid, folder = parent.stdout.readline().split()
        finally:
            parent.kill()
    wait_until(lambda: not alive(int(pid)), what="the broker to go")
    wait_until(lambda: not Path(folder).exists(), what="its folder to go")


def test_a_paused_broker_answers_nobody_until_resumed(more_kafka: Callable[..., LocalKafka]):
    local = more_kafka()
    with local.paused(), pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": local.bootstrap, "log_level": 0}).list_topics(timeout=1)
    local.wait_until_up()


IDS = ("cluster.id=", "node.id=", "directory.id=")


def test_three_brokers_go_on_when_one_is_killed(more_kafka: Callable[..., LocalKafka]):
    local = more_kafka(brokers=3)
    # Kafka's tool has formatted the storage of one node at most: the others have copies with their own ids.
    metas = [(node.data / "meta.properties").read_text().splitlines() for node in local.nodes]
    distinct = {name: len({line for meta in metas for line in meta if line.startswith(name)}) for name in IDS}
    assert distinct == {"cluster.id=": 1, "node.id=": 3, "directory.id=": 3}
    topic = local.create_topic(replicas=3)
    local.nodes[2].kill()
    lost = local.nodes[2].id

    def led_elsewhere() -> bool:
        return local.leaders(topic).get(0, -1) not in (-1, lost)

    wait_until(led_elsewhere, what="a new leader")
    local.nodes[2].start()
    local.wait_until_up()


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why():
    with pytest.raises(KafkaTestError, match="compression\\.type"):
        LocalKafka(config={"compression.type": "none-such"}).start()


def test_secured_listeners_let_in_who_may(more_kafka: Callable[..., LocalKafka]):
    local = more_kafka(security=True)
    topic = local.create_topic()

    def list_topics(brokers: str, properties: dict[str, str], timeout_s: int = 60) -> dict[str, Any]:
        client = AdminClient({"bootstrap.servers": brokers, "log_level": 0, **properties})
        return client.list_topics(timeout=timeout_s).topics

    assert topic in list_topics(local.sasl_bootstrap, log_in("admin"))
    assert topic not in list_topics(local.sasl_bootstrap, log_in("alice"))
    with pytest.raises(KafkaException):
        list_topics(local.sasl_bootstrap, log_in("alice", "wrong"), 2)
    tls = {"security.protocol": "SSL"}
    assert topic in list_topics(local.ssl_bootstrap, {**tls, "ssl.ca.location": str(local.ca_pem)})
    with pytest.raises(KafkaException):
        list_topics(local.ssl_bootstrap, tls, 2)


def test_many_groups_commit_while_they_run(kafka: KafkaCluster, make_topic: Callable[..., str]):
    groups = many_groups.share_out(30, 60)
    for name, partitions in many_groups.list_topics(groups).items():
        make_topic(name, partitions)

    def have_committed() -> bool:
        return all(committed_by(kafka, each) == [0] * each.partitions for each in groups[::10])

    with many_groups.ManyGroups(kafka.bootstrap, groups):
        wait_until(have_committed, what="a commit of each group for each partition")


def committed_by(kafka: KafkaCluster, group: many_groups.NumberedGroup) -> list[int]:
    partitions = [TopicPartition(group.topic, number) for number in range(group.partitions)]
    with closing(kafka.consumer(group.name)) as consumer:
        try:
            return [each.offset for each in consumer.committed(partitions, timeout=30)]
        except KafkaException:  # the coordinator is still loading
            return []


def test_an_archive_of_classes_is_made_beside_a_running_broker_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / kafka_jars().name).symlink_to(kafka_jars())
    monkeypatch.setenv("KOFF_CACHE", str(tmp_path))
    with LocalKafka() as kafka, archive.making_archive(kafka) as dump:
        dump.wait(120)
        archive_file = archive_path(kafka.jars)
        assert not archive_file.exists()
    assert archive_file.exists()
    with LocalKafka() as kafka, archive.making_archive(kafka) as dump:
        assert dump is None
        assert str(archive_file) in Path(f"/proc/{kafka.nodes[0].pid}/maps").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {
        kafka.jars.name,
        f"{kafka.jars.name}-storage",
        archive_file.name,
    }
