"""The configuration of a monitor, composed of its parts' own configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from koff.client.cluster_conf import ClusterConf
from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.plan import Source, Way
from koff.monitor.requests import Display
from koff.monitor.zookeeper import ZooKeeperConf
from koff.records.topics import OFFSETS_TOPIC


@dataclass(frozen=True, slots=True)
class MonitorConf:
    """The configuration of a monitor. Without a `cluster_name`, the cluster's id is its name.

    `display` says what is shown of the cluster. With a `state_dir`, the state is saved there, and `start` may
    be "resume". `only` restricts the partitions of the offsets topic. `records_per_s` records a second are
    read to find out how old they are (None: as one look does). With `watches_all`, the offsets of topics that
    no group reads are requested, too; with `log_sizes`, the sizes of logs.
    """

    cluster: ClusterConf
    cluster_name: str = ""
    display: Display = field(default_factory=Display)
    wait: bool = False
    start: Way = "snapshot"
    source: Source = "auto"
    state_dir: Path | None = None
    offsets_topic: str = OFFSETS_TOPIC
    only: ChosenPartitions | None = None
    watches_all: bool = False
    log_sizes: bool = False
    end_interval_s: float = 5.0
    records_per_s: int | None = 50
    zookeeper: ZooKeeperConf = field(default_factory=ZooKeeperConf)
