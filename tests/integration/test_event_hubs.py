"""A broker that supports what Azure Event Hubs does, by its documentation."""

import dataclasses
import io
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from koff.proto.requests import Api
from tests.broker_proxy import BrokerProxy
from tests.clusters import lend_kafka
from tests.kafka_groups import commit, consuming, produce
from tests.koff_process import run_koff, run_lag

pytestmark = pytest.mark.kafka
NEWEST = {Api.METADATA: 9, Api.OFFSET_FETCH: 8, Api.FETCH: 12}
UNSUPPORTED = {Api.DESCRIBE_CONFIGS, Api.DESCRIBE_LOG_DIRS, Api.DESCRIBE_CLUSTER, Api.CONSUMER_GROUP_DESCRIBE}


class Older(BrokerProxy):
    """Names older versions than the broker behind it. `versions` are those that were asked for."""

    def __init__(self, bootstrap: str) -> None:
        self.versions: Counter[tuple[int, int]] = Counter()
        super().__init__(bootstrap)

    def _change_response(self, frame: bytes, api: int, version: int) -> bytes:
        self.versions[api, version] += 1
        if api != Api.API_VERSIONS:
            return super()._change_response(frame, api, version)
        kind = load_payload_module(api, version, EntityType.response).ApiVersionsResponse
        told, _ = entity_reader(kind)(frame, 4)
        body = io.BytesIO()
        kept = [self._limit(each) for each in told.api_keys if each.api_key not in UNSUPPORTED]
        entity_writer(kind)(body, dataclasses.replace(told, api_keys=tuple(kept)))
        return frame[:4] + body.getvalue()

    def _limit(self, each: Any) -> Any:
        newest = NEWEST.get(each.api_key, each.max_version)
        return dataclasses.replace(each, max_version=type(each.max_version)(min(each.max_version, newest)))


def test_koff_asks_the_coordinators_with_versions_that_it_has():
    with lend_kafka() as kafka:
        orders = kafka.create_topic("orders", partitions=2)
        for partition in range(2):
            produce(kafka, orders, 10, partition=partition)
        commit(kafka, "simple", (orders, 0, 4), (orders, 1, 9))
        with consuming(kafka, "classic", orders, count=20), closing(Older(kafka.bootstrap)) as older:
            printed = run_lag(older.bootstrap, "--source", "coordinators")
            checked = run_koff("doctor", "--brokers", older.bootstrap)
    lags = {(row["group"], row["partition"]): row["lag"] for row in printed["partitions"]}
    assert lags == {("simple", 0): 6, ("simple", 1): 1, ("classic", 0): 0, ("classic", 1): 0}
    assert older.versions[Api.METADATA, 9]
    assert not any(older.versions[api, newest + 1] for api, newest in NEWEST.items())
    assert "Traceback" not in checked.stderr + checked.stdout
    assert "supports no version of METADATA" not in checked.stdout
