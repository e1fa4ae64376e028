"""`koff unused`: what it prints, and that it says nothing of what it does not know."""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from koff.cli import main
from koff.cli import unused as command
from koff.client.cluster_conf import ClusterConf, OffsetSpec, TopicPartition
from koff.view.cluster_view import ClusterFacts, ClusterView, Readiness, TopicFacts
from tests.unit.serve.views import NOW_MS, fill_tracker, take_view

FACTS = ClusterFacts(1, {"a.b": TopicFacts(2, 1), "hung": TopicFacts(1, 1), "t": TopicFacts(1, 1)})


class StubCluster:
    """Topics with five records in each partition, all of them old. Those of `hung` have no leader."""

    def __init__(self, conf: ClusterConf) -> None:
        self.conf, self.brokers = conf, None

    def connect(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fetch_offsets(self, partitions: Collection[TopicPartition], spec: OffsetSpec | int) -> dict[Any, Any]:
        offset = -1 if isinstance(spec, int) else {OffsetSpec.EARLIEST: 0, OffsetSpec.LATEST: 5}[spec]
        return {at: "LEADER_NOT_AVAILABLE" if at.topic == "hung" else offset for at in partitions}


def run(monkeypatch: pytest.MonkeyPatch, view: ClusterView, *args: str) -> Result:
    monkeypatch.setattr("koff.cli.looks.take_views", lambda *_, **__: iter([view, view]))
    monkeypatch.setattr(command, "Cluster", StubCluster)
    monkeypatch.setattr(
        command,
        "fetch_topic_configs",
        lambda brokers, topics, names, timeout_s: {each: {"cleanup.policy": "delete"} for each in topics},
    )
    return CliRunner().invoke(main, ["unused", "--brokers", "a:1,b:2", *args])


@pytest.fixture
def view() -> ClusterView:
    """Group g reads t, and has committed once, long ago."""
    return replace(take_view(fill_tracker()), facts=FACTS)


def test_the_table_has_the_evidence_and_below_it_the_commands(monkeypatch, view):
    ended = run(monkeypatch, view)
    lines = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    days = NOW_MS // 86_400_000
    assert lines[1].startswith(f"empty_group g has no members, and has committed nothing for {days} d")
    assert lines[2] == ("unused_topic a.b no group reads it; its newest record is older than 3 d 10 records")
    assert lines[3].startswith("unused_topic t only idle groups read it: g; ")
    assert lines[-3:] == [
        "kafka-consumer-groups.sh --bootstrap-server a:1,b:2 --group g --delete",
        "kafka-topics.sh --bootstrap-server a:1,b:2 --topic 'a\\.b' --delete",
        "kafka-topics.sh --bootstrap-server a:1,b:2 --topic t --delete",
    ]


def test_a_topic_whose_offsets_are_not_known_is_counted_with_exit_code_4(monkeypatch, view):
    ended = run(monkeypatch, view)
    assert ended.exit_code == 4
    assert "nothing is said of 1 topics: their offsets are not known" in ended.stderr
    assert "hung" not in ended.stdout


def test_nothing_is_said_of_topics_while_groups_are_not_known(monkeypatch, view):
    ended = run(monkeypatch, replace(view, readiness=Readiness(False, "not ready: x")), "--format", "json")
    assert ended.exit_code == 4
    assert "nothing is said of topics: a group that is not known may read them" in ended.stderr
    assert [each["kind"] for each in json.loads(ended.stdout)["unused"]] == ["empty_group"]


def test_filters_choose_what_is_shown_and_not_who_reads(monkeypatch, view):
    ended = run(monkeypatch, view, "--group", "^none$", "--topic", "^t$", "--format", "json")
    (found,) = json.loads(ended.stdout)["unused"]
    assert found["name"] == "t"
    assert found["text"].startswith("only idle groups read it: g; ")


def test_nothing_unused_is_no_error(monkeypatch, view):
    facts = replace(FACTS, topics={})
    ended = run(monkeypatch, replace(view, facts=facts), "--group", "^none$")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "nothing is unused in cluster c" in ended.stderr
