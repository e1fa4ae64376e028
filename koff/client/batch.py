"""Batches of one partition's messages in log order; a `Message` object is built only when it is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, overload

import confluent_kafka

from koff.client.message import Message

_DRAINED_MESSAGES = 200
"""So many messages fit the CPU caches together with what they are built from."""


class Batch(Sequence[Message]):
    """Messages of one partition. `keys()`, `values()` and `offsets()` return one column of all messages.

    Reading a column is much faster than building the messages.
    """

    __slots__ = ("_messages", "partition", "topic")

    def __init__(self, topic: str, partition: int, messages: list[Message]) -> None:
        self.topic = topic
        self.partition = partition
        self._messages: list[Message] | None = messages

    @property
    def next_offset(self) -> int:
        """The last message's offset plus one."""
        return self._get_messages()[-1].offset + 1

    def keys(self) -> list[bytes | None]:
        """The messages' keys."""
        return [message.key for message in self._get_messages()]

    def values(self) -> list[bytes | None]:
        """The messages' values."""
        return [message.value for message in self._get_messages()]

    def offsets(self) -> list[int]:
        """The messages' offsets."""
        return [message.offset for message in self._get_messages()]

    def drain(self) -> Iterator[Message]:
        """The messages in turn."""
        return chain.from_iterable(self.drain_pieces())

    def drain_pieces(self) -> Iterator[list[Message]]:
        """The messages as lists of some messages each."""
        return iter([self._get_messages()])

    def _get_messages(self) -> list[Message]:
        assert self._messages is not None
        return self._messages

    def __len__(self) -> int:
        return len(self._get_messages())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._get_messages())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._get_messages()[index]

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self.topic}/{self.partition}>"


class FetchedBatch(Batch):
    """A batch of confluent-kafka's message objects, which become `Message`s on first use."""

    __slots__ = ("_cluster", "_raw")

    def __init__(
        self, topic: str, partition: int, raw: list[confluent_kafka.Message], cluster: str = ""
    ) -> None:
        self._cluster = cluster
        self.topic = topic
        self.partition = partition
        self._raw = raw
        self._messages = None

    @property
    def next_offset(self) -> int:
        """The last message's offset plus one."""
        last: Any = self._raw[-1].offset()
        return int(last) + 1

    # A caller may change the key and value of a `Message` in place. Once the messages are built, both
    # columns therefore come from them and not from `_raw`.

    def keys(self) -> list[bytes | None]:
        """The messages' keys."""
        return super().keys() if self._messages else list(map(confluent_kafka.Message.key, self._raw))

    def values(self) -> list[bytes | None]:
        """The messages' values."""
        return super().values() if self._messages else list(map(confluent_kafka.Message.value, self._raw))

    def offsets(self) -> list[int]:
        """The messages' offsets."""
        # `Any`: the stubs type the offset as optional, but a fetched message always has an offset.
        read_offset: Any = confluent_kafka.Message.offset
        return list(map(read_offset, self._raw))

    def __len__(self) -> int:
        return len(self._raw)

    def drain_pieces(self) -> Iterator[list[Message]]:
        """The messages, built some at a time, which is faster. Only for a batch that nobody else has."""
        raw, count = self._raw, _DRAINED_MESSAGES
        return (
            _build_messages(self._cluster, self.topic, self.partition, raw[start : start + count])
            for start in range(0, len(raw), count)
        )

    def _get_messages(self) -> list[Message]:
        if self._messages is None:
            self._messages = _build_messages(self._cluster, self.topic, self.partition, self._raw)
        return self._messages


def _build_messages(cluster: str, topic: str, partition: int, raw: list[Any]) -> list[Message]:
    # `map` over the unbound C methods is faster than a method call on each message.
    fetched = confluent_kafka.Message
    columns: Any = zip(
        map(fetched.value, raw),
        map(fetched.key, raw),
        map(fetched.offset, raw),
        map(fetched.headers, raw),
        map(fetched.timestamp, raw),
        strict=True,
    )
    messages, make_message = [], Message.__new__
    # Without `__init__`, which takes twice as long: a call with eleven arguments for each message.
    for value, key, offset, headers, (kind, timestamp_ms) in columns:
        message = make_message(Message)
        message.value = value
        message.key = key
        message.topic = topic
        message.partition = partition
        message.offset = offset
        message.headers = tuple(headers) if headers else ()
        message.timestamp_ms = timestamp_ms if kind else None  # kind 0: the message has no timestamp
        message.cluster = cluster
        message.assignment = 0
        message.on_ack = message.on_nack = None
        messages.append(message)
    return messages
