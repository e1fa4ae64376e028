"""The configuration of a monitor: that of its core, and of what it is connected by."""

from dataclasses import dataclass, field
from pathlib import Path

from koff.client.cluster_conf import ClusterConf
from koff.monitor.core_conf import CoreConf
from koff.monitor.zookeeper import ZooKeeperConf


@dataclass(frozen=True, slots=True)
class MonitorConf(CoreConf):
    """The configuration of a monitor. `build_core_conf` sets what of its core follows from the rest.

    With a `state_dir`, the state is saved there, and `start` may be "resume". With `log_sizes`, the sizes of
    logs are requested.
    """

    cluster: ClusterConf
    wait: bool = False
    state_dir: Path | None = None
    log_sizes: bool = False
    zookeeper: ZooKeeperConf = field(default_factory=ZooKeeperConf)
