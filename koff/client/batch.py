"""Messages of one partition in log order, made into `Message`s only when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import confluent_kafka

from koff.client.message import Message


class Batch(Sequence[Message]):
    """Messages of one partition; keys and values can be had a column at a time, which is much faster."""

    __slots__ = ("_messages", "partition", "topic")

    def __init__(self, topic: str, partition: int, messages: list[Message]) -> None:
        self.topic = topic
        self.partition = partition
        self._messages: list[Message] | None = messages

    @property
    def next_offset(self) -> int:
        """One past the last message's offset."""
        return self._all()[-1].offset + 1

    def keys(self) -> list[bytes | None]:
        """The messages' keys."""
        return [message.key for message in self._all()]

    def values(self) -> list[bytes | None]:
        """The messages' values."""
        return [message.value for message in self._all()]

    def offsets(self) -> list[int]:
        """The messages' offsets."""
        return [message.offset for message in self._all()]

    def _all(self) -> list[Message]:
        assert self._messages is not None
        return self._messages

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...
    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        return self._all()[at]

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self.topic}/{self.partition}>"


class FetchedBatch(Batch):
    """A batch still in librdkafka's hands."""

    __slots__ = ("_raw",)

    def __init__(self, topic: str, partition: int, raw: list[confluent_kafka.Message]) -> None:
        self.topic = topic
        self.partition = partition
        self._raw = raw
        self._messages = None

    @property
    def next_offset(self) -> int:
        """One past the last message's offset."""
        last: Any = self._raw[-1].offset()
        return int(last) + 1

    def keys(self) -> list[bytes | None]:
        """The messages' keys."""
        return super().keys() if self._messages else list(map(confluent_kafka.Message.key, self._raw))

    def values(self) -> list[bytes | None]:
        """The messages' values."""
        return super().values() if self._messages else list(map(confluent_kafka.Message.value, self._raw))

    def offsets(self) -> list[int]:
        """The messages' offsets."""
        of: Any = confluent_kafka.Message.offset
        return list(map(of, self._raw))

    def __len__(self) -> int:
        return len(self._raw)

    def _all(self) -> list[Message]:
        if self._messages is None:
            self._messages = _messages(self.topic, self.partition, self._raw)
        return self._messages


def _messages(topic: str, partition: int, raw: list[Any]) -> list[Message]:
    of = confluent_kafka.Message
    columns: Any = zip(
        map(of.value, raw),
        map(of.key, raw),
        map(of.offset, raw),
        map(of.headers, raw),
        map(of.timestamp, raw),
        strict=True,
    )
    return [
        Message(
            value,
            key,
            topic,
            partition,
            int(offset or 0),
            tuple(headers) if headers else (),
            timestamp_ms if kind else None,
        )
        for value, key, offset, headers, (kind, timestamp_ms) in columns
    ]
