"""How the core of a monitor works: what it requests, how often, and how old an offset may be."""

from dataclasses import dataclass, field

from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.plan import Source, Way
from koff.monitor.requests import Display
from koff.records.topics import OFFSETS_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConf:
    """How the core of a monitor works.

    `cluster_name` is the name of the cluster in views, by default its id. `display` may change while the
    core works.

    `source` is where commits come from: the log, or responses of the coordinators to requests that are sent
    again and again. "auto": from the coordinators while the log may not be read.

    With `watches_all`, the offsets of all topics that are shown are requested, not only of those that groups
    read; but not of the internal topics that koff itself reads.

    With `log_sizes_interval_s`, the sizes of logs are requested that often.

    `limit_intervals`: a lag is served if both its sides were true within so many `end_interval_s`.
    `only` restricts the partitions of the offsets topic. With `saves`, the state is saved. With
    `zookeeper_interval_s`, groups of ZooKeeper are requested that often.

    `records_per_s` is how many records a second are read to find out how old they are; None: as one look
    does (`RecordAges`).

    `tail` is how many of the last offsets of a partition of the offsets topic are read at the start, whatever
    the coordinators say: they show which groups stand still.
    """

    cluster_id: str = ""
    cluster_name: str = ""
    display: Display = field(default_factory=Display)
    start: Way = "snapshot"
    source: Source = "auto"
    saves: bool = False
    offsets_topic: str = OFFSETS_TOPIC
    only: ChosenPartitions | None = None
    watches_all: bool = False
    log_sizes_interval_s: float | None = None
    zookeeper_interval_s: float | None = None
    end_interval_s: float = 5.0
    start_interval_s: float = 30.0
    topics_interval_s: float = 20.0
    """Below the default limit: only the list of topics shows that the offsets topic has grown."""
    limit_intervals: int = 5
    records_per_s: int | None = 50
    tail: int = 0

    @property
    def limit_s(self) -> float:
        """How old the two sides of a served lag may be."""
        return self.limit_intervals * self.end_interval_s
