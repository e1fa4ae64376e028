"""The saved state of a cluster, and which cluster it is of."""

from dataclasses import dataclass
from typing import Literal

from koff.monitor.moment import Moment
from koff.tracker import State

StateFile = Literal["ends", "verdicts"]
"""The files of the state directory that are of no partition."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic that a saved state is of. The state of another topic, or of a grown one, is useless."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """The saved state of a partition as of `position`, the next offset to read.

    `leader_epoch` is that of the last record, -1 if unknown. At `stamp`, the log was known to end there.
    """

    partition: int
    position: int
    leader_epoch: int
    stamp: Moment
    state: State
