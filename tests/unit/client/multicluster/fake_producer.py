"""A librdkafka producer without a cluster, and the writer that uses it.

The test says when the producer sends and what it reports.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from koff.client.cluster_conf import ClusterConf
from koff.client.multicluster import Writer, WriterConf

NOWHERE = "127.0.0.1:1"


@dataclass
class Given:
    """A message that the writer gave to librdkafka."""

    value: Any
    on_delivery: Callable[[Any, Any], None]


class FakeProducer:
    """Acknowledges messages while `responds`, at most `allowed`. Of the others, `in_flight` are in flight."""

    def __init__(self) -> None:
        self.responds = True
        self.allowed = 1_000_000
        self.in_flight = 1
        self.knows_offsets = True
        self.before_metadata: Callable[[], None] = lambda: None
        self.written: list[Any] = []
        self.given: deque[Given] = deque()
        self.before_report: Callable[[Given], None] = lambda given: None
        self._reports: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.before_metadata()
        partitions = {0: SimpleNamespace(leader=1)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def produce(self, topic: str, *, value: Any, on_delivery: Callable[..., None], **rest: Any) -> None:
        with self._changed:
            self.given.append(Given(value, on_delivery))
            self._changed.notify_all()

    def set_responding(self, responds: bool) -> None:
        with self._changed:
            self.responds = responds
            self._changed.notify_all()

    def fail(self, code: int) -> None:
        """Reports this error for all messages."""
        with self._changed:
            self._report_errors(len(self.given), code)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        with self._changed:
            kept = [] if in_flight else [self.given.popleft() for _ in range(self.in_flight) if self.given]
            self._report_errors(len(self.given), KafkaError._PURGE_QUEUE)
            self.given.extend(kept)

    def _report_errors(self, count: int, code: int) -> None:
        for _ in range(count):
            given = self.given.popleft()
            self._reports.append(partial(given.on_delivery, KafkaError(code), SimpleNamespace()))
        self._changed.notify_all()

    def poll(self, timeout: float) -> int:
        deadline, served = time.monotonic() + timeout, 0
        while True:
            with self._changed:
                while self.responds and self.given and self.allowed:
                    self.allowed -= 1
                    self._reports.append(self._write(self.given.popleft()))
                if not self._reports:
                    left_s = deadline - time.monotonic()
                    if served or left_s <= 0:
                        return served
                    self._changed.wait(left_s)
                    continue
                report = self._reports.popleft()
            report()
            served += 1

    def _write(self, given: Given) -> Callable[[], None]:
        self.written.append(given.value)
        offset = len(self.written) - 1 if self.knows_offsets else None
        report = SimpleNamespace(partition=lambda: 0, offset=lambda: offset)

        def deliver() -> None:
            self.before_report(given)
            given.on_delivery(None, report)

        return deliver

    def __len__(self) -> int:
        return len(self.given) + len(self._reports)


def new_writer(**options: Any) -> Writer:
    return Writer({"a": ClusterConf(NOWHERE)}, WriterConf("t", **options))


class Rescue:
    """Runs a call in a thread: the test fails if the call does not return, and does not hang."""

    def __init__(self, call: Any) -> None:
        self.raised: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.raised = error

    def wait(self) -> BaseException | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.raised
