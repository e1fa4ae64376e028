"""How long calls are tried again: for a time, or so many times."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from koff.client import BrokerConf, ClusterConf, ConsumerConf, OffsetCoordinatorConf, ProducerConf, dial
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import _build_properties
from koff.client.multicluster import ReaderConf, WriterConf
from koff.client.patience import PATIENCE_S, Patience
from koff.client.zookeeper import ConsumerGroupConf
from koff.errors import ConfigError, ConnectError

NOWHERE = "127.0.0.1:1"


def test_a_limit_counts_retries_however_long_they_take():
    patience = Patience(0.0, limit=2)
    assert [patience.allows_retry(1000.0) for _ in range(4)] == [True, True, False, False]


def test_without_a_limit_a_retry_must_begin_in_time():
    assert Patience(60.0).allows_retry(59.0)
    assert not Patience(60.0).allows_retry(60.0)
    assert not Patience(0.0).allows_retry(0.0)


def test_every_call_has_the_same_patience_by_default():
    assert BrokerConf().patience_s == BrokerConf().cluster_conf(NOWHERE).patience_s == PATIENCE_S == 30
    assert ClusterConf(NOWHERE).patience_s == WriterConf("t").give_up_after_s == PATIENCE_S
    assert ReaderConf("t").fail_after_s == ConsumerGroupConf().connect_timeout_s == PATIENCE_S
    limits = {BrokerConf().dial_retry_limit, BrokerConf().leader_retry_limit, ProducerConf().retry_limit}
    assert limits | {ConsumerConf("t").retry_err_limit, OffsetCoordinatorConf("g").retry_err_limit} == {None}
    assert _build_properties(ClusterConf(NOWHERE), ProducerConf())["message.timeout.ms"] == 30_000


def fail_to_dial(conf: BrokerConf) -> None:
    dial(NOWHERE, conf)


def fail_to_commit(conf: BrokerConf) -> None:
    with GroupCoordinator(conf.cluster_conf(NOWHERE), OffsetCoordinatorConf("g")) as coordinator:
        coordinator.commit("t", 0, 1)


@pytest.mark.parametrize("call", [fail_to_dial, fail_to_commit])
def test_a_call_gives_up_when_its_patience_is_over(call: Callable[[BrokerConf], None]):
    began = time.monotonic()
    with pytest.raises(ConnectError, match=NOWHERE):
        call(BrokerConf(patience_s=1.2))
    assert 0.6 < time.monotonic() - began < 20


@pytest.mark.parametrize("addresses", ["", " , ", [], ["host:port"], "http://a:1"])
def test_addresses_that_are_none_are_refused_at_once_in_words_of_the_caller(addresses):
    with pytest.raises(ConfigError) as refused:
        dial(addresses)
    assert "--" not in str(refused.value)
    assert "HOST:PORT" in str(refused.value)
