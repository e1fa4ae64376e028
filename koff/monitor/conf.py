"""The configuration of a monitor, composed of its parts' own configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from koff.client import ClusterConf
from koff.monitor.exact_time_lag import ExactConf
from koff.monitor.sampler import SamplerConf
from koff.monitor.zookeeper_groups import ZooKeeperGroupsConf
from koff.serve import ServeConf
from koff.tail.reader import TailReaderConf

Way = Literal["snapshot", "replay", "resume"]
"""How a monitor starts: from the coordinators' responses, from the log start, or from the saved state."""


@dataclass(frozen=True, slots=True)
class MonitorConf:
    """The configuration of a monitor. Without a `cluster_name`, the cluster's id is its name.

    With a `state_dir`, the state is saved there, and `start` may be "resume".
    """

    cluster: ClusterConf
    cluster_name: str = ""
    wait: bool = False
    start: Way = "snapshot"
    state_dir: Path | None = None
    reader: TailReaderConf = field(default_factory=TailReaderConf)
    sampler: SamplerConf = field(default_factory=SamplerConf)
    exact: ExactConf = field(default_factory=ExactConf)
    serve: ServeConf = field(default_factory=ServeConf)
    zookeeper: ZooKeeperGroupsConf = field(default_factory=ZooKeeperGroupsConf)
