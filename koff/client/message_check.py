"""Checks messages before the first of them is queued, so that a call with a bad message writes nothing."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from koff.client.errors import InvalidMessage
from koff.client.message import Message

_MAX_TIMESTAMP_MS = (1 << 63) - 1
_PLAIN = frozenset({bytes, type(None)})


class Columns(NamedTuple):
    """The values and keys of messages without headers and timestamps. `keys` None: no message has a key."""

    values: list[bytes | None]
    keys: list[bytes | None] | None

    def build_dicts(self, start: int, end: int) -> list[dict[str, Any]]:
        """The messages from `start` to before `end`, as `produce_batch` takes them."""
        values = self.values[start:end]
        if self.keys is None:
            return [{"value": value} for value in values]
        return [
            {"value": value} if key is None else {"value": value, "key": key}
            for value, key in zip(values, self.keys[start:end], strict=True)
        ]


def read_columns(messages: Sequence[Message]) -> Columns | None:
    """The values and keys of the messages. None if a message has headers or a timestamp.

    Raises `InvalidMessage` as `check_messages` does.
    """
    # One comprehension for each attribute, and comparisons in C: a Python call for each message would slow
    # `produce` down. `count` compares by identity first.
    count = len(messages)
    try:
        values, keys = [message.value for message in messages], [message.key for message in messages]
        has_keys = keys.count(None) < count
        types = {*map(type, values), *(map(type, keys) if has_keys else ())}
        plain = not any([message.headers for message in messages])  # noqa: C419  # twice as fast
        plain = plain and [message.timestamp_ms for message in messages].count(None) == count
    except Exception:  # not a `Message`, or an attribute that cannot be compared
        check_messages(messages)
        raise
    if not (plain and count and types <= _PLAIN):
        check_messages(messages)
    return Columns(values, keys if has_keys else None) if plain else None


def check_messages(messages: Sequence[Message]) -> None:
    """Raises `InvalidMessage`, which names the first message that cannot be written, and why."""
    if not messages:
        raise InvalidMessage("there is no message to produce: pass at least one")
    for index, message in enumerate(messages):
        fault = find_fault(message)
        if fault:
            raise InvalidMessage(f"message {index} of {len(messages)} cannot be written: {fault}")


def find_fault(message: Any) -> str:
    """Why the message cannot be written; "" if it can."""
    if not isinstance(message, Message):
        return f"it is a {type(message).__name__}: pass a Message"
    for name in ("value", "key"):
        if not isinstance(getattr(message, name), bytes | None):
            kind = type(getattr(message, name)).__name__
            return f"its {name} is of type {kind}: use bytes or None"
    timestamp_ms = message.timestamp_ms
    if timestamp_ms is not None and not (
        isinstance(timestamp_ms, int) and 0 <= timestamp_ms <= _MAX_TIMESTAMP_MS
    ):
        return f"its timestamp_ms is {timestamp_ms!r}: use 0 or more, or None for the present time"
    return _find_header_fault(message.headers)


def choose_timestamp(message: Message) -> int:
    """The timestamp for librdkafka, which takes 0 for the present time: it gets 1 for a timestamp of 0."""
    return 0 if message.timestamp_ms is None else max(message.timestamp_ms, 1)


def _find_header_fault(headers: Any) -> str:
    try:
        for name, value in headers:
            name.encode()
            if not isinstance(value, bytes | None):
                return f"its header {name} is of type {type(value).__name__}: use bytes or None"
    except (AttributeError, TypeError, ValueError):  # ValueError: not a pair, or a name that is not UTF-8
        return f"its headers are {headers!r}: use pairs of a text and bytes"
    return ""
