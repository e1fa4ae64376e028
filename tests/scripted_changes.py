"""The rest of the life of scripted_life.py: transactions, what administrators do, what brokers suffer."""

import struct
from collections.abc import Callable, Iterator
from functools import partial

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from koff.kafkatest import wait_until
from koff.kafkatest.node import KafkaNode
from koff.records.placement import group_partition
from tests.kafka_groups import produce
from tests.kafka_tools import CONSUMER_GROUPS, SHARE_GROUPS, STREAMS_GROUPS, UNTOLD, Picture
from tests.scripted_life import MEMBERS_COME_AND_GO, OFFSETS_PARTITIONS, OFFSETS_TOPIC, SIMPLE, Life


def transacting(life: Life, group: str, *offsets: tuple[str, int, int], timeout_ms: int = 60_000) -> Producer:
    """A producer in whose open transaction `group` has committed."""
    producer = life.kafka.producer({"transactional.id": group, "transaction.timeout.ms": timeout_ms})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = life.kafka.consumer(group)
    at = [TopicPartition(*offset) for offset in offsets]
    producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 60)
    consumer.close()
    return producer


def stable(life: Life) -> bool:
    """Whether no partition of __consumer_offsets has an open transaction."""
    partitions = [TopicPartition(OFFSETS_TOPIC, number) for number in range(OFFSETS_PARTITIONS)]
    ends = [
        {at.partition: answer.result(60).offset for at, answer in asked.items()}
        for asked in (
            life.kafka.admin.list_offsets(
                dict.fromkeys(partitions, OffsetSpec.latest()), isolation_level=level
            )
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
    ]
    return ends[0] == ends[1]


def transactions_commit_and_abort(life: Life) -> None:
    transacting(life, "exactly-once", ("orders", 0, 4), ("clicks", 1, 2)).commit_transaction(60)
    transacting(life, "exactly-once", ("orders", 0, 6), ("orders", 1, 1)).commit_transaction(60)
    transacting(life, "exactly-once", ("orders", 0, 9), ("orders", 2, 9)).abort_transaction(60)
    transacting(life, SIMPLE[1], ("orders", 1, 9)).abort_transaction(60)
    wait_until(lambda: stable(life), what="the ends of transactions")
    picture = life.settle()
    assert picture["exactly-once orders/0 committed"] == "6"
    assert picture[f"{SIMPLE[1]} orders/1 committed"] == "1"


def a_transaction_times_out(life: Life) -> None:
    life.commit("timed-out", ("orders", 0, 2))
    hanging = transacting(life, "timed-out", ("orders", 0, 5), timeout_ms=1000)
    wait_until(lambda: stable(life), what="the transaction to time out")
    del hanging
    assert life.settle()["timed-out orders/0 committed"] == "2"


def a_transaction_is_left_open(life: Life) -> None:
    """And behind it another group commits, in the same partition of __consumer_offsets."""
    life.commit("open-ended", ("orders", 0, 2))
    behind = next(group for group in SIMPLE[4:] if home(group) == home("open-ended"))
    before = life.settle()
    life.open = transacting(life, "open-ended", ("orders", 0, 7), timeout_ms=600_000)
    life.commit(behind, ("clicks", 0, 9))
    life.commit(behind, ("clicks", 1, 9))
    after = life.settle()
    life.held_back = {
        at: before.get(at) for at in after if at.startswith(behind) and before.get(at) != after[at]
    }
    assert f"{behind} clicks/1 committed" in life.held_back
    assert after["open-ended orders/0 committed"] == "2"


def the_open_transaction_commits(life: Life) -> None:
    life.open.commit_transaction(60)
    life.open, life.held_back = None, {}
    wait_until(lambda: stable(life), what="the end of the transaction")
    assert life.settle()["open-ended orders/0 committed"] == "7"


def home(group: str) -> int:
    return group_partition(group, OFFSETS_PARTITIONS)


def offsets_are_reset(life: Life) -> None:
    life.leave("streams-a")
    life.settle(streams_a=0)
    reset = ("--reset-offsets", "--execute", "--group")
    life.admin(
        *(CONSUMER_GROUPS, *reset, SIMPLE[4], "--topic", "orders", "--to-earliest"),
        until=lambda picture: picture.get(f"{SIMPLE[4]} orders/1 committed") == "0",
    )
    life.admin(
        *(CONSUMER_GROUPS, *reset, "left-1", "--topic", "clicks:1", "--to-offset", "4"),
        until=lambda picture: picture["left-1 clicks/1 committed"] == "4",
    )
    life.admin(
        *(CONSUMER_GROUPS, *reset, "consumer-b", "--all-topics", "--shift-by", "2"),
        until=lambda picture: picture["consumer-b clicks/1 committed"] != "5",
    )
    life.admin(
        *(SHARE_GROUPS, *reset, "share-b", "--topic", "jobs", "--to-earliest"),
        until=lambda picture: picture["share-b jobs/0 lag"] == "15",
    )
    life.admin(
        *(STREAMS_GROUPS, *reset, "streams-a", "--input-topic", "words", "--to-earliest"),
        until=lambda picture: picture.get("streams-a words/0 committed") == "0",
    )
    life.settle()


def offsets_are_deleted(life: Life) -> None:
    delete = ("--delete-offsets", "--group")
    life.admin(
        *(CONSUMER_GROUPS, *delete, SIMPLE[5], "--topic", "orders"),
        until=lambda picture: f"{SIMPLE[5]} orders/2 committed" not in picture,
    )
    life.admin(
        *(CONSUMER_GROUPS, *delete, "left-1", "--topic", "clicks:0"),
        until=lambda picture: "left-1 clicks/0 committed" not in picture,
    )
    life.admin(
        *(SHARE_GROUPS, *delete, "share-b", "--topic", "jobs"),
        until=lambda picture: "share-b jobs/0 lag" not in picture,
    )
    life.admin(
        *(STREAMS_GROUPS, *delete, "streams-a", "--input-topic", "words"),
        until=lambda picture: "streams-a words/0 committed" not in picture,
    )
    life.settle()


def _has_no_group(group: str, now: Picture) -> bool:
    return f"{group} state" not in now


def groups_are_deleted(life: Life) -> None:
    for tool, group in (
        (CONSUMER_GROUPS, SIMPLE[6]),
        (CONSUMER_GROUPS, "left-2"),
        (CONSUMER_GROUPS, "consumer-b"),
        (SHARE_GROUPS, "share-b"),
        (STREAMS_GROUPS, "streams-a"),
    ):
        life.admin(tool, "--delete", "--group", group, until=partial(_has_no_group, group))
    life.settle()


def records_are_deleted(life: Life) -> None:
    upto = [TopicPartition("trimmed", 0, 6), TopicPartition("orders", 0, 8)]
    for answer in life.kafka.admin.delete_records(upto).values():
        answer.result(60)
    life.settle()


def a_topic_is_deleted(life: Life) -> None:
    """Of groups with and without members; the coordinators delete what was committed to it."""
    life.kafka.admin.delete_topics(["doomed"])["doomed"].result(60)
    wait_until(lambda: " doomed/" not in " ".join(life.settle()), what="commits to go")
    untold = {at.split()[0] for at, value in life.picture.items() if value == UNTOLD}
    assert untold <= {"doomed-classic", "doomed-consumer"}


def a_topic_is_made_again(life: Life) -> None:
    life.kafka.create_topic("doomed", 3)
    produce(life.kafka, "doomed", 4)
    life.commit("doomed-simple", ("doomed", 0, 1))

    def assigned(picture: Picture) -> bool:
        live = [f"doomed-{kind} doomed/{number} " for kind in ("classic", "consumer") for number in range(3)]
        return all(any(at.startswith(row) for at in picture) for row in live)

    wait_until(lambda: assigned(life.settle()), what="members to get the new topic")


def the_broker_restarts(life: Life) -> None:
    life.kafka.restart()
    life.settle(classic_a=1, consumer_a=2, static_consumer=1, share_a=1, java_regex=1)


def the_offsets_log_is_truncated(life: Life) -> None:
    """As it is by an election of a replica that had not got everything."""
    before, _ = lose_commits(life)
    after = life.settle()
    assert facts(after, SIMPLE) == facts(before, SIMPLE)
    assert not any(at.startswith("lost") for at in after)


def the_offsets_log_is_truncated_and_grows_again(life: Life) -> None:
    """Beyond where it was cut, before anyone who reads it may have noticed."""
    _, was = lose_commits(life)
    partition = home(SIMPLE[0])
    for number in range(100):
        life.commit(SIMPLE[0], ("orders", 0, number))
        if end(life, partition) > was + 2:
            break
    assert end(life, partition) > was
    assert not any(at.startswith("lost") for at in life.settle())


def facts(picture: Picture, groups: list[str]) -> Picture:
    return {at: value for at, value in picture.items() if at.split()[0] in groups}


def lose_commits(life: Life) -> tuple[Picture, int]:
    """What was before, and where the log of those commits ended that a partition loses."""
    partition = home(SIMPLE[0])
    names = (f"lost-{number}" for number in range(1000))
    lost = next(name for name in names if home(name) == partition)
    other = next(group for group in SIMPLE[7:] if home(group) == partition)
    before, kept = life.settle(), end(life, partition)
    life.commit(SIMPLE[0], ("orders", 0, 10), ("clicks", 1, 3))
    life.commit(lost, ("orders", 0, 1))
    life.admin(CONSUMER_GROUPS, "--delete", "--group", other, until=lambda now: f"{other} state" not in now)
    life.before_the_cut()
    was = end(life, partition)
    (node,) = life.kafka.nodes
    node.stop()
    cut(node, partition, kept)
    node.start()
    life.kafka.wait_until_up()
    return before, was


def end(life: Life, partition: int) -> int:
    at = TopicPartition(OFFSETS_TOPIC, partition)
    return int(life.kafka.admin.list_offsets({at: OffsetSpec.latest()})[at].result(60).offset)


def cut(node: KafkaNode, partition: int, upto: int) -> None:
    """Takes all from the offset `upto` on out of the log of a broker that is down."""
    folder = node.data / f"{OFFSETS_TOPIC}-{partition}"
    for path in folder.iterdir():
        made_anew = path.suffix in (".index", ".timeindex", ".snapshot")
        if made_anew or (path.suffix == ".log" and int(path.stem) > upto):
            path.unlink()
    for path in folder.glob("*.log"):
        data = path.read_bytes()
        size = next((place for place, first in batches(data) if first >= upto), len(data))
        path.write_bytes(data[:size])


def batches(segment: bytes) -> Iterator[tuple[int, int]]:
    """Where each record batch begins, and its first offset."""
    place = 0
    while place + 12 <= len(segment):
        first, length = struct.unpack_from(">qi", segment, place)
        if length <= 0:
            return
        yield place, first
        place += 12 + length


STEPS: tuple[Callable[[Life], None], ...] = (
    *MEMBERS_COME_AND_GO,
    transactions_commit_and_abort,
    a_transaction_times_out,
    a_transaction_is_left_open,
    the_open_transaction_commits,
    offsets_are_reset,
    offsets_are_deleted,
    groups_are_deleted,
    records_are_deleted,
    a_topic_is_deleted,
    a_topic_is_made_again,
    the_broker_restarts,
    the_offsets_log_is_truncated,
    the_offsets_log_is_truncated_and_grows_again,
)
"""The whole life, in order."""
