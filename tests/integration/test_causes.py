"""Why groups of a real cluster lag: each of the groups of the demo is named rightly, and no other."""

import json
import re
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koff.kafkatest import KafkaCluster, incidents, wait_until
from koff.kafkatest.traffic import GROUPS, Traffic
from tests.kafka_groups import commit, produce
from tests.koff_process import monitoring, run_koff, run_lag

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

EXPECTED = {
    "falls-behind": "too_slow",
    "stuck": "stuck_partition",
    "stopped": "no_members",
    "keeps-up": None,
    "new-protocol": None,
    "two-members": None,
}
A_MINUTE = 60
"""Of samples of end offsets, one each second: a busy machine takes fewer in a minute."""


def accept(folder: Path, kafka: KafkaCluster, seconds: float) -> str:
    """A koff.yaml with the objective of all groups: in these tests, an incident is one soon."""
    objectives = [{"groups": ".", "seconds": seconds}]
    cluster = {"name": kafka.cluster_id, "brokers": kafka.bootstrap, "end_offset_interval": 1}
    path = folder / "koff.yaml"
    path.write_text(json.dumps({"clusters": [cluster | {"objectives": objectives}]}))  # JSON is YAML, too
    return str(path)


def test_each_incident_of_the_demo_is_named_and_a_group_that_keeps_up_has_no_cause(kafka, tmp_path):
    mark = uuid.uuid4().hex[:6]
    topics = {
        f"{name}-{mark}": partitions for name, partitions in (("orders", 6), ("payments", 3), ("clicks", 4))
    }
    groups = [
        replace(group, name=f"{group.name}-{mark}", topics=[f"{topic}-{mark}" for topic in group.topics])
        for group in GROUPS
    ]
    assert {group.name.removesuffix(f"-{mark}") for group in groups} == EXPECTED.keys()
    config = accept(tmp_path, kafka, 20)
    with (
        Traffic(kafka, topics=topics, groups=groups),
        monitoring(None, "--config", config) as monitor,
    ):
        monitor.wait_until_ready()

        def find_causes() -> dict[str, list[str]]:
            status, body = monitor.get(f"/api/v1/groups?name={mark}")
            assert status == 200
            return {
                group["group"].removesuffix(f"-{mark}"): [cause["cause"] for cause in group["causes"] or ()]
                for group in json.loads(body)["groups"]
            }

        def is_explained() -> bool:
            """Every incident is named, each first, at the same moment."""
            found = {group: causes[:1] for group, causes in find_causes().items()}
            return found == {group: [cause] if cause else [] for group, cause in EXPECTED.items()}

        wait_until(is_explained, timeout_s=180, every_s=1, what="the causes")
        # A group without members stays as it is, whatever the load of the machine is.
        assert monitor.metrics()["koff_group_cause"][kafka.cluster_id, f"stopped-{mark}", "no_members"] > 0
        page = run_koff("group", f"stuck-{mark}", "--config", config)
        assert page.returncode == 0, page.stderr
        assert re.search(rf"stuck_partition \(\d+% of the lag\): orders-{mark}-2 stands at", page.stdout)
        assert re.search(r"rebalanced: generation .*1 member$", page.stdout, re.MULTILINE)
        assert re.search(rf"--reset-offsets --dry-run --topic orders-{mark}:2 --shift-by 1", page.stdout)
        assert run_koff("group", f"absent-{mark}", "--brokers", kafka.bootstrap).returncode == 3

        def find_stuck() -> dict[str, object] | None:
            (stuck,) = json.loads(monitor.get(f"/api/v1/groups?name=stuck-{mark}")[1])["groups"]
            return stuck["causes"][0] if stuck["causes"] else None

        cause = wait_until(find_stuck, what="the cause")  # there may be none while the machine is busy
        assert (cause["topic"], cause["partition"]) == (f"orders-{mark}", 2)
        assert cause["client_id"] == f"stuck-{mark}-1"


@pytest.mark.thorough
def test_each_scripted_incident_of_the_demo_is_named_and_over_when_it_ends(more_kafka, tmp_path):
    kafka = more_kafka()
    with (
        Traffic(kafka, topics=incidents.TOPICS, groups=incidents.GROUPS) as traffic,
        monitoring(None, "--config", accept(tmp_path, kafka, 20)) as monitor,
    ):
        monitor.wait_until_ready()
        script = incidents.Incidents(kafka, traffic)

        def find_groups() -> dict[str, dict[str, Any]]:
            status, body = monitor.get("/api/v1/groups")
            assert status == 200
            return {group["group"]: group for group in json.loads(body)["groups"]}

        names = {incident.group for incident in incidents.SCHEDULE}
        wait_until(
            lambda: {name for name, group in find_groups().items() if group["status"] == "OK"} == names,
            timeout_s=120,
            what="groups that keep up",
        )

        def has_read_enough() -> bool:
            """Whether the group that goes back has something to read again for a while."""
            _, body = monitor.get(f"/api/v1/clusters/{kafka.cluster_id}/groups/search-index")
            return all((row["committed"] or 0) > 300 for row in json.loads(body)["partitions"])

        wait_until(has_read_enough, timeout_s=180, every_s=1, what="records that were read")

        for incident in incidents.SCHEDULE:
            script.begin(incident)
        waiting = {incident.group: incident.cause for incident in incidents.SCHEDULE}
        totals: set[float] = set()
        """What was produced, in each sample of end offsets that was seen: koff's own clock."""
        taken: dict[str, int] = {}

        def is_named() -> bool:
            """Each incident was named at some moment: the cause of a lag may change while it lasts."""
            totals.add(sum(monitor.metrics()["koff_topic_messages_total"].values()))
            for name, group in find_groups().items():
                causes = [cause["cause"] for cause in group["causes"] or ()]
                if waiting.get(name) in causes:
                    taken[waiting.pop(name)] = len(totals)
            return not waiting

        try:
            wait_until(is_named, timeout_s=400, every_s=1, what="the causes")
        except TimeoutError as error:
            raise AssertionError(f"not named: {waiting}") from error
        finally:
            for incident in incidents.SCHEDULE:
                script.end(incident)
        assert all(count <= A_MINUTE for count in taken.values()), taken
        wait_until(
            lambda: all(group["lag"] is not None and not group["causes"] for group in find_groups().values()),
            timeout_s=120,
            every_s=1,
            what="groups that have caught up",
        )


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"retention.ms": "100000"}, (50, "retention")),
        ({"retention.ms": "100000", "cleanup.policy": "compact"}, (120, "floor")),
    ],
)
def test_a_group_may_be_late_by_half_of_the_retention_at_most(kafka, settings, allowed):
    topic = kafka.create_topic(config=settings)
    commit(kafka, f"reads-{topic}", (topic, 0, 0))
    (group,) = run_lag(kafka.bootstrap, group=f"reads-{topic}")["groups"]
    assert (group["allowance_s"], group["allowance_from"]) == allowed


def test_one_look_tells_who_stands_still(kafka, tmp_path):
    topic, config = kafka.create_topic(), accept(tmp_path, kafka, 10)
    stands, moves = f"stands-{topic}", f"moves-{topic}"
    produce(kafka, topic, 5_000)
    commit(kafka, stands, (topic, 0, 0))
    done = threading.Event()

    def move() -> None:
        for offset in range(5_000):
            commit(kafka, moves, (topic, 0, offset))
            if done.wait(0.2):
                return

    def look() -> bool:
        found = json.loads(run_koff("lag", "--config", config, "--format", "json").stdout)["groups"]
        groups = {group["group"]: group for group in found}
        if not {stands, moves} <= groups.keys():
            return False
        causes = [cause["cause"] for cause in groups[stands]["causes"] or ()]
        verdicts = groups[stands]["status"], causes[:1], groups[moves]["status"]
        return verdicts == ("ERR", ["not_committing"], "WARN")

    with ThreadPoolExecutor() as pool:
        moving = pool.submit(move)
        try:
            wait_until(look, timeout_s=120, what="both verdicts")
        finally:
            done.set()
        moving.result()
