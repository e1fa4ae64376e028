"""A machine that allows no more threads: an error of koff, and nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from koff.client import ClusterConf, ConsumerConf, merge
from koff.client.multicluster import Reader, ReaderConf, Writer, WriterConf
from koff.errors import ConnectError
from koff.kafkatest.doubles import MemoryBroker

CLUSTERS = {name: ClusterConf("127.0.0.1:1", connect_timeout_s=0.2) for name in ("east", "west")}


@contextmanager
def allow_threads(count: int) -> Iterator[None]:
    """Lets `count` threads start within the `with` block. Checks that they have ended after it.

    Threads of single calls may start: they are as many as the brokers that are asked.
    """
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_some(thread: threading.Thread) -> None:
        if thread.name in ("koff-call", "koff-probe"):
            start(thread)
            return
        if len(started) == count:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_some)
        yield
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("make", "threads"),
    [
        pytest.param(lambda: Reader(CLUSTERS, ReaderConf("t", partition=0)), 2, id="partitions"),
        pytest.param(lambda: Reader(CLUSTERS, ReaderConf("t", group_id="g")), 2, id="group"),
        pytest.param(lambda: Writer(CLUSTERS, WriterConf("t")), 3, id="writer"),
    ],
)
def test_without_threads_it_is_an_error_of_koff_and_the_started_threads_end(
    make: Callable[[], Any], threads: int
) -> None:
    with allow_threads(threads):
        make().close()
    for count in range(threads):
        with allow_threads(count), pytest.raises(ConnectError, match="threads"):
            make()


def test_streams_that_cannot_be_merged_are_an_error_of_koff_and_the_started_threads_end() -> None:
    for count in range(3):
        with allow_threads(count), MemoryBroker({"t": 3}) as broker:
            consumers = [broker.consumer(ConsumerConf("t", partition)) for partition in range(3)]
            with pytest.raises(ConnectError, match="threads"):
                merge(*consumers)
