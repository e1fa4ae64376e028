"""Merged streams of consumers that koff does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from koff.client import Message, MxClosed, MxError, NoData, merge


class OneByOne:
    """A consumer with `consume` only, which returns messages and raises errors in turn."""

    def __init__(self, *results: Message | Exception) -> None:
        self._results: Iterator[Message | Exception] = iter(results)

    def consume(self) -> Message:
        result = next(self._results, NoData("no more"))
        if isinstance(result, Exception):
            raise result
        return result


def test_a_consumer_needs_only_a_method_consume():
    one: Any = OneByOne(Message(b"a", topic="t", partition=3), Message(b"b", topic="t", partition=3))
    with merge(one) as mx:
        assert [message.value for message in mx] == [b"a", b"b"]


def test_an_error_of_such_a_consumer_is_raised_and_the_stream_goes_on():
    one: Any = OneByOne(ValueError("broken"), Message(b"a", topic="t", partition=3))
    with merge(one) as mx:
        with pytest.raises(MxError, match="OneByOne: broken"):
            mx.consume()
        assert mx.consume().value == b"a"
        with pytest.raises(MxClosed):
            mx.consume()
