"""The configuration of the core, from that of a monitor; and looks at clusters that do not respond."""

import time
from dataclasses import replace

import pytest

from koff.client import ClusterConf
from koff.errors import ConnectError, NoResponse
from koff.monitor.conf import MonitorConf
from koff.monitor.watch import build_core_conf, take_views
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers


@pytest.mark.parametrize(("end_interval_s", "start_interval_s"), [(1.0, 6.0), (5.0, 30.0), (60.0, 30.0)])
def test_log_starts_are_sampled_each_half_minute_or_sooner_if_end_offsets_are(
    end_interval_s, start_interval_s
):
    conf = MonitorConf(ClusterConf("b:1"), end_interval_s=end_interval_s)
    assert build_core_conf(conf, "id", saves=False).start_interval_s == start_interval_s


def test_a_look_waits_for_a_cluster_that_is_too_busy_to_respond_as_long_as_it_may():
    with FakeBrokers(1) as brokers:
        brokers[1].hangs.add(Api.METADATA)
        conf = MonitorConf(replace(brokers.conf, connect_timeout_s=1.0))
        began_s = time.monotonic()
        with pytest.raises(NoResponse):
            next(take_views(conf, interval_s=1.0, timeout_s=3.5))
        assert time.monotonic() - began_s >= 3.5
        assert brokers[1].count(Api.METADATA) > 1


def test_a_look_at_a_cluster_that_refuses_ends_at_once():
    with FakeBrokers(1) as brokers:
        conf = MonitorConf(brokers.conf)
    with pytest.raises(ConnectError, match="Connection refused"):
        next(take_views(conf, interval_s=1.0, timeout_s=600.0))
