"""Members of a group that are killed with -9 on a three-server ZooKeeper, of which a server is killed too."""

import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from koff.kafkatest import LocalKafka, reap, spawn, wait_until
from tests.integration.test_zookeeper_churn import PARTITIONS, SESSION_S, _lines
from tests.zookeeper_ensemble import SERVERS, run_ensemble
from tests.zookeeper_workers import Record, Source, stop_all

pytestmark = pytest.mark.thorough

INSTANCE = Path(__file__).parents[1] / "zookeeper_instance.py"


@pytest.mark.kafka
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.long)])
def test_members_are_killed_and_no_message_is_lost_and_no_partition_has_two_owners(
    more_kafka: Callable[..., LocalKafka], tmp_path: Path, kills: int
):
    dice, record = random.Random(17), Record()
    kafka = more_kafka(brokers=3, config={"offsets.topic.num.partitions": "1"})
    topic = kafka.create_topic(partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
    outputs: list[Path] = []
    members: list[tuple[subprocess.Popen[bytes], Path]] = []

    def values() -> set[bytes]:
        return {line.value for path in outputs for line in _lines(path)}

    def has_run(process: subprocess.Popen[bytes], path: Path) -> bool:
        return bool(_lines(path)) or process.poll() is not None

    with run_ensemble(tick_ms=500) as ensemble:

        def start_member() -> None:
            path = tmp_path / str(len(outputs))
            command = [sys.executable, str(INSTANCE), "kills", topic, ensemble.hosts, kafka.bootstrap]
            with path.open("wb") as output:
                process = spawn([*command, str(SESSION_S)], stdout=output, stdin=subprocess.DEVNULL)
            outputs.append(path)
            members.append((process, path))

        source = Source(kafka, topic, PARTITIONS, per_s=200)
        try:
            for _ in range(3):
                start_member()
            for number in range(kills):
                # A member that joins while the servers elect a leader may end with an error.
                for ended in [member for member in members if member[0].poll() is not None]:
                    members.remove(ended)
                    start_member()
                process, path = members[dice.randrange(len(members))]
                wait_until(partial(has_run, process, path), timeout_s=90, what="messages, or an end")
                reap(process)
                members.remove((process, path))
                start_member()
                if number % 5 == 3:
                    server = ensemble.find(dice.choice(["leader", "follower"]))
                    ensemble.kill(server)
                    wait_until(
                        lambda: "leader" in [ensemble.mode(each) for each in SERVERS],
                        timeout_s=60,
                        what="a leader again",
                    )
                    ensemble.start(server)
                    ensemble.wait_until_up()
            source.stop()
            assert source.acknowledged
            wait_until(lambda: source.acknowledged <= values(), timeout_s=120, what="every message")
        finally:
            for process, _ in members:
                reap(process)
            stop_all()
    record.handed = [line for path in outputs for line in _lines(path)]
    record.check_claims(late=1)
