"""Events of a real cluster: a group that is consumed, reset and deleted, with its topic."""

import itertools
import json
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from koff.kafkatest import wait_until
from tests.kafka_groups import commit, produce
from tests.koff_process import monitoring
from tests.unit.serve.events.test_webhook import receiving

pytestmark = pytest.mark.kafka


def test_a_group_that_is_dead_before_koff_starts_is_told_of_once_and_a_restart_tells_nothing(
    kafka, tmp_path: Path
):
    topic, told = kafka.create_topic(), list[dict[str, Any]]()
    produce(kafka, topic, 10)
    for offset in range(2):
        commit(kafka, "dead-1", (topic, 0, offset))
    conf = {
        "state_dir": str(tmp_path / "state"),
        "clusters": [
            {
                "name": "here",
                "brokers": kafka.bootstrap,
                "groups": "^dead-",
                "objectives": [{"groups": "^dead-", "seconds": 5}],
            }
        ],
    }
    file = tmp_path / "koff.yaml"

    def list_opened() -> list[str]:
        """The groups whose incidents the webhook was told of."""
        told[:] = [event for _, _, body in list(receiver.requests) for event in json.loads(body)["events"]]
        return [event["group"] for event in told if event["kind"] == "incident_opened"]

    with receiving(200) as receiver:
        file.write_text(json.dumps(conf | {"webhooks": [{"url": receiver.url, "min_severity": "info"}]}))
        with monitoring(None, "--config", str(file)) as monitor:
            monitor.wait_until_ready()
            ready_s = time.monotonic()
            wait_until(lambda: list_opened() == ["dead-1"], timeout_s=120, what="the webhook")
            print(f"told {time.monotonic() - ready_s:.1f} s after koff was ready")
            opened = next(event for event in told if event["kind"] == "incident_opened")
            assert (opened["severity"], opened["topic"], opened["partition"]) == ("error", topic, 0)
        commit(kafka, "dead-2", (topic, 0, 1))
        with monitoring(None, "--config", str(file)) as monitor:
            monitor.wait_until_ready()
            # When there is news of another group, there would be news of this one, too.
            wait_until(lambda: "dead-2" in list_opened(), timeout_s=120, what="another incident")
            listed = json.loads(monitor.get("/api/v1/incidents?group=dead-1")[1])
    assert list_opened() == ["dead-1", "dead-2"]
    (incident,) = listed["incidents"]
    assert (incident["key"], incident["closed_ms"], incident["worst"]) == (opened["key"], None, "ERR")


def test_events_come_in_the_stream_and_at_the_webhook(kafka, tmp_path: Path):
    topic, group = kafka.create_topic(), "events-group"
    produce(kafka, topic, 10)
    commit(kafka, group, (topic, 0, 8))
    told: list[tuple[str, str]] = []
    names = (f"events-other-{number}" for number in itertools.count())

    def make_appear() -> bool:
        """What is there at koff's first look does not appear."""
        commit(kafka, next(names), (topic, 0, 1))
        return bool(told)

    def read(url: str) -> None:
        with urllib.request.urlopen(f"{url}/api/v1/events?group=events-*", timeout=60) as stream:
            for line in stream:
                if line.startswith(b"data:"):
                    event = json.loads(line.removeprefix(b"data:"))
                    told.append((event["kind"], event["group"]))

    with receiving(200) as receiver:

        def sent_about(group: str) -> list[dict[str, Any]]:
            """On a busy machine there are events of the whole cluster, too."""
            sent = [event for _, _, body in list(receiver.requests) for event in json.loads(body)["events"]]
            return [event for event in sent if event["group"] == group]

        file = tmp_path / "koff.yaml"
        file.write_text(
            json.dumps(  # JSON is YAML, too
                {
                    "clusters": [
                        {
                            "name": "here",
                            "brokers": kafka.bootstrap,
                            "expected_groups": [group, "events-none"],
                            "objectives": [{"groups": ".", "seconds": 3600}],
                        }
                    ],
                    "webhooks": [{"url": receiver.url, "groups": "^events-"}],
                }
            )
        )
        with monitoring(None, "--config", str(file)) as monitor:
            monitor.wait_until_ready()
            expected = monitor.metrics()["koff_expected_group_present"]
            assert expected == {("here", group): 1, ("here", "events-none"): 0}
            reader = threading.Thread(target=read, args=(monitor.url,))
            reader.start()
            wait_until(make_appear, timeout_s=60, every_s=1, what="the first event")
            commit(kafka, group, (topic, 0, 3))
            wait_until(lambda: ("offsets_reset", group) in told, timeout_s=60, what="the reset")
            kafka.admin.delete_consumer_groups([group])[group].result(60)
            wait_until(lambda: ("group_deleted", group) in told, timeout_s=60, what="the deletion")
            wait_until(
                lambda: monitor.metrics()["koff_expected_group_present"][("here", group)] == 0,
                timeout_s=60,
                what="the metric",
            )
            wait_until(lambda: ("expected_group_absent", group) in told, what="the absence")
            wait_until(lambda: len(sent_about(group)) == 2, what="the webhook")
            sent = sent_about(group)
        reader.join(60)  # koff has ended the stream
        assert not reader.is_alive()
    assert [(event["kind"], event["group"]) for event in sent] == [
        ("offsets_reset", group),
        ("expected_group_absent", group),
    ]
    reset = sent[0]
    assert (reset["cluster"], reset["topic"], reset["partition"]) == ("here", topic, 0)
    assert reset["details"] == {"from": 8, "to": 3, "partitions": 1, "offsets": 5}
