"""Batches of one partition's messages in log order; a `Message` object is built only when it is looked at."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, overload

import confluent_kafka

from koff.client.message import Message

BATCH_MESSAGES = 300
"""How many messages are read at once. With 10,000, each takes twice the time.

300 fit the CPU caches, and Python's garbage collector does not run before they are gone (it does after 700
new objects, which are two for each message).
"""


class Batch(Sequence[Message]):
    """Messages of one partition. `keys()`, `values()` and `offsets()` return one column of all messages.

    Reading a column is much faster than building the messages. `raw` are confluent-kafka's message objects,
    without `messages`: they become `Message`s of that `cluster` on first use.
    """

    __slots__ = ("_cluster", "_messages", "partition", "raw", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        messages: list[Message] | None = None,
        *,
        raw: Sequence[confluent_kafka.Message] = (),
        cluster: str = "",
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._messages, self.raw, self._cluster = messages, raw, cluster

    @property
    def next_offset(self) -> int:
        """The last message's offset plus one."""
        last: int = self._read_column("offset", -1)[0]
        return last + 1

    def keys(self) -> list[bytes | None]:
        """The messages' keys."""
        return self._read_column("key")

    def values(self) -> list[bytes | None]:
        """The messages' values."""
        return self._read_column("value")

    def offsets(self) -> list[int]:
        """The messages' offsets."""
        return self._read_column("offset")

    def split(self, count: int) -> tuple["Batch", "Batch"]:
        """The first `count` messages, and the rest."""
        return self._select(slice(count)), self._select(slice(count, None))

    def _select(self, part: slice) -> "Batch":
        messages = None if self._messages is None else self._messages[part]
        return Batch(self.topic, self.partition, messages, raw=self.raw[part], cluster=self._cluster)

    def _read_column(self, name: str, start: int = 0) -> list[Any]:
        # A caller may change the key and value of a `Message` in place. Once the messages are built, columns
        # therefore come from them.
        if self._messages is None:
            return list(map(getattr(confluent_kafka.Message, name), self.raw[start:]))
        return list(map(attrgetter(name), self._messages[start:]))

    def _get_messages(self) -> list[Message]:
        if self._messages is None:
            self._messages = _build_messages(self._cluster, self.topic, self.partition, self.raw)
        return self._messages

    def __len__(self) -> int:
        return len(self.raw if self._messages is None else self._messages)

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


def _build_messages(cluster: str, topic: str, partition: int, raw: Sequence[Any]) -> list[Message]:
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
        message.timestamp_ms = timestamp_ms if kind and timestamp_ms >= 0 else None  # `read_timestamp` inline
        message.cluster = cluster
        message.assignment = 0
        message.on_ack = message.on_nack = None
        messages.append(message)
    return messages
