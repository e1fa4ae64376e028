"""What koff says of real groups, against what Kafka's own tool says of them."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition

from koff.kafkatest import LocalKafka, wait_until
from tests.clusters import lend_kafka
from tests.kafka_groups import commit, consuming, java_consuming, make_lag, produce
from tests.koff_process import describe_groups, monitoring, run_koff, run_lag

pytestmark = pytest.mark.kafka
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def busy() -> Iterator[LocalKafka]:
    """A Kafka with live and dead groups of every protocol that writes offset commits."""
    with lend_kafka() as kafka, ExitStack() as live:
        orders = kafka.create_topic("orders", partitions=3)
        clicks = kafka.create_topic("clicks", partitions=2)
        kafka.create_topic("idle", partitions=1)
        for partition in range(3):
            produce(kafka, orders, 20, partition=partition)
        for partition in range(2):
            produce(kafka, clicks, 10, partition=partition)
        live.enter_context(consuming(kafka, "classic", orders, "idle", count=60, client_id="classic-app"))
        live.enter_context(consuming(kafka, "new-protocol", clicks, "idle", count=20, protocol="consumer"))
        live.enter_context(java_consuming(kafka, "java", orders, count=60))
        with consuming(kafka, "stopped", clicks, count=20):
            pass
        commit(kafka, "simple", (orders, 0, 5), (orders, 2, 20), (clicks, 1, 0))
        commit(kafka, "beyond-the-end", (orders, 1, 1000))
        for partition in range(3):
            produce(kafka, orders, 7, partition=partition)
        produce(kafka, clicks, 4)
        yield kafka


def kafkas_rows(kafka: LocalKafka) -> dict[tuple[str, str, int], dict[str, str]]:
    return describe_groups(
        kafka.run_tool(GROUPS_TOOL, "--bootstrap-server", kafka.bootstrap, "--describe", "--all-groups")
    )


def number(text: str) -> int | None:
    return None if text == "-" else int(text)


def test_koff_lag_and_metrics_agree_with_kafkas_own_tool_on_every_row(busy):
    def is_committed() -> bool:
        rows = kafkas_rows(busy)
        return all(rows.get(("java", "orders", p), {}).get("LAG") == "0" for p in range(3))

    wait_until(is_committed, timeout_s=60, what="the Java consumer's commits")
    expected = kafkas_rows(busy)
    assert {group for group, _, _ in expected} == {
        "classic", "new-protocol", "java", "stopped", "simple", "beyond-the-end",
    }  # fmt: skip
    rows = {(r["group"], r["topic"], r["partition"]): r for r in run_lag(busy.bootstrap)["partitions"]}
    assert rows.keys() == expected.keys()
    with monitoring(busy.bootstrap) as monitor:
        monitor.wait_until_ready()
        metrics = monitor.metrics()
    cluster = busy.cluster_id
    for at, kafkas in expected.items():
        row, lag = rows[at], number(kafkas["LAG"])
        assert row["committed"] == number(kafkas["CURRENT-OFFSET"]), at
        assert row["end"] == number(kafkas["LOG-END-OFFSET"]), at
        assert row["lag"] == (None if lag is None else max(0, lag)), at
        assert (row["client_host"] or "-") == kafkas["HOST"], at
        assert (row["client_id"] or "-") == kafkas["CLIENT-ID"], at
        labels = (cluster, at[0], at[1], str(at[2]))
        assert metrics["koff_group_lag"].get(labels) == row["lag"], at
        assert metrics["koff_group_committed_offset"].get(labels) == row["committed"], at
        assert metrics["koff_partition_end_offset"][cluster, at[1], str(at[2])] == row["end"], at
    assert len(metrics["koff_group_lag"]) == sum(row["lag"] is not None for row in rows.values())


def test_states_and_members_agree_with_kafkas_own_tool(busy):
    printed = busy.run_tool(
        GROUPS_TOOL, "--bootstrap-server", busy.bootstrap, "--describe", "--all-groups", "--state"
    )
    expected = {}
    for line in printed.splitlines():
        cells = line.split()
        if cells and cells[0] != "GROUP":
            state = next(c for c in cells if c in ("Stable", "Empty"))
            expected[cells[0]] = (state, int(cells[-1]))
    groups = run_lag(busy.bootstrap)["groups"]
    assert {g["group"]: (g["state"], g["members"]) for g in groups} == expected


@pytest.mark.parametrize(
    ("group", "above", "code", "says"),
    [
        ("^stopped$", "4", 0, ""),
        ("^stopped$", "3", 3, "stopped"),
        ("^classic$", "1000", 4, "classic"),  # it is assigned idle/0 and never committed there
        ("^classic$", "0", 3, "classic"),
        ("^no-such$", "0", 4, "no group found"),
    ],
)
def test_fail_above_tells_scripts_by_the_exit_code(busy, group, above, code, says):
    result = run_koff("lag", "--brokers", busy.bootstrap, "--group", group, "--fail-above", above)
    assert result.returncode == code
    assert says in result.stderr


def test_koff_leaves_no_group_behind(busy):
    before = {g.group_id for g in busy.admin.list_consumer_groups().result(60).valid}
    with monitoring(busy.bootstrap) as monitor:
        monitor.wait_until_ready()
        run_koff("printer", "--brokers", busy.bootstrap, "--no-follow")
        run_koff("lag", "--brokers", busy.bootstrap)
    assert {g.group_id for g in busy.admin.list_consumer_groups().result(60).valid} == before


def test_the_table_shows_who_reads_what_and_the_csv_has_every_row(busy):
    groups, partitions = run_koff("lag", "--brokers", busy.bootstrap, "--partitions").stdout.split("\n\n")
    assert groups.split()[:4] == ["STATUS", "GROUP", "LAG", "SECONDS"]
    assert "\x1b" not in groups + partitions
    assert "classic-app@/127.0.0.1" in partitions
    assert partitions.splitlines()[0].split() == [
        "STATUS", "GROUP", "TOPIC", "PARTITION", "LAG", "SECONDS", "COMMITTED", "END", "LOST", "MEMBER",
        "WHY",
    ]  # fmt: skip
    lines = run_koff("lag", "--brokers", busy.bootstrap, "--format", "csv").stdout.splitlines()
    assert lines[0] == (
        "cluster,group,state,topic,partition,committed,end,lag,"
        "readable,lost,lag_to_stable,time_lag_s,time_lag_source,at_least,status,reasons,client_id,client_host,"
        "complete,consume_per_s,produce_per_s,catch_up_s,never_catches_up"
    )
    assert len(lines) == 1 + len(kafkas_rows(busy))


def test_what_retention_took_before_it_was_read_is_told_apart(busy):
    topic = make_lag(busy, "overtaken", committed=2)
    busy.admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(60)
    (row,) = run_lag(busy.bootstrap, group="overtaken")["partitions"]
    assert (row["lag"], row["readable"], row["lost"], row["reasons"]) == (8, 4, 4, "below_log_start")


def test_what_an_open_transaction_holds_back_is_told_apart(busy):
    topic = make_lag(busy, "waits", committed=1, records=3)
    producer = busy.producer({"transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(60)
    (row,) = run_lag(busy.bootstrap, group="waits")["partitions"]
    assert (row["lag"], row["lag_to_stable"]) == (3, 2)
    producer.abort_transaction(60)


def test_a_topic_that_was_made_again_does_not_inherit_commits(busy):
    """The coordinator deletes them, too, within a second: a reader of an older copy sees them for ever."""
    topic, copy = busy.create_topic(), busy.create_topic()
    commit(busy, "remembers", (topic, 0, 5))
    raw = run_koff(
        "printer", "--brokers", busy.bootstrap, "--no-follow", "--group", "^remembers$", "--format", "raw"
    )
    producer = busy.producer()
    for line in raw.stdout.splitlines():
        key, value = (None if word == "-" else bytes.fromhex(word) for word in line.split())
        producer.produce(copy, value, key)
    assert producer.flush(60) == 0
    busy.admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in busy.admin.list_topics(timeout=60).topics, what="deletion")

    def seen() -> list[tuple[int | None, str]]:
        rows = run_lag(busy.bootstrap, "--offsets-topic", copy)["partitions"]
        return [(row["lag"], row["reasons"]) for row in rows]

    assert seen() == [(None, "topic_gone")]
    busy.create_topic(topic)
    assert seen() == [(None, "topic_recreated")]
