"""A member of a group without a cluster: the test says what it fetches, gets and gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from koff.client.closing import Closing
from koff.client.message import Message
from koff.client.multicluster import Reader
from koff.errors import KoffError
from koff.kafkatest import wait_until


class Member:
    """A librdkafka consumer. Each entry of `script` is what one call of `consume` does and returns."""

    def __init__(self) -> None:
        self.script: list[Callable[[], list[Any]]] = []
        self.commits: list[tuple[int, int]] = []
        self.other_committed = -1
        self.committed_error: KoffError | None = None
        self.paused: set[int] = set()
        self.stored: list[tuple[int, int]] = []
        self.coordinator_responds = threading.Event()
        self.coordinator_responds.set()

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any) -> None:
        self.assign = lambda: on_assign(self, [TopicPartition("t", 0)])
        self.revoke = lambda: on_revoke(self, [TopicPartition("t", 0)])

    def consume(self, max_messages: int, timeout_s: float) -> list[Any]:
        return self.script.pop(0)() if self.script else []

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in partitions}

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        self.coordinator_responds.wait(60)
        self.commits += [(each.partition, each.offset) for each in offsets]
        return []

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += [(each.partition, each.offset) for each in offsets]

    def list_topics(self, *names: str, timeout: float) -> None:
        return None

    def close(self) -> None:
        self.coordinator_responds.set()

    def then(self, *steps: Callable[[], list[Any]]) -> None:
        """Adds steps: each second one is the call for the messages behind the first message."""
        self.script += steps

    def records(self, *offsets: int, after: Callable[[], None] = lambda: None) -> Callable[[], list[Any]]:
        def consume() -> list[Any]:
            after()
            return [
                confluent_kafka.Message(topic="t", partition=0, offset=offset, value=b"v")
                for offset in offsets
            ]

        return consume


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


def fetched(reader: Reader, count: int) -> list[Message]:
    messages: list[Message] = []

    def enough() -> bool:
        messages.extend(reader.fetch_message(0.1))
        return len(messages) >= count

    wait_until(enough, what="the messages")
    return messages
