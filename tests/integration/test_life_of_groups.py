"""Groups of every kind live their lives on a real Kafka, and `koff printer` shows each step of them."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Any

import pytest

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

    def wait_for(self, group: str, what: str, is_over: Callable[[list[Record]], bool]) -> None:
        """Waits until what is shown of the group satisfies `is_over`."""

        def is_shown() -> bool:
            assert self._process.poll() is None, "the printer ended"
            records = [record for record in self.records if record["group"] == group]
            return bool(records) and is_over(records)

        wait_until(is_shown, timeout_s=60, what=f"{group} to be {what}")

    def stop(self) -> None:
        """Ends it as Ctrl-C would."""
        self._process.send_signal(signal.SIGINT)
        self._reading.join(60)
        assert reap(self._process, signal_number=signal.SIGINT) == 130


def order(records: list[Record]) -> list[int]:
    """The types in log order, each run of a type once; negative for tombstones."""
    types = (-record["type"] if record["value"] is None else record["type"] for record in records)
    return [number for number, _ in groupby(types)]


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
def classic(kafka_alone, printer):
    """Two classic members commit; a member of the new protocol comes and goes; and then they leave."""
    group, orders = "orders-app", kafka_alone.create_topic("orders", partitions=3)
    with ExitStack() as members:
        first = members.enter_context(member(kafka_alone, group, orders, client_id="first"))
        members.enter_context(member(kafka_alone, group, orders, client_id="second"))
        first.commit(1, 2, 3)
        printer.wait_for(group, "committed", lambda records: 1 in order(records))
        with member(kafka_alone, group, orders, protocol="consumer", client_id="new"):
            printer.wait_for(group, "upgraded", lambda records: {3, 5, 6, 7, 8} <= {*order(records)})
        printer.wait_for(group, "downgraded", lambda records: {-3, -5, -8} <= {*order(records)})
    printer.wait_for(group, "empty", lambda records: (records[-1]["value"] or {}).get("members") == [])


@pytest.fixture(scope="module")
def share_state(kafka_alone) -> Iterator[Following]:
    printer = Following(kafka_alone.bootstrap, "--share-state")
    yield printer
    printer.stop()


@pytest.fixture(scope="module")
def share(kafka_alone, printer, share_state):
    """A share group whose only member accepts five messages and leaves; and then somebody deletes it."""
    group, jobs = "share-app", kafka_alone.create_topic("jobs")
    produce(kafka_alone, jobs, 5)
    at = ("--bootstrap-server", kafka_alone.bootstrap)
    which = ("--entity-type", "groups", "--entity-name", group)
    kafka_alone.run_tool(
        CONFIG_TOOL, *at, *which, "--alter", "--add-config", "share.auto.offset.reset=earliest"
    )
    read = kafka_alone.run_tool(SHARE_CONSUMER, *at, "--topic", jobs, "--group", group, "--max-messages", "5")
    assert read.split() == ["0", "1", "2", "3", "4"]
    printer.wait_for(group, "read", lambda records: order(records)[-4:] == [-14, -13, -10, 11])

    kafka_alone.run_tool(SHARE_TOOL, *at, "--delete", "--group", group)
    printer.wait_for(group, "deleted", lambda records: order(records)[-1] == -11)
    share_state.wait_for(group, "gone", lambda records: None in [record["value"] for record in records])


@pytest.fixture(scope="module")
def streams(kafka_alone, printer):
    """A streams group whose only member counts ten messages and leaves; and then somebody deletes it."""
    group, words = "streams-app", kafka_alone.create_topic("words", partitions=2)
    for partition in range(2):
        produce(kafka_alone, words, 5, partition=partition)
    with streaming(kafka_alone, group, words, count=10):
        printer.wait_for(group, "counted", lambda records: 1 in order(records))
    printer.wait_for(group, "left", lambda records: order(records)[-2:] == [-19, 17])
    kafka_alone.run_tool(
        STREAMS_TOOL, "--bootstrap-server", kafka_alone.bootstrap, "--delete", "--group", group
    )
    printer.wait_for(group, "deleted", lambda records: order(records)[-1] == -23)


@pytest.fixture(scope="module")
def everything(printer, classic, share, streams) -> list[Record]:
    """All that the printer has shown of all these lives."""
    return list(printer.records)


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
