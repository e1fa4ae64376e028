"""The requests of the core to the workers, and the inputs that the workers give to the core.

The core does no I/O. It returns requests; a worker carries each of them out in a thread of its own, and posts
the result as an input. Every result has the id of its request. A request that has no final result by its
deadline is given up: the core sends another one with another id, and ignores a late result.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.proto.buffers import Binary
from koff.tracker import Objective, ShownNames
from koff.view.owners import Owners

TopicPartition = tuple[str, int]
OffsetKind = Literal["end", "stable", "start"] | int
"""End offset, last stable offset, log start offset, or the first offset of that time (ms) or later."""


class Topic(NamedTuple):
    """A topic. `leaderless` partitions have no leader at present. `id` is "" if brokers have no topic ids."""

    id: str
    partitions: int
    leaderless: frozenset[int] = frozenset()


# --- Requests -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Something that the core asks for. It has one result, or several of which the last is `final`."""

    id: int
    thread: ClassVar[str] = ""
    """The thread that carries out all requests of this kind in order; "": each has a thread of its own."""
    metric: ClassVar[str] = ""
    """What metrics call requests of this kind to the cluster; "" for requests to something else."""
    is_to_any_broker: ClassVar[bool] = False
    """Whether any broker could respond: then an error says best why no broker can be reached."""

    def carry_out(self, means: Means) -> "Result | None":
        """Returns the result; None if the request posts its results itself. The only method that does I/O.

        Raises `KoffError`, which becomes `Failed`.
        """
        raise NotImplementedError


class Start(NamedTuple):
    """Where to begin to read a partition. `attempt` is returned with every record.

    `leader_epoch` of the record before that offset, -1 if unknown: with it, the reader notices a log that was
    truncated since.
    """

    offset: int
    attempt: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Read:
    """Read these partitions of an internal topic from now on (read_committed), each from its start.

    A partition that is being read is started again. Results are `Polled`, without an end, or `ReadFailed`.
    """

    topic: str
    starts: Mapping[int, Start]


@dataclass(frozen=True, slots=True)
class StopReading:
    """Read these partitions no more."""

    topic: str
    partitions: frozenset[int]


Command = Request | Read | StopReading
"""What the core gives to the workers."""

# --- Inputs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """A result of the request of that id. `final`: no other result of it follows."""

    id: int
    final: bool = field(default=True, kw_only=True)

    @property
    def failure(self) -> str:
        """Why the cluster has not responded; "" if it has."""
        return ""


@dataclass(frozen=True, slots=True)
class Failed(Result):
    """A request that could not be carried out, and why. `denied`: this user may not."""

    why: str
    denied: bool = False


class Records(NamedTuple):
    """Records of one partition in log order. `next_offset` is the last offset plus one."""

    partition: int
    attempt: int
    keys: Sequence[bytes | None] | Binary
    values: Sequence[bytes | None] | Binary
    offsets: Sequence[int]
    leader_epoch: int = -1


class Lost(NamedTuple):
    """A partition that cannot be read on: its log was truncated, or no longer has the position.

    `gone`: the broker knows no such partition.
    """

    partition: int
    attempt: int
    why: str
    gone: bool = False


class Watermarks(NamedTuple):
    """The high watermark `end` and the last stable offset `stable` that a partition's leader has returned.

    koff sent the request at `requested` or later. The reader of this attempt has compared its position with
    the log of that leader.
    """

    attempt: int
    end: int
    stable: int
    requested: Moment


@dataclass(frozen=True, slots=True)
class Polled:
    """What a reader read since the last time.

    `positions` has (attempt, next offset to read) of partitions that moved past their last record: by
    control records, or records that compaction removed. The reader stopped reading the partitions in `lost`.
    `ends` has what leaders returned with the records, or without.
    """

    topic: str
    records: Sequence[Records] = ()
    positions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    lost: Sequence[Lost] = ()
    ends: Mapping[int, Watermarks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Nothing of a topic can be read at present. The reader has stopped reading all its partitions."""

    topic: str
    why: str
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No broker can be reached at present, and why. The reader goes on trying."""

    why: str


@dataclass(frozen=True, slots=True)
class Display:
    """What is shown of the cluster, the labels that all of it gets besides `cluster`, and which groups are
    expected to be there.

    `group_labels` give labels from the names of groups (`ClusterView.find_labels`).
    `objectives` are the lags in seconds that their owners accept. `runbook` is a template of
    `koff.view.owners`.
    An input too: the configuration may be changed while the monitor runs.
    """

    names: ShownNames = field(default_factory=ShownNames)
    labels: Mapping[str, str] = field(default_factory=dict)
    group_labels: tuple[re.Pattern[str], ...] = ()
    expected_groups: tuple[str, ...] = ()
    objectives: tuple[Objective, ...] = ()
    runbook: str | None = None
    owners: Owners = field(default_factory=Owners)


Input = Result | Polled | ReadFailed | Unreachable | Display
