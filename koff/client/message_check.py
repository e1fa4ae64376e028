"""Checks messages before the first of them is queued, so that a call with a bad message writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from koff.client.errors import InvalidMessage
from koff.client.message import Message

_MAX_TIMESTAMP_MS = (1 << 63) - 1
_PLAIN = frozenset({bytes, type(None)})
_get_value, _get_key = attrgetter("value"), attrgetter("key")
_get_timestamp_ms, _get_headers = attrgetter("timestamp_ms"), attrgetter("headers")


def is_plain(messages: Sequence[Message]) -> bool:
    """Whether no message has headers or a timestamp. Raises `InvalidMessage` as `check_messages` does."""
    # `map` over the attributes runs in C: a Python call for each message would slow `produce` down.
    try:
        types = {*map(type, map(_get_value, messages)), *map(type, map(_get_key, messages))}
        plain = not any(map(_get_headers, messages)) and set(map(_get_timestamp_ms, messages)) <= {None}
    except (AttributeError, TypeError):  # not a `Message`, or a timestamp that is not hashable
        types, plain = set(), False
    if not (plain and types <= _PLAIN):
        check_messages(messages)
    return plain


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
    # librdkafka takes the timestamp 0 for "now".
    if timestamp_ms is not None and not (
        isinstance(timestamp_ms, int) and 1 <= timestamp_ms <= _MAX_TIMESTAMP_MS
    ):
        return f"its timestamp_ms is {timestamp_ms!r}: use 1 or more, or None for the present time"
    return _find_header_fault(message.headers)


def _find_header_fault(headers: Any) -> str:
    try:
        for name, value in headers:
            name.encode()
            if not isinstance(value, bytes | None):
                return f"its header {name} is of type {type(value).__name__}: use bytes or None"
    except (AttributeError, TypeError, ValueError):  # ValueError: not a pair, or a name that is not UTF-8
        return f"its headers are {headers!r}: use pairs of a text and bytes"
    return ""
