"""The sizes of logs, as a broker returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from koff.client import ClusterConf
from koff.client.metadata import Node
from koff.client.offsets.log_sizes import VERSIONS, fetch_log_sizes
from koff.client.wire.brokers import Brokers
from koff.client.wire.connection import UnsupportedVersion
from koff.errors import ConnectError, Denied
from koff.proto.requests import Api
from tests.fake_brokers import FakeBroker, FakeBrokers, written

LOG_DIRS = Api.DESCRIBE_LOG_DIRS
Directory = tuple[ErrorCode, dict[str, list[int]]]
"""An error, and the sizes of partitions by topic."""
TWO: list[Directory] = [(ErrorCode.none, {"t": [5, 2**40], "u": [0]}), (ErrorCode.none, {"t": [7]})]


def respond(*directories: Directory, error: ErrorCode = ErrorCode.none) -> Callable[[int], bytes]:
    def encode(version: int) -> bytes:
        kinds = load_payload_module(LOG_DIRS, version, EntityType.response)
        results = tuple(
            kinds.DescribeLogDirsResult(
                error_code=code, log_dir=f"/data/{number}", topics=tuple(list_topics(kinds, topics))
            )
            for number, (code, topics) in enumerate(directories)
        )
        fields: dict[str, Any] = {"throttle_time": timedelta(0), "results": results}
        if version >= 3:
            fields["error_code"] = error
        return written(kinds.DescribeLogDirsResponse, **fields)

    return encode


def list_topics(kinds: Any, topics: dict[str, list[int]]) -> Iterator[Any]:
    for name, sizes in topics.items():
        yield kinds.DescribeLogDirsTopic(
            name=name,
            partitions=tuple(
                kinds.DescribeLogDirsPartition(
                    partition_index=number, partition_size=size, offset_lag=0, is_future_key=False
                )
                for number, size in enumerate(sizes)
            ),
        )


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBrokers(1) as brokers:
        brokers[1].versions[LOG_DIRS] = VERSIONS
        brokers[1].bodies[LOG_DIRS] = respond(*TWO)
        yield brokers[1]


def fetch(broker: FakeBroker, timeout_s: float = 20.0) -> Any:
    with Brokers(ClusterConf("unused:1")) as brokers:
        return fetch_log_sizes(brokers, Node(1, "127.0.0.1", broker.port), timeout_s=timeout_s)


@pytest.mark.parametrize("version", range(VERSIONS[0], VERSIONS[1] + 1))
def test_the_sizes_of_all_directories_are_summed_by_topic(broker: FakeBroker, version: int) -> None:
    broker.versions[LOG_DIRS] = (1, version)
    assert fetch(broker) == {"t": 5 + 2**40 + 7, "u": 0}
    ((_, sent, request),) = [each for each in broker.requests if each[0] == LOG_DIRS]
    assert (sent, request.topics) == (version, None)


def test_a_broker_that_refuses_says_what_to_grant(broker: FakeBroker) -> None:
    for version, error in ((4, ErrorCode.cluster_authorization_failed), (2, ErrorCode.none)):
        broker.versions[LOG_DIRS] = (1, version)
        broker.bodies[LOG_DIRS] = respond(error=error)
        with pytest.raises(Denied, match="grant DESCRIBE on the cluster"):
            fetch(broker)


def test_of_a_broker_with_a_directory_that_cannot_be_read_no_size_is_known(broker: FakeBroker) -> None:
    broker.bodies[LOG_DIRS] = respond(*TWO, (ErrorCode.kafka_storage_error, {}))
    with pytest.raises(ConnectError, match="cannot read the sizes of all its logs: KAFKA_STORAGE_ERROR"):
        fetch(broker)


@pytest.mark.parametrize(("sizes", "says"), [([9, -1], "negative size"), ([2**52, 2**52], "too large")])
def test_sizes_that_cannot_be_true_are_an_error(broker: FakeBroker, sizes: list[int], says: str) -> None:
    broker.bodies[LOG_DIRS] = respond((ErrorCode.none, {"t": sizes}))
    with pytest.raises(ConnectError, match=says):
        fetch(broker)


def test_a_broker_that_is_too_old_hangs_or_talks_nonsense_is_an_error(broker: FakeBroker) -> None:
    broker.bodies[LOG_DIRS] = lambda version: b"\0\0\0\0\0\0\x7f"
    with pytest.raises(ConnectError):
        fetch(broker)
    broker.hangs.add(LOG_DIRS)
    with pytest.raises(ConnectError):
        fetch(broker, timeout_s=0.2)
    broker.versions[LOG_DIRS] = (0, 1)
    with pytest.raises(UnsupportedVersion):
        fetch(broker)
