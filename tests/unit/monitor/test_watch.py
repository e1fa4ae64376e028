"""The configuration of the core, from that of a monitor."""

import pytest

from koff.client import ClusterConf
from koff.monitor.conf import MonitorConf
from koff.monitor.watch import build_core_conf


@pytest.mark.parametrize(("end_interval_s", "start_interval_s"), [(1.0, 6.0), (5.0, 30.0), (60.0, 30.0)])
def test_log_starts_are_sampled_each_half_minute_or_sooner_if_end_offsets_are(
    end_interval_s, start_interval_s
):
    conf = MonitorConf(ClusterConf("b:1"), end_interval_s=end_interval_s)
    assert build_core_conf(conf, "id", saves=False).start_interval_s == start_interval_s
