"""`koff offsets` on a real Kafka: it plans what Kafka's own dry run says, and does what it has planned."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from koff.client import resets
from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.client.offset_plan import OffsetPlan
from koff.client.resets import Target, apply_plan, fetch_group, make_plan
from koff.errors import KoffError
from koff.kafkatest import LocalKafka
from tests.clusters import lend_kafka
from tests.kafka_groups import commit, consuming, produce
from tests.kafka_tools import CONSUMER_GROUPS, Workbench
from tests.koff_process import run_koff

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

DOC = (Path(__file__).parents[2] / "docs" / "offsets.md").read_text()
HOUR_MS = 3_600_000
Offsets = dict[tuple[str, int], int]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with lend_kafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def workbench(broker: LocalKafka) -> Iterator[Workbench]:
    with Workbench(broker) as workbench:
        yield workbench


@pytest.fixture(scope="module")
def topic(broker: LocalKafka) -> str:
    """Twenty records an hour apart in partition 0, five of them deleted; ten new ones in 1; 2 is empty."""
    topic = broker.create_topic(partitions=3)
    producer, now_ms = broker.producer(), int(time.time() * 1000)
    for number in range(20):
        producer.produce(topic, b"x", partition=0, timestamp=now_ms - (20 - number) * HOUR_MS + HOUR_MS // 2)
    assert producer.flush(60) == 0
    produce(broker, topic, 10, partition=1)
    broker.delete_before(topic, 0, 5)
    return topic


@pytest.fixture
def group(broker: LocalKafka, topic: str, request: pytest.FixtureRequest) -> str:
    """A group without members that has committed in two of the three partitions."""
    name = f"it's {request.node.name}"
    commit(broker, name, (topic, 0, 8, "state"), (topic, 1, 3))
    return name


def run(broker: LocalKafka, *args: str, code: int = 0) -> CompletedProcess[str]:
    ended = run_koff("offsets", *args, "--brokers", broker.bootstrap)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def read_offsets(csv: str) -> Offsets:
    rows = (line.split(",") for line in csv.splitlines() if line.count(",") == 2)
    return {(topic.strip('"'), int(partition)): int(offset) for topic, partition, offset in rows}


def read_planned(file: Path) -> Offsets:
    rows = json.loads(file.read_text())["partitions"]
    return {(row["topic"], row["partition"]): row["after"]["offset"] for row in rows}


def fetch_commits(broker: LocalKafka, group: str) -> dict[int, tuple[int, str]]:
    """By partition: all that groups of these tests commit is in one topic."""
    conf = OffsetCoordinatorConf(group)
    with GroupCoordinator(ClusterConf(broker.bootstrap), conf) as coordinator:
        return {at.partition: commit for at, commit in coordinator.offsets().items()}


FORMS = {
    "earliest": "--to-earliest",
    "latest": "--to-latest",
    "time={moment}": "--to-datetime {moment}.000",
    "time=2099-01-01T00:00": "--to-datetime 2099-01-01T00:00:00.000",
    "duration=10h": "--by-duration PT10H",
    "by=2": "--shift-by 2",
    "by=-1000": "--shift-by -1000",
    "offset=9": "--to-offset 9",
    "offset=1000": "--to-offset 1000",
    "file={csv}": "--from-file {csv}",
}
SCOPES = {
    "all that is committed": "--all-topics",
    "a topic": "--topic {topic}",
    "two partitions": "--topic {topic}:0,1",
}


@pytest.mark.parametrize(
    ("to", "scope"),
    # `by` needs a commit, which partition 2 lacks: both refuse.
    [(to, scope) for to in FORMS for scope in SCOPES if not (to.startswith("by=") and scope == "a topic")],
)
def test_a_plan_is_what_kafkas_dry_run_says(broker, workbench, topic, group, tmp_path, to, scope):
    csv, file, ago = tmp_path / "offsets.csv", tmp_path / "plan.json", time.time() - 12 * 3600
    csv.write_text(f"{topic},0,7\n{topic},1,99\n")
    values = {"csv": csv, "topic": topic, "moment": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ago))}
    chosen = SCOPES[scope].format(**values).split()
    words = FORMS[to].format(**values).split()
    of_kafka = words if "--from-file" in words else [*chosen, *words]  # the file names the partitions
    reset = (CONSUMER_GROUPS, "--group", group, "--reset-offsets", "--dry-run", "--export")
    said = read_offsets(workbench.run(*reset, *of_kafka))
    of_koff = [] if chosen == ["--all-topics"] else chosen
    run(broker, "plan", group, "--to", to.format(**values), *of_koff, "--file", str(file))
    assert said
    assert read_planned(file) == said


def test_a_plan_is_carried_out_once_and_undone(broker, topic, group, tmp_path):
    file, undo = tmp_path / "plan.json", tmp_path / "undo.json"
    before = fetch_commits(broker, group)
    planned = run(broker, "plan", group, "--to", "offset=9", "--topic", topic, "--file", str(file))
    assert "3 of 3 partitions change, 7 records skipped, 0 read again" in planned.stderr
    assert fetch_commits(broker, group) == before == {0: (8, "state\0"), 1: (3, "")}  # 0: of librdkafka
    event = json.loads(run(broker, "apply", str(file)).stdout)
    assert event["kind"] == "offsets_applied"
    assert event["group"] == group
    assert event["details"]["skipped"] == 7
    assert fetch_commits(broker, group) == {0: (9, ""), 1: (9, ""), 2: (0, "")}
    assert "was carried out before" in run(broker, "apply", str(file), code=5).stderr

    run(broker, "plan", "--undo", str(file), "--file", str(undo))
    run(broker, "apply", str(undo))
    assert fetch_commits(broker, group) == before


def test_members_are_named_and_nothing_is_written(broker, topic, group, tmp_path):
    file, refused = tmp_path / "plan.json", tmp_path / "refused.json"
    run(broker, "plan", group, "--to", "earliest", "--file", str(file))
    with consuming(broker, group, topic, count=19, client_id="my-reader"):
        before = fetch_commits(broker, group)
        ended = run(broker, "plan", group, "--to", "earliest", "--file", str(refused), code=4)
        assert re.search(rf"{topic} +1 +10 +0 +0 +10 +10", ended.stdout)
        assert f"group {group} has members (Stable): stop them first: my-reader@" in ended.stderr
        assert not refused.exists()
        assert "has members" in run(broker, "apply", str(file), code=4).stderr
        assert fetch_commits(broker, group) == before


def test_kafka_refuses_for_a_member_that_joins_at_the_last_moment(broker, topic, group, monkeypatch):
    with Cluster(ClusterConf(broker.bootstrap)).connect() as cluster:
        plan = make_plan(cluster, fetch_group(cluster, group), Target("latest", "latest"), {}, made="now")
        monkeypatch.setattr(resets, "check_unmoved", lambda *_: None)
        with consuming(broker, group, topic, count=10):
            before = fetch_commits(broker, group)
            with pytest.raises(KoffError, match=r"UNKNOWN_MEMBER_ID.*; [01] of 2 offsets are as planned"):
                apply_plan(cluster, plan)
            assert fetch_commits(broker, group) == before


def test_what_has_moved_is_refused(broker, tmp_path):
    file, topic = tmp_path / "plan.json", broker.create_topic()
    group = f"moved-{topic}"
    produce(broker, topic, 10)
    commit(broker, group, (topic, 0, 3))
    run(broker, "plan", group, "--to", "latest", "--file", str(file))
    commit(broker, group, (topic, 0, 4))
    assert (
        f"{topic}/0 has offset 4 now, not that of the plan" in run(broker, "apply", str(file), code=5).stderr
    )
    commit(broker, group, (topic, 0, 3))
    broker.create_topic_again(topic)
    commit(broker, group, (topic, 0, 3))
    assert "was deleted and created again" in run(broker, "apply", str(file), code=5).stderr
    assert fetch_commits(broker, group) == {0: (3, "")}


def test_bad_input_changes_nothing(broker, topic, group, tmp_path):
    file, other = tmp_path / "plan.json", tmp_path / "other.json"
    before = fetch_commits(broker, group)
    run(broker, "plan", group, "--to", "latest", "--file", str(file))
    plan = OffsetPlan.parse_file(file.read_text())
    other.write_text(replace(plan, cluster="another").format_file())
    assert "the plan is for cluster another" in run(broker, "apply", str(other), code=2).stderr
    other.write_text(file.read_text().replace('"offset": 10', '"offset": 1'))
    assert f"{other} was changed after koff wrote it" in run(broker, "apply", str(other), code=2).stderr
    assert "exists" in run(broker, "plan", group, "--to", "latest", "--file", str(file), code=2).stderr
    assert "there is no group no-such" in run(broker, "plan", "no-such", "--to", "latest", code=3).stderr
    refused = run(broker, "plan", group, "--to", "latest", "--topic", "no-such", code=3)
    assert "there is no topic no-such" in refused.stderr
    assert fetch_commits(broker, group) == before


def test_the_example_of_the_docs_runs(more_kafka, tmp_path):
    kafka = more_kafka()
    commit(kafka, "payments", (kafka.create_topic("orders"), 0, 0))
    produce(kafka, "orders", 5)
    commit(kafka, "payments", ("orders", 0, 4))
    commands = re.findall(r"^    koff (.*)$", DOC, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        words = [str(tmp_path / word) if word.endswith(".json") else word for word in shlex.split(command)]
        ended = run_koff(*(kafka.bootstrap if word == "localhost:9092" else word for word in words))
        assert ended.returncode == 0, ended.stderr
        committed = fetch_commits(kafka, "payments")[0][0]
        assert committed == (0 if "apply plan.json" in command else committed)
    assert committed == 4
