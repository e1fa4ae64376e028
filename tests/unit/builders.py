"""Records as tests want them: a group commits, a group rebalances, bytes included."""

from collections.abc import Collection
from typing import Any

import numpy as np

from koff.lag import NO_TIMESTAMP, Status
from koff.records import DecodedMessage, OffsetCommit, OffsetCommitValue, decode, encode
from koff.tracker import LaggingRow, Snapshot, State, Tracker
from tests.group_records import TOPIC_ID, Consumer, assign, classic_group_record, classic_member, gone
from tests.unit.records import decoding

Pair = tuple[bytes, bytes | None]


def commit(
    group: str,
    topic: str,
    partition: int,
    offset: int | None,
    *,
    at: int = 1000,
    version: int = 4,
    type: int = 1,
) -> Pair:
    """The commit of `offset` at `at` ms; None deletes."""
    value = None
    if offset is not None:
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=at, version=version)
    return encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value, type=type))


def apply(
    tracker: Tracker, *pairs: tuple[bytes | None, bytes | None], partition: int = 0, **more: Any
) -> None:
    """The tracker applies these records of a partition of the offsets topic."""
    tracker.apply(partition, [key for key, _ in pairs], [value for _, value in pairs], **more)


def save(tracker: Tracker, partition: int = 0) -> State:
    """What the tracker saves of that partition, of which it knows something."""
    state = tracker.save_partition(partition)
    assert state is not None
    return state


def committed(tracker: Tracker) -> dict[tuple[str, str, int], int | None]:
    """The committed offsets that the tracker shows, each row once."""
    found = [((row.group, row.topic, row.partition), row.committed) for row in tracker.take_snapshot().rows()]
    assert len(found) == len(dict(found)), "a row occurs twice"
    return dict(found)


def list_unread(tracker: Tracker, now_ms: int, without: Collection[str] = ()) -> list[LaggingRow]:
    """All rows whose first record is worth reading."""
    return tracker.find_unread_rows(lambda keys: np.arange(len(keys)), now_ms, without=without)


def note_records(tracker: Tracker, now_ms: int, written_ms: int) -> None:
    """All of them are read: the first record is at the committed offset, and was written then."""
    tracker.note_first_records(
        [(row, (row.committed, written_ms, NO_TIMESTAMP)) for row in list_unread(tracker, now_ms)]
    )


def list_statuses(snapshot: Snapshot) -> dict[tuple[str, str, int], Status]:
    """Burrow's status of each row."""
    places = snapshot.partitions
    return {
        (shard.groups[group].name, places.topic[partition], places.partition[partition]): Status(status)
        for shard in snapshot.shards.values()
        for group, partition, status in zip(
            shard.group.tolist(), shard.partition.tolist(), snapshot.statuses(shard).tolist(), strict=True
        )
    }


def classic_group(
    group: str,
    members: dict[str, bytes] | None,
    *,
    protocol_type: str = "consumer",
    generation: int = 7,
    since_ms: int = 1000,
) -> Pair:
    """A classic group with these members (client id to assignment blob); None deletes it.

    It has its state since `since_ms`.
    """
    found = [classic_member(f"{client}-id", client, blob) for client, blob in (members or {}).items()]
    record = classic_group_record(group, generation, found, protocol_type=protocol_type, since_ms=since_ms)
    return encode(record if members is not None else gone(record))


ASSIGNED_T_0_1, NOTHING_ASSIGNED = assign(("t", (0, 1))), assign()


def consumer_group(
    group: str, *, epoch: int, assignment_epoch: int, members: dict[str, tuple[int, int]]
) -> list[Pair]:
    """A KIP-848 group whose members have (epoch, state), all reading partition 3 of topic `TOPIC_ID`."""
    written = [Consumer.own(group, epoch), Consumer.assigned(group, assignment_epoch)]
    for member, (member_epoch, state) in members.items():
        written += [
            Consumer.member(group, member, subscribed_topic_regex=None),
            Consumer.current(group, member, member_epoch, {TOPIC_ID: (3,)}, state=state),
        ]
    return [encode(record) for record in written]


GOLDEN = decoding.GOLDEN / "golden.jsonl"


def said(record: Any) -> DecodedMessage:
    """The record as it comes off the wire."""
    return decode(*encode(record))
