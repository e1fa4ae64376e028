"""`koff monitor` before a broker whose responses are wrong: it serves no wrong number, and recovers."""

import dataclasses
import io
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from koff.kafkatest import LocalKafka, wait_until
from koff.proto.requests import Api
from tests.broker_proxy import BrokerProxy, send_frame
from tests.clusters import lend_kafka
from tests.kafka_groups import commit, make_lag
from tests.koff_process import monitoring

pytestmark = [pytest.mark.kafka, pytest.mark.thorough, pytest.mark.timeout(600)]
ERRORS = (-1, 1, 3, 5, 6, 7, 12_345, -32_768)
"""Codes of Kafka, and two that it does not have."""
LIES = 40
"""So many wrong responses of each kind are sent."""


class Lying(BrokerProxy):
    """Sends a wrong response in place of each second one, while `kind` says how."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.kind = ""
        self.lies: Counter[int] = Counter()
        self._random = random.Random(7)

    def _send_response(self, client: socket.socket, frame: bytes, api: int, version: int) -> None:
        kind = self.kind
        if not kind or self._random.random() < 0.5:
            send_frame(client, frame)
            return
        self.lies[api] += 1
        size, correlation, body = struct.pack(">i", len(frame)), frame[:4], frame[4:]
        if kind == "random":
            send_frame(client, correlation + self._random.randbytes(len(body)))
        elif kind == "short":
            send_frame(client, frame[: 4 + len(body) // 2])
        elif kind == "another correlation id":
            send_frame(client, struct.pack(">i", 77_777) + body)
        elif kind == "length":
            client.sendall(self._random.choice([b"\x7f\xff\xff\xff", b"\xff" * 4, b"\0\0\0\0"]) + frame)
        elif kind == "error code":
            send_frame(client, change_errors(frame, api, version, self._random.choice(ERRORS)))
        else:
            assert kind == "cut"
            client.sendall(size + frame[: len(frame) // 2])
            client.shutdown(socket.SHUT_RDWR)


def change_errors(frame: bytes, api: int, version: int, number: int) -> bytes:
    """The response with this number in place of each error code."""
    module = load_payload_module(api, version, EntityType.response)
    name = Api(api).name.replace("_", "") + "RESPONSE"
    (kind,) = (value for key, value in vars(module).items() if key.upper() == name)
    head = 4 + (kind.__header_schema__.__version__ > 0)

    def change(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(change, value))
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        fields = {each.name: change(getattr(value, each.name)) for each in dataclasses.fields(value)}
        if "error_code" in fields:
            fields["error_code"] = SimpleNamespace(value=number)
        return dataclasses.replace(value, **fields)

    body = io.BytesIO()
    entity_writer(kind)(body, change(entity_reader(kind)(frame, head)[0]))
    return frame[:head] + body.getvalue()


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with lend_kafka() as kafka:
        yield kafka


@pytest.mark.parametrize("source", ["log", "coordinators"])
@pytest.mark.parametrize("kind", ["random", "short", "another correlation id", "length", "cut", "error code"])
def test_wrong_responses_make_no_wrong_number(kafka: LocalKafka, kind: str, source: str):
    topic = make_lag(kafka, committed=1, records=100)
    with (
        closing(Lying(kafka.bootstrap)) as proxy,
        monitoring(proxy.bootstrap, "--source", source) as monitor,
    ):
        monitor.wait_for_lag(topic, 99)
        proxy.kind, seen = kind, Counter[float | None]()

        def has_lied() -> bool:
            assert monitor.process.poll() is None, monitor.text
            seen.update([monitor.rows().get((topic, topic, 0))])
            return proxy.lies.total() >= LIES and proxy.lies.keys() >= {Api.METADATA, Api.LIST_OFFSETS}

        wait_until(has_lied, timeout_s=240, what="wrong responses", every_s=0.05)
        print(kind, source, {Api(api).name: count for api, count in proxy.lies.items()}, dict(seen))
        assert seen.keys() <= {99.0, None}
        commit(kafka, topic, (topic, 0, 10))
        proxy.kind = ""
        monitor.wait_for_lag(topic, 90)
        assert "Traceback" not in monitor.text
        print(monitor.text)
