"""The API of `koff monitor` on a real Kafka: the groups of `koff lag`, and Burrow's paths."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from koff.kafkatest import KafkaCluster, wait_until
from tests.kafka_groups import commit, consuming, produce
from tests.koff_process import Monitor, monitoring, run_lag

pytestmark = pytest.mark.kafka

SETTLED = ("committed", "end", "lag", "readable", "lost", "client_id", "client_host")


def get(monitor: Monitor, *names: str, query: str = "") -> Any:
    status, body = monitor.get("/".join(["", *(quote(name, safe="") for name in names)]) + query)
    assert status == 200, body
    return json.loads(body)


def test_the_api_has_the_groups_of_koff_lag_and_burrow_the_same_lags(kafka: KafkaCluster):
    topic = kafka.create_topic(partitions=2)
    live, odd = f"live-{topic}", f"odd/{topic}%2F é?#"
    for partition in range(2):
        produce(kafka, topic, 10, partition=partition)
    commit(kafka, odd, (topic, 0, 4))
    with consuming(kafka, live, topic, count=20, protocol="consumer"), monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready()
        cluster = kafka.cluster_id
        root = ("api", "v1", "clusters", cluster)
        produce(kafka, topic, 5)
        lags = {live: 5, odd: 11}

        def find_lags() -> dict[str, Any]:
            found = get(monitor, "api", "v1", "groups", query=f"?name={topic}&state=Stable&state=Empty")
            return {group["group"]: group["lag"] for group in found["groups"]}

        wait_until(lambda: find_lags() == lags, timeout_s=60, what="the lags in the API")
        printed = run_lag(kafka.bootstrap, "--group", topic)
        for group, lag in lags.items():
            shown = get(monitor, *root, "groups", group)
            (total,) = [each for each in printed["groups"] if each["group"] == group]
            for name in ("type", "state", "members", "partitions", "lag", "unknown", "withheld"):
                assert shown["group"][name] == total[name], name
            rows = {row["partition"]: row for row in printed["partitions"] if row["group"] == group}
            assert {row["partition"]: [row[name] for name in SETTLED] for row in shown["partitions"]} == {
                partition: [row[name] for name in SETTLED] for partition, row in rows.items()
            }
            status = get(monitor, "v3", "kafka", cluster, "consumer", group, "lag")["status"]
            assert status["totallag"] == lag
            assert {row["partition"]: row["current_lag"] for row in status["partitions"]} == {
                partition: row["lag"] for partition, row in rows.items()
            }
        (member,) = get(monitor, *root, "groups", live)["members"]
        assert [(a["topic"], a["partitions"]) for a in member["assigned"]] == [(topic, [0, 1])]
        found = get(monitor, *root, "topics", topic)
        assert (found["partitions"], found["replicas"], found["leaderless"]) == (2, 1, 0)
        assert (found["end_sum"], [reader["group"] for reader in found["groups"]]) == (25, sorted(lags))
        assert get(monitor, "v3", "kafka", cluster, "topic", topic)["offsets"] == [15, 10]
        assert get(monitor, *root)["brokers"] == 1
        # Known once koff has judged the group, and seen how fast records come.
        scale = f"/api/v1/scale?group={live}&member_per_s=10"
        wait_until(lambda: monitor.get(scale)[0] == 200, timeout_s=60, what="the scale of the group")
        wanted = json.loads(monitor.get(scale)[1])
        assert (wanted["members"], wanted["members_wanted"], wanted["most_members"]) == (1, 1, 2)
        assert (wanted["lag"], wanted["curable_lag"], wanted["reason"]) == (5, 5, "keeps_up")
