"""`koff monitor` on a real Kafka: ready when it may be believed, there after whatever befalls the brokers."""

import urllib.request

import pytest
from confluent_kafka import Producer, TopicPartition

from koff.kafkatest import wait_until
from tests.kafka_groups import commit, consuming, produce
from tests.koff_process import monitoring
from tests.unit.builders import commit as commit_record

pytestmark = pytest.mark.kafka


def write(bootstrap: str, topic: str, *pairs, partition: int = 0) -> None:
    """Writes records as they are, into the offsets topic too."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "__admin_client"})
    for key, value in pairs:
        producer.produce(topic, value, key, partition)
    assert producer.flush(60) == 0


def test_without_an_offsets_topic_it_is_ready_and_takes_the_topic_up_when_it_comes(more_kafka):
    kafka = more_kafka()
    topic = kafka.create_topic()
    produce(kafka, topic, 10)
    with monitoring(kafka.bootstrap, "--cluster-name", 'prod "1"') as monitor:
        monitor.wait_until_ready()
        assert monitor.get("/readyz")[1] == "ready: no __consumer_offsets yet, so no groups\n"
        assert "__consumer_offsets" not in kafka.admin.list_topics(timeout=60).topics
        commit(kafka, "first", (topic, 0, 4))
        wait_until(lambda: monitor.lag("first") == 6, what="the first group's lag")
        monitor.wait_until_ready()
        assert monitor.metrics()["koff_group_lag"] == {('prod "1"', "first", topic, "0"): 6}
    assert [line["event"] for line in monitor.log][-1] == "stopped"


def test_it_serves_health_and_says_404_and_compresses(kafka):
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready()
        assert monitor.get("/healthz") == (200, "ok\n")
        assert monitor.get("/nothing")[0] == 404
        request = urllib.request.Request(monitor.url + "/metrics", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.read()[:2] == b"\x1f\x8b"
        openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
        assert monitor.get("/metrics", **openmetrics)[1].endswith("# EOF\n")


def test_a_commit_a_rebalance_and_a_deletion_show_up_in_the_metrics(kafka):
    topic = kafka.create_topic(partitions=2)
    produce(kafka, topic, 10)
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready()
        cluster = kafka.cluster_id
        with consuming(kafka, f"g-{topic}", topic, count=10):
            state = (cluster, f"g-{topic}", "Stable")
            wait_until(lambda: state in monitor.metrics().get("koff_group_state", {}), what="Stable")
            assert monitor.metrics()["koff_group_members"][cluster, f"g-{topic}"] == 1
            produce(kafka, topic, 5)
            wait_until(lambda: monitor.lag(f"g-{topic}") == 5, what="lag")
        state = (cluster, f"g-{topic}", "Empty")
        wait_until(lambda: state in monitor.metrics().get("koff_group_state", {}), what="Empty")
        kafka.admin.delete_consumer_groups([f"g-{topic}"])[f"g-{topic}"].result(60)
        wait_until(lambda: monitor.lag(f"g-{topic}") is None, what="the group to go")
        assert (cluster, f"g-{topic}") not in monitor.metrics().get("koff_group_members", {})


def test_an_offsets_topic_that_was_deleted_and_made_again_is_read_anew(kafka):
    offsets, topic = kafka.create_topic(partitions=2), kafka.create_topic()
    write(kafka.bootstrap, offsets, *(commit_record(f"old-{n}", topic, 0, 0) for n in range(9)))
    with monitoring(kafka.bootstrap, "--offsets-topic", offsets) as monitor:
        monitor.wait_until_ready()
        assert monitor.lag("old-8") == 0
        kafka.admin.delete_topics([offsets])[offsets].result(60)
        wait_until(lambda: offsets not in kafka.admin.list_topics(timeout=60).topics, what="deletion")
        kafka.create_topic(offsets, partitions=2)
        write(kafka.bootstrap, offsets, commit_record("new", topic, 0, 0))
        wait_until(lambda: monitor.lag("new") == 0, timeout_s=60, what="the new topic's group")
        wait_until(lambda: monitor.lag("old-8") is None, timeout_s=60, what="the old topic's groups to go")
        monitor.wait_until_ready()


def test_it_survives_a_broker_restart_and_says_so(more_kafka):
    kafka = more_kafka()
    topic = kafka.create_topic()
    produce(kafka, topic, 10)
    commit(kafka, "g", (topic, 0, 4))
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready()
        assert monitor.lag("g") == 6
        kafka.kill()
        wait_until(lambda: monitor.get("/readyz")[0] == 503, what="503")
        assert monitor.get("/healthz")[0] == 200
        assert "cannot reach" in monitor.get("/readyz")[1]
        kafka.restart()
        monitor.wait_until_ready(60)
        commit(kafka, "g", (topic, 0, 9))
        wait_until(lambda: monitor.lag("g") == 1, what="the commit after the restart")
        wait_until(lambda: monitor.events("brokers back"), what="brokers back")
    assert monitor.events("brokers lost")


def test_what_an_open_transaction_holds_back_is_counted_and_aged(more_kafka):
    kafka = more_kafka()
    topic = kafka.create_topic()
    commit(kafka, "plain", (topic, 0, 0))
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(60)
    with monitoring(kafka.bootstrap) as monitor:
        monitor.wait_until_ready()

        def held() -> tuple[float, float]:
            metrics = monitor.metrics()
            records, seconds = (
                metrics[f"koff_reader_held_back_{what}"][(kafka.cluster_id,)]
                for what in ("records", "seconds")
            )
            return records, seconds

        assert held() == (0, 0)
        member = kafka.consumer("transactional")
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 5)], member.consumer_group_metadata(), 60
        )
        wait_until(lambda: held()[0] == 1 and held()[1] > 0.5, what="the held back record")
        assert monitor.lag("transactional") is None
        producer.commit_transaction(60)
        wait_until(lambda: held() == (0, 0), what="the end of the transaction")
        wait_until(lambda: monitor.lag("transactional") == 0, what="the commit")
        member.close()
