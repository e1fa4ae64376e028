"""A member of a group without a cluster: the test says what it gets, gives up and reads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from koff.client.closing import Closing
from koff.client.message import Message
from koff.client.multicluster import Reader
from koff.errors import KoffError
from koff.kafkatest import wait_until


class Member:
    """The member's librdkafka client. `run` has the thread of the reader carry out steps."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, int]] = []
        self.other_committed = -1
        self.committed_error: KoffError | None = None
        self.commit_error: KafkaError | None = None
        self.stored: list[tuple[int, int]] = []
        self.coordinator_responds = threading.Event()
        self.coordinator_responds.set()
        self._commits_under_way: deque[list[TopicPartition]] = deque()
        self._steps: list[Callable[[], Any]] = []
        self._stepped = threading.Event()

    def become(self, on_commit: Callable[[KafkaError | None, list[TopicPartition]], None]) -> Member:
        """The member with this callback."""
        self._on_commit = on_commit
        return self

    def run(self, *steps: Callable[[], Any]) -> None:
        """Carries out the steps, each in a call of `consume`. A step may return events."""
        self._steps += steps
        self._stepped.set()
        wait_until(lambda: not self._steps, what="the steps")

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any) -> None:
        self.assign = lambda: on_assign(self, [TopicPartition("t", 0)])
        self.revoke = lambda: on_revoke(self, [TopicPartition("t", 0)])

    def consume(self, max_messages: int, timeout_s: float) -> list[Any]:
        self._end_commits()
        self._stepped.wait(timeout_s)
        self._stepped.clear()
        if not self._steps:
            return []
        try:
            return self._steps[0]() or []
        finally:
            del self._steps[0]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """The member reads nothing."""

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "the coordinator holds up the thread that reads"
        self._commits_under_way.append(offsets)

    def _end_commits(self) -> None:
        while self._commits_under_way and self.coordinator_responds.is_set():
            offsets = self._commits_under_way.popleft()
            if self.commit_error is None:
                self.commits += [(each.partition, each.offset) for each in offsets]
            self._on_commit(self.commit_error, offsets)

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += [(each.partition, each.offset) for each in offsets]

    def list_topics(self, *names: str, timeout: float) -> None:
        return None

    def close(self) -> None:
        """Waits for the coordinator, as librdkafka does."""
        self.coordinator_responds.wait(60)
        self._end_commits()


class Coordinator(Closing):
    """The group's coordinator: the offset that another member has committed, or that this one has."""

    def __init__(self, member: Member) -> None:
        self.member = member

    def offsets(self) -> dict[tuple[str, int], tuple[int, str]]:
        if self.member.committed_error is not None:
            raise self.member.committed_error
        offset = max([self.member.other_committed, *(offset for _, offset in self.member.commits)])
        return {("t", 0): (offset, "")}

    def close(self) -> None:
        pass


def put(reader: Reader, *offsets: int) -> None:
    """Has the reader fetch messages of partition 0, once it reads it."""
    (subscription,) = reader._subscriptions

    def find_consumer() -> Any:
        partition = subscription.partitions.get(0)
        return partition and partition.consumer

    consumer = wait_until(find_consumer, what="a consumer")
    messages = [
        confluent_kafka.Message(topic="t", partition=0, offset=offset, value=b"v") for offset in offsets
    ]
    with consumer.feed._changed:
        consumer.buffer.add_messages(messages)
        consumer.feed._changed.notify_all()


def fetched(reader: Reader, count: int) -> list[Message]:
    messages: list[Message] = []

    def enough() -> bool:
        messages.extend(reader.fetch_message(0.1))
        return len(messages) >= count

    wait_until(enough, what="the messages")
    return messages
