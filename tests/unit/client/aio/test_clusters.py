"""A reader hands out only to a task that is there; a writer takes back what nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from koff import aio
from koff.client import Closed, ClusterConf, Message
from koff.client.closing import Closing
from koff.client.multicluster import ReaderConf, RWMode, WriteError, WriteErrors, WriterConf
from koff.client.multicluster.pending_writes import WriteCall
from koff.kafkatest.doubles import MemoryClusters
from tests.event_loops import cancel, in_loop, until

CONFS = {"east": ClusterConf("east:9092")}


def make_clusters() -> MemoryClusters:
    return MemoryClusters("east:9092", topics={"t": 1})


def write(clusters: MemoryClusters, *values: bytes) -> None:
    clusters["east:9092"].producer().produce("t", 0, *map(Message, values))


@in_loop
async def test_a_group_commits_nothing_of_a_read_that_was_cancelled():
    clusters = make_clusters()
    async with aio.Reader(CONFS, ReaderConf("t", group_id="g"), clusters.reader) as reader:
        for _ in range(3):
            waiting = asyncio.create_task(reader.read_message())
            await until(lambda: reader._under_way)
            await cancel(waiting)
        assert len(reader._under_way) == 1, "the next read shares the thread"
        write(clusters, b"a")
        await until(lambda: not reader._under_way)
    assert clusters["east:9092"].committed == {}
    async with aio.Reader(CONFS, ReaderConf("t", group_id="g"), clusters.reader) as reader:
        assert [message.value for message in await reader.read_message()] == [b"a"]
    assert clusters["east:9092"].committed == {("g", "t", 0): (1, "")}


@in_loop
async def test_a_read_that_is_late_returns_nothing_and_a_reader_that_is_closed_ends_its_iteration():
    clusters = make_clusters()
    async with aio.Reader(CONFS, ReaderConf("t"), clusters.reader) as reader:
        assert await reader.read_message(timeout_s=600) == []
        assert clusters.clock.now_s == 600
        waiting = asyncio.create_task(reader.fetch_message())
        await until(lambda: reader._under_way)
        assert await reader.fetch_message(timeout_s=0.01) == []
        await reader.close()
        with pytest.raises(Closed):
            await waiting
        assert [messages async for messages in reader] == []
        assert [error async for error in reader.errors()] == []


class HeldWriter(Closing):
    """A writer of which `begin_write` can be held up, and whose messages are never acknowledged."""

    def __init__(self) -> None:
        self.held, self.released = threading.Event(), threading.Event()
        self.released.set()
        self.begun, self.given_up = list[WriteCall](), list[str]()

    def begin_write(self, messages: Any, timeout_s: float | None) -> WriteCall:
        self.held.set()
        self.released.wait(60)
        self.begun.append(WriteCall(messages, 0.0, None))
        return self.begun[-1]

    def give_up(self, call: WriteCall, why: str) -> None:
        self.given_up.append(why)
        call.errors = [WriteError(why, in_doubt=True) for _ in call.messages]
        call.done.set_result(None)


@pytest.mark.parametrize("moment", ["before it is sent", "after it was sent"])
@in_loop
async def test_the_messages_of_a_write_that_is_cancelled_are_taken_back(moment):
    core = HeldWriter()
    async with aio.Writer(CONFS, WriterConf("t"), lambda *_: core) as writer:
        if moment == "before it is sent":
            core.released.clear()
        writing = asyncio.create_task(writer.write_messages(Message(b"a")))
        await until(core.held.is_set)
        if moment == "after it was sent":
            await until(lambda: not writer._under_way)
        await cancel(writing)
        core.released.set()
        await until(lambda: core.given_up)
    assert core.given_up == ["the call was cancelled"]


@in_loop
async def test_a_write_that_waits_for_the_turn_of_another_one_is_not_sent_after_its_timeout():
    core = HeldWriter()
    async with aio.Writer(CONFS, WriterConf("t"), lambda *_: core) as writer:
        core.released.clear()
        first = asyncio.create_task(writer.write_messages(Message(b"a")))
        await until(core.held.is_set)
        with pytest.raises(WriteErrors, match="not sent: other calls have waited") as caught:
            await writer.write_messages(Message(b"b"), Message(b"c"), timeout_s=0.01)
        assert (caught.value.failed, caught.value.unknown) == ((0, 1), ())
        core.released.set()
        await until(lambda: core.begun)
        assert len(core.begun) == 1
        await cancel(first)


@in_loop
async def test_writes_that_are_made_together_are_in_the_log_in_their_order_and_an_asynchronous_one_returns():
    clusters = make_clusters()
    for asynchronous in (False, True):
        conf = WriterConf("t", mode=RWMode.PRIMARY_BACKUP, asynchronous=asynchronous)
        async with aio.Writer(CONFS, conf, clusters.writer) as writer:
            await writer.write_messages()
            await asyncio.gather(*(writer.write_messages(Message(b"%d" % number)) for number in range(100)))
            assert writer.stats().messages == 100
    values = [message.value for message in clusters["east:9092"].produced]
    assert values == 2 * [b"%d" % number for number in range(100)]


@in_loop
async def test_the_errors_of_a_write_are_raised_unless_it_is_asynchronous():
    clusters, bad = make_clusters(), Message(b"a", timestamp_ms=-5)
    async with aio.Writer(CONFS, WriterConf("t"), clusters.writer) as writer:
        with pytest.raises(WriteErrors):
            await writer.write_messages(bad)
    async with aio.Writer(CONFS, WriterConf("t", asynchronous=True), clusters.writer) as writer:
        await writer.write_messages(bad)
