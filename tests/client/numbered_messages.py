"""Writers and readers of numbered messages, which know what was acknowledged and what was read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from koff.client import Broker, Message, Mx, MxClosed, MxError, ProduceError, ProducerConf
from koff.errors import ConnectError
from koff.kafkatest import wait_until


@dataclass
class Writer:
    """Writes numbered messages to one partition, a few a call, and keeps account of them."""

    broker: Broker
    topic: str
    partition: int
    acknowledged: list[int] = field(default_factory=list)
    unsure: set[int] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Writer:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)

    def _run(self) -> None:
        producer, number = self.broker.producer(ProducerConf(request_timeout_s=2)), 0
        while not self._over.wait(0.01):
            ids = list(range(number, number + 5))
            number += 5
            try:
                producer.produce(self.topic, self.partition, *(Message(b"%d" % each) for each in ids))
            except ProduceError as error:
                self.acknowledged += [ids[at] for at in error.written]
                self.unsure |= {ids[at] for at in error.unknown}
            except ConnectError:
                pass
            else:
                self.acknowledged += ids


@dataclass
class Reader:
    """Reads a merged stream and keeps what it saw, by partition."""

    mx: Mx
    seen: dict[int, list[Message]] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    def __enter__(self) -> Reader:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.mx.close()
        self._thread.join(60)

    def _run(self) -> None:
        while True:
            try:
                message = self.mx.consume()
            except MxClosed:
                return
            except MxError as error:
                self.errors.append(error)
            else:
                self.seen.setdefault(message.partition, []).append(message)


def account(writer: Writer, seen: list[Message]) -> None:
    ids, offsets = [int(message.value or b"") for message in seen], [message.offset for message in seen]
    assert offsets == sorted(set(offsets)), "a gap is no fault, a repeat is"
    assert offsets == list(range(len(offsets)))
    assert ids == sorted(set(ids)), "each once, in order"
    assert set(writer.acknowledged) <= set(ids)
    assert set(ids) <= set(writer.acknowledged) | writer.unsure


def progress(writers: list[Writer]) -> None:
    """Waits until every partition takes messages again."""
    before = [len(writer.acknowledged) for writer in writers]

    def all_go_on() -> bool:
        return all(len(w.acknowledged) > was + 20 for w, was in zip(writers, before, strict=True))

    wait_until(all_go_on, timeout_s=100, what="acknowledgements in every partition")
