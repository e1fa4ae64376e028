"""Groups of every kind live their lives on a real Kafka, and `koff printer` shows each step of them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, groupby
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from koff.kafkatest import LocalKafka, reap, spawn, wait_until
from tests.clusters import lend_kafka
from tests.kafka_groups import CONSOLE_CONSUMER, member, produce, streaming
from tests.koff_process import KOFF, run_koff

pytestmark = pytest.mark.kafka

CONFIG_TOOL = "kafka.admin.ConfigCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SHARE_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STREAMS_TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"

OFFSETS, SHARE_STATE = (), ("--share-state",)  # what the printer is told to read
TOPICS = {OFFSETS: "__consumer_offsets", SHARE_STATE: "__share_group_state"}
FORMATTERS = {  # Kafka's, with the record types that they print; there is none for the types left out
    "OffsetsMessageFormatter": (OFFSETS, {0, 1}),
    "GroupMetadataMessageFormatter": (OFFSETS, {2}),
    "ShareGroupMessageFormatter": (OFFSETS, {10, 11, 12, 13, 14, 15}),
    "group.share.ShareGroupStateMessageFormatter": (SHARE_STATE, {0, 1}),
}
both_topics = pytest.mark.parametrize("topic", TOPICS, ids=TOPICS.values())

# One partition holds the whole story in order; members hear soon of what the group decided.
CONFIG = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
}

Record = dict[str, Any]


class Following:
    """A running `koff printer --format json`; what it prints, as it prints it."""

    def __init__(self, brokers: str, *args: str) -> None:
        self.records: list[Record] = []
        self._process = spawn(
            [*KOFF, "printer", "--brokers", brokers, "--format", "json", *args], stdout=subprocess.PIPE
        )
        self._reading = threading.Thread(target=self._read, name="printer")
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.records.append(json.loads(line))

    def of(self, group: str) -> list[Record]:
        assert self._process.poll() is None, "the printer ended"
        return [record for record in self.records if record["group"] == group]

    def stop(self) -> None:
        """Ends it as Ctrl-C would."""
        self._process.send_signal(signal.SIGINT)
        self._reading.join(60)
        assert reap(self._process, signal_number=signal.SIGINT) == 130


class Life:
    """What the printer shows of a group, in steps; and what Kafka says of its commits, where it was asked."""

    def __init__(self, printer: Following, group: str) -> None:
        self.group = group
        self.kafkas_commits: dict[str, dict[int, int]] = {}
        self._printer = printer
        self._steps: dict[str, list[Record]] = {}

    def step(self, name: str, over: Callable[[list[Record]], object]) -> None:
        """Waits until what is shown since the last step satisfies `over`: this is the step `name`."""
        before = sum(len(records) for records in self._steps.values())

        def shown() -> list[Record]:
            records = self._printer.of(self.group)[before:]
            return records if records and over(records) else []

        self._steps[name] = wait_until(shown, timeout_s=60, what=f"{self.group} to be {name}")

    def __getitem__(self, name: str) -> list[Record]:
        return self._steps[name]


def order(records: list[Record]) -> list[int]:
    """The types in log order, each run of a type once; negative for tombstones."""
    types = (-record["type"] if record["value"] is None else record["type"] for record in records)
    return [number for number, _ in groupby(types)]


def values(records: list[Record], number: int) -> list[Any]:
    """The values of type `number`, in log order, without tombstones."""
    return [record["value"] for record in records if record["type"] == number and record["value"]]


def newest(records: list[Record], number: int) -> dict[str, Any]:
    """The last value of each member of a consumer group for type `number`, by client id."""
    client = {r["member_id"]: r["value"]["client_id"] for r in records if r["type"] == 5 and r["value"]}
    return {client[r["member_id"]]: r["value"] for r in records if r["type"] == number and r["value"]}


def commits(records: list[Record]) -> dict[int, int]:
    """The last committed offset by partition."""
    return {r["partition"]: r["value"]["offset"] for r in records if r["type"] == 1}


def assigned(group: Any) -> dict[str, list[int]]:
    """A classic group's partitions, by client id."""
    return {
        each["client_id"]: numbers(each["assignment"].get("assigned_partitions", ()))
        for each in group["members"]
    }


def held(records: list[Record]) -> dict[str, list[int]]:
    """A consumer group's partitions as its members have them, by client id."""
    return {who: numbers(each["assigned_partitions"]) for who, each in newest(records, 8).items()}


def numbers(topics: Sequence[Any]) -> list[int]:
    return [number for topic in topics for number in topic["partitions"]]


def shared_out(records: list[Record]) -> bool:
    """Whether two members of a classic group have all three partitions between them."""
    groups = values(records, 2)
    partitions = assigned(groups[-1]) if groups else {}
    return len(partitions) == 2 and sorted(chain(*partitions.values())) == [0, 1, 2]


def reconciled(records: list[Record]) -> bool:
    """Whether the three members of a consumer group are where they should go."""
    epochs, now = values(records, 3), newest(records, 8)
    return len(now) == 3 and all(
        each["state"] == 0 and each["member_epoch"] == epochs[-1]["epoch"] for each in now.values()
    )


def counted(records: list[Record]) -> bool:
    """Whether the streams group has committed ten messages of its source and of its repartition topic."""
    slots = {(r["topic"], r["partition"]): r["value"]["offset"] for r in records if r["type"] == 1}
    by_topic: Counter[str] = Counter()
    for (topic, _), offset in slots.items():
        by_topic[topic] += offset
    return by_topic == {"words": 10, "streams-app-by-value-repartition": 10}


def kafkas_commits(kafka: LocalKafka, group: str) -> dict[int, int]:
    request = [ConsumerGroupTopicPartitions(group)]
    answer = kafka.admin.list_consumer_group_offsets(request)[group].result(60)
    return {each.partition: each.offset for each in answer.topic_partitions}


def kafkas_lines(kafka: LocalKafka, topic: str, count: int, formatter: str) -> str:
    """What Kafka's console consumer prints of the topic's one partition; its formatters end no line."""
    return kafka.run_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(count)),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    ).rstrip("\n")


def printed(kafka: LocalKafka, *args: str) -> list[str]:
    """The lines of a printer that starts now and stops at the end."""
    result = run_koff("printer", "--brokers", kafka.bootstrap, "--no-follow", *args)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


@pytest.fixture(scope="module")
def kafka_alone() -> Iterator[LocalKafka]:
    """A Kafka that nobody but these groups uses."""
    with lend_kafka(config=CONFIG) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def printer(kafka_alone) -> Iterator[Following]:
    printer = Following(kafka_alone.bootstrap)
    yield printer
    printer.stop()


@pytest.fixture(scope="module")
def classic(kafka_alone, printer) -> Life:
    """Two classic members; a broker restart; a member of the new protocol comes and goes."""
    life = Life(printer, "orders-app")
    orders = kafka_alone.create_topic("orders", partitions=3)
    with ExitStack() as members:
        first = members.enter_context(member(kafka_alone, life.group, orders, client_id="first"))
        members.enter_context(member(kafka_alone, life.group, orders, client_id="second"))
        life.step("joined", shared_out)
        first.commit(1, 2, 3)
        life.step("committed", lambda records: commits(records) == {0: 1, 1: 2, 2: 3})

        # No clean stop: a broker that stops names no brokers for some milliseconds, and a member that asks
        # just then has forgotten them for good (librdkafka issue 5301).
        kafka_alone.kill()
        kafka_alone.nodes[0].start()
        kafka_alone.wait_until_up()
        first.commit(4, 5, 6)
        life.step("restarted", lambda records: commits(records) == {0: 4, 1: 5, 2: 6})

        with member(kafka_alone, life.group, orders, protocol="consumer", client_id="new"):
            life.step("upgraded", reconciled)
            life.kafkas_commits["upgraded"] = kafkas_commits(kafka_alone, life.group)
        life.step("downgraded", shared_out)
        life.kafkas_commits["downgraded"] = kafkas_commits(kafka_alone, life.group)

        first.commit(7, 8, 9)
        life.step("going on", lambda records: commits(records) == {0: 7, 1: 8, 2: 9})
    life.step("empty", lambda records: not values(records, 2)[-1]["members"])
    return life


@pytest.fixture(scope="module")
def share_state(kafka_alone) -> Iterator[Following]:
    printer = Following(kafka_alone.bootstrap, "--share-state")
    yield printer
    printer.stop()


@pytest.fixture(scope="module")
def share(kafka_alone, printer, share_state) -> Life:
    """A share group whose only member accepts five messages and leaves; and then somebody deletes it."""
    life = Life(printer, "share-app")
    jobs = kafka_alone.create_topic("jobs")
    produce(kafka_alone, jobs, 5)
    at = ("--bootstrap-server", kafka_alone.bootstrap)
    which = ("--entity-type", "groups", "--entity-name", life.group)
    kafka_alone.run_tool(
        CONFIG_TOOL, *at, *which, "--alter", "--add-config", "share.auto.offset.reset=earliest"
    )
    read = kafka_alone.run_tool(
        SHARE_CONSUMER, *at, "--topic", jobs, "--group", life.group, "--max-messages", "5"
    )
    assert read.split() == ["0", "1", "2", "3", "4"]
    life.step("read", lambda records: order(records)[-4:] == [-14, -13, -10, 11])

    kafka_alone.run_tool(SHARE_TOOL, *at, "--delete", "--group", life.group)
    life.step("deleted", lambda records: order(records)[-1] == -11)
    wait_until(lambda: None in [r["value"] for r in share_state.of(life.group)], what="the state to go")
    return life


@pytest.fixture(scope="module")
def streams(kafka_alone, printer) -> Life:
    """A streams group whose only member counts ten messages and leaves; and then somebody deletes it."""
    life = Life(printer, "streams-app")
    words = kafka_alone.create_topic("words", partitions=2)
    for partition in range(2):
        produce(kafka_alone, words, 5, partition=partition)
    with streaming(kafka_alone, life.group, words, count=10):
        life.step("counted", counted)
    life.step("left", lambda records: order(records)[-2:] == [-19, 17])
    kafka_alone.run_tool(
        STREAMS_TOOL, "--bootstrap-server", kafka_alone.bootstrap, "--delete", "--group", life.group
    )
    life.step("deleted", lambda records: order(records)[-1] == -23)
    return life


@pytest.fixture(scope="module")
def everything(printer, classic, share, streams) -> list[Record]:
    """All that the printer has shown of all these lives."""
    return list(printer.records)


def test_a_classic_group_goes_on_after_a_broker_restart(classic):
    assert assigned(values(classic["joined"], 2)[-1]).keys() == {"first", "second"}
    assert order(classic["committed"]) == [1]
    assert all(record["value"] for record in classic["restarted"])
    for group in values(classic["restarted"], 2):  # where the members had to join anew
        assert assigned(group).keys() <= {"first", "second"}


def test_a_group_is_converted_when_a_member_of_the_new_protocol_joins(classic):
    upgraded = classic["upgraded"]
    assert order(upgraded)[:8] == [-2, 5, 3, 7, 6, 8, 5, 3]
    conversion = upgraded[:9]  # the tombstone, and 5, 7, 8 of two members with the group's 3 and 6
    assert order(conversion) == [-2, 5, 3, 7, 6, 8]
    assert len({record["at"]["timestamp"] for record in conversion}) == 1
    for old in values(conversion, 5):
        assert old["client_id"] in ("first", "second")
        spoken = old["classic_member_metadata"]["supported_protocols"]
        assert [protocol["name"] for protocol in spoken] == ["range"]
    before = values(classic["joined"] + classic["restarted"], 2)[-1]
    generation = before["generation"]
    assert [group["epoch"] for group in values(upgraded, 3)] == [generation, generation + 1]
    assert held(conversion) == assigned(before)


def test_old_and_new_members_share_a_converted_group(classic):
    upgraded = classic["upgraded"]
    members = newest(upgraded, 5)
    assert {who for who in members if members[who]["classic_member_metadata"]} == {"first", "second"}
    assert members.keys() == {"first", "second", "new"}
    assert sorted(held(upgraded).values()) == [[0], [1], [2]]
    target = {who: numbers(each["topic_partitions"]) for who, each in newest(upgraded, 7).items()}
    assert target == held(upgraded)
    assert values(upgraded, 6)[-1]["assignment_epoch"] == values(upgraded, 3)[-1]["epoch"]


def test_a_group_is_converted_back_when_the_last_member_of_the_new_protocol_leaves(classic):
    downgraded = classic["downgraded"]
    assert order(downgraded) == [-8, -7, -6, -5, -4, -3, 2]
    conversion = downgraded[:13]  # 8, 7, 5 of three members; 6, 4, 3 and 2 of the group
    assert order(conversion) == [-8, -7, -6, -5, -4, -3, 2]
    assert len({record["at"]["timestamp"] for record in conversion}) == 1
    epoch = values(classic["upgraded"], 3)[-1]["epoch"]
    groups = values(downgraded, 2)
    assert [group["generation"] for group in groups] == [epoch, epoch + 1]
    for group in groups:
        assert assigned(group).keys() == {"first", "second"}


def test_conversions_leave_offsets_alone_and_the_group_goes_on(classic):
    assert not commits(classic["upgraded"] + classic["downgraded"])
    before = commits(classic["restarted"])
    assert classic.kafkas_commits == {"upgraded": before, "downgraded": before}
    assert order(classic["going on"]) == [1]
    last = values(classic["empty"], 2)[-1]
    assert (last["protocol_type"], last["protocol"], last["leader"]) == ("consumer", None, None)


def test_a_share_group_is_shown_from_its_first_member_to_its_last(share):
    read = share["read"]
    assert order(read)[:2] == [10, 11]
    assert set(order(read)) == {10, 11, 12, 13, 14, 15, -14, -13, -10}
    (joined,) = values(read, 10)
    assert (joined["client_id"], joined["subscribed_topic_names"]) == ("console-share-consumer", ["jobs"])
    epochs = [group["epoch"] for group in values(read, 11)]
    assert epochs == sorted(set(epochs))
    assert values(read, 11)[-1]["metadata_hash"] == 0
    assert [named["topic_name"] for named in values(read, 15)[0]["initializing_topics"]] == ["jobs"]
    assert [named["topic_name"] for named in values(read, 15)[-1]["initialized_topics"]] == ["jobs"]
    assert values(read, 14)[-1]["assigned_partitions"][0]["partitions"] == [0]


def test_the_state_of_a_share_group_is_shown_too(share, share_state):
    records = share_state.of(share.group)
    names = [name for name, _ in groupby(record["record"] for record in records)]
    assert names == ["ShareSnapshot", "ShareUpdate", "ShareSnapshot"]
    assert [snapshot["start_offset"] for snapshot in values(records, 0)] == [-1]
    assert records[-1]["value"] is None
    acknowledged: set[int] = set()
    for batch in chain(*(update["state_batches"] for update in values(records, 1))):
        if batch["delivery_state"] == 2:
            acknowledged.update(range(batch["first_offset"], batch["last_offset"] + 1))
    assert acknowledged == {0, 1, 2, 3, 4}
    last = values(records, 1)[-1]
    assert last["start_offset"] + last["delivery_complete_count"] == 5


def test_a_deleted_share_group_takes_its_state_along(share, share_state):
    deleted = share["deleted"]
    assert order(deleted) == [15, -12, -15, -11]
    assert [named["topic_name"] for named in values(deleted, 15)[0]["deleting_topics"]] == ["jobs"]
    (state_gone,) = [r["at"]["timestamp"] for r in share_state.of(share.group) if r["value"] is None]
    began, gone = deleted[0]["at"]["timestamp"], deleted[-1]["at"]["timestamp"]
    assert began <= state_gone <= gone


def test_a_streams_group_is_shown_with_topology_tasks_and_offsets(streams):
    records = streams["counted"]
    assert order(records)[:3] == [19, 23, 17]
    assert set(order(records)) == {1, 17, 19, 20, 21, 22, 23}
    (topology,) = values(records, 23)
    assert [each["subtopology_id"] for each in topology["subtopologies"]] == ["0", "1"]
    source, counting = topology["subtopologies"]
    assert source["source_topics"] == ["words"]
    assert source["repartition_sink_topics"] == ["streams-app-by-value-repartition"]
    assert [each["name"] for each in counting["state_changelog_topics"]] == ["streams-app-counts-changelog"]
    tasks = [{"subtopology_id": each, "partitions": [0, 1]} for each in ("0", "1")]
    assert values(records, 21)[-1]["active_tasks"] == tasks
    now = values(records, 22)
    assert now[0]["active_tasks"] == []  # the repartition topic was yet to be made
    assert [task["partitions"] for task in now[-1]["active_tasks"]] == [[0, 1], [0, 1]]
    assert now[-1]["state"] == 1
    assert values(records, 17)[-1]["validated_topology_epoch"] == topology["epoch"]


def test_a_streams_group_is_left_and_deleted_in_order(streams):
    left = order(streams["left"])
    assert left[-4:] == [-22, -21, -19, 17]
    assert set(left[:-4]) <= {1}  # its last commits
    assert order(streams["deleted"]) == [-1, -20, -17, -23]
    assert len({(r["topic"], r["partition"]) for r in streams["deleted"] if r["type"] == 1}) == 4


def test_every_record_of_these_lives_is_shown_once_and_is_decoded(everything, share_state):
    assert [record["at"]["offset"] for record in everything] == list(range(len(everything)))
    assert {r["type"] for r in everything} == {*range(1, 9), *range(10, 16), 17, *range(19, 24)}
    named = {r["record"] for r in everything} | {r["record"] for r in share_state.records}
    assert not named & {"Unknown", "Undecodable"}


@both_topics
def test_a_printer_that_comes_later_shows_the_same(kafka_alone, everything, share_state, topic):
    followed = share_state.records if topic == SHARE_STATE else everything
    later = printed(kafka_alone, *topic, "--format", "json")
    assert [json.loads(line) for line in later] == followed


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_format_kafka_is_to_the_byte_what_kafkas_own_formatter_prints(kafka_alone, everything, formatter):
    topic, types = FORMATTERS[formatter]
    lines = printed(kafka_alone, *topic, "--format", "kafka")
    ours = [line for line in lines if json.loads(line)["key"]["type"] in types]
    assert ours
    assert kafkas_lines(kafka_alone, TOPICS[topic], len(lines), formatter) == "".join(ours)


@both_topics
def test_raw_records_are_decoded_offline_to_the_same_lines(kafka_alone, everything, topic):
    raw = printed(kafka_alone, *topic, "--format", "raw")
    decoded = subprocess.run(
        [*KOFF, "decode", *topic, "--format", "kafka"],
        input="".join(line + "\n" for line in raw),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert decoded.stdout.splitlines() == printed(kafka_alone, *topic, "--format", "kafka")


def test_the_brokers_log_segments_hold_what_the_printer_shows(kafka_alone, everything):
    folder = kafka_alone.nodes[0].data / f"{TOPICS[OFFSETS]}-0"
    decoded = run_koff("decode", "segments", "--format", "kafka", str(folder))
    assert decoded.returncode == 0, decoded.stderr
    assert decoded.stdout.splitlines() == printed(kafka_alone, "--format", "kafka")
