"""The requests of the core to the workers, and the inputs that the workers give to the core.

The core does no I/O. It returns requests; a worker carries each of them out in a thread of its own, and posts
the result as an input. Every result has the id of its request. A request that has no final result by its
deadline is given up: the core sends another one with another id, and ignores a late result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from koff.lag import NO_TIMESTAMP
from koff.proto.buffers import Binary
from koff.tracker import Commits, Described, Group, Objective, ShareLag, ShownNames, State
from koff.view.cluster_view import ClusterFacts

TopicPartition = tuple[str, int]
OffsetKind = Literal["end", "stable", "start"] | int
"""End offset, last stable offset, log start offset, or the first offset of that time (ms) or later."""


class Moment(NamedTuple):
    """A moment by two clocks: `at_s` never steps, and counts from `boot`; `wall_ms` is since 1970, may step.

    `boot` names the start of the machine. Two `at_s` of different boots cannot be compared.
    """

    at_s: float
    wall_ms: int
    boot: str = ""


# --- Requests -------------------------------------------------------------------------------------------

COORDINATOR_PATIENCE_S = 5.0
"""How long a coordinator may take: the groups of the others wait for it, if they are requested together."""


@dataclass(frozen=True, slots=True)
class FetchTopics:
    """All topics of the cluster, with their ids. Answered by `TopicsFetched`.

    Brokers are asked by name about the topics of `wanted` that the list lacks: koff may not DESCRIBE them, or
    they do not exist.
    """

    id: int
    wanted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """One offset of each of these partitions. Answered by one `OffsetsFetched` for each broker."""

    id: int
    kind: OffsetKind
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class FetchTopicConfigs:
    """The settings of these names, of each topic. Answered by `TopicConfigsFetched`."""

    id: int
    topics: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FetchGroups:
    """All groups and their committed offsets. Answered by one `GroupsFetched` for each coordinator.

    Only groups of `partitions` of the offsets topic, which has `partition_count`. `together`: all are
    asked, and there is one result. A coordinator may have groups of partitions that it does not lead.
    `empty` are partitions without records. `known` are groups that koff knows: coordinators say by name why
    they do not list one of these. A coordinator that does not respond for `patience_s` is left out.
    """

    id: int
    partitions: frozenset[int]
    partition_count: int
    together: bool = False
    empty: frozenset[int] = frozenset()
    known: frozenset[str] = frozenset()
    patience_s: float = COORDINATOR_PATIENCE_S


@dataclass(frozen=True, slots=True)
class FetchShareLags:
    """The lags of all share groups. Answered by one `ShareLagsFetched` for each coordinator.

    `partitions` are all partitions of the offsets topic, or those whose coordinators are to be asked.
    """

    id: int
    partitions: frozenset[int]
    partition_count: int


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

    A partition that is being read is started again. Answered by `Polled`, without an end, or `ReadFailed`.
    """

    topic: str
    starts: Mapping[int, Start]


@dataclass(frozen=True, slots=True)
class StopReading:
    """Read these partitions no more."""

    topic: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read a partition of an internal topic from its log start up to offset `until` (read_committed).

    Answered by one or several `HistoryRead`.
    """

    id: int
    topic: str
    partition: int
    until: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic that a saved state is of. The state of another topic, or of a grown one, is useless."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Load:
    """All that was saved of that topic. Answered by `Loaded`."""

    id: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Save:
    """Write the state of a partition of the offsets topic as of `position`. Answered by `Done`."""

    id: int
    origin: Origin
    partition: int
    position: int
    leader_epoch: int
    stamp: Moment
    state: State


@dataclass(frozen=True, slots=True)
class SaveIndex:
    """Write, by partition, a position and when the log was last known to end there. Answered by `Done`.

    So the file of a partition that did not change need not be written again.
    """

    id: int
    origin: Origin
    positions: Mapping[int, tuple[int, Moment]]
    stamp: Moment


StateFile = Literal["ends", "verdicts"]
"""The files of the state directory that are of no partition."""


@dataclass(frozen=True, slots=True)
class SaveFile:
    """Write the history of end offsets, or what the verdicts depend on. Answered by `Done`."""

    id: int
    name: StateFile
    origin: Origin
    stamp: Moment
    state: State


@dataclass(frozen=True, slots=True)
class ForgetSaved:
    """Remove the files of partitions whose log is not what it was. Answered by `Done`."""

    id: int
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class FetchLogSizes:
    """How many bytes the logs have on each broker. Answered by one `LogSizesFetched` for each broker."""

    id: int


@dataclass(frozen=True, slots=True)
class FetchStoredGroups:
    """All groups of ZooKeeper. Answered by `StoredGroupsFetched`."""

    id: int


class RecordPlace(NamedTuple):
    """An offset of a topic partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReadFirstRecords:
    """The first record at or after each of these places. Answered by `FirstRecordsRead`."""

    id: int
    places: frozenset[RecordPlace]


Answered = (
    FetchTopics
    | FetchOffsets
    | FetchTopicConfigs
    | FetchGroups
    | FetchShareLags
    | ReadHistory
    | Load
    | Save
    | SaveIndex
    | SaveFile
    | ForgetSaved
    | FetchLogSizes
    | FetchStoredGroups
    | ReadFirstRecords
)
"""The requests that have an id, and a final result."""
Request = Answered | Read | StopReading


# --- Inputs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that could not be carried out, and why. `denied`: this user may not."""

    id: int
    why: str
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A request without a result was carried out.

    `is_emptied`: before that, the folder for saved state was removed, with all that had been saved.
    """

    id: int
    is_emptied: bool = False


class Topic(NamedTuple):
    """A topic. `leaderless` partitions have no leader at present. `id` is "" if brokers have no topic ids."""

    id: str
    partitions: int
    leaderless: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicsFetched:
    """All topics that this user may describe, by name."""

    id: int
    topics: Mapping[str, Topic]
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    """The same and more, as one broker lists it, for metrics. It also has the wanted topics that this user
    may not describe."""


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """Some of the offsets of a request, or why they are unknown. -1: no record is that late.

    `final` is set in the last result of a request; partitions that are in none of its results are unknown.
    """

    id: int
    offsets: Mapping[TopicPartition, int | str]
    final: bool


@dataclass(frozen=True, slots=True)
class TopicConfigsFetched:
    """The answer to `FetchTopicConfigs`: by topic, its settings, or why they are unknown."""

    id: int
    configs: Mapping[str, Mapping[str, str] | str]


@dataclass(frozen=True, slots=True)
class GroupsFetched:
    """What some of the coordinators answered. Nothing is known of the groups in `failed` (name to reason).

    A known group that is neither in `groups` nor in `failed` may exist all the same: see `FetchGroups`.
    `partitions` of the offsets topic are those that it is about; None: all of the request. `final` is set in
    the last result of a request. `incomplete` has, by partition, the reason why groups of it may be missing.
    `topic_ids` maps names to ids. `elsewhere` are groups that a coordinator has, or may have, although it
    does not lead the partition that their names belong to, or although that partition is empty. The brokers
    may use an earlier partition count.
    """

    id: int
    commits: Commits
    groups: Mapping[str, Described]
    failed: Mapping[str, str] = field(default_factory=dict)
    incomplete: Mapping[int, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    partitions: frozenset[int] | None = None
    final: bool = True
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareLagsFetched:
    """The lags of share groups, from the coordinators of these `partitions`.

    Groups that are missing are unknown. Of the groups in `partial`, only some partitions are known. `final`
    is set in the last result of a request. `why` is an error, if lags are missing because of one.
    """

    id: int
    lags: Mapping[str, Sequence[ShareLag]]
    partitions: frozenset[int]
    partial: frozenset[str] = frozenset()
    final: bool = True
    why: str = ""


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

    koff sent the request at `asked` or later. The reader of this attempt has compared its position with the
    log of that leader.
    """

    attempt: int
    end: int
    stable: int
    asked: Moment


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
class HistoryRead:
    """Some records of `ReadHistory`, in log order. `final`: the reader has reached `until`."""

    id: int
    keys: Sequence[bytes | None] | Binary
    values: Sequence[bytes | None] | Binary
    offsets: Sequence[int]
    position: int
    final: bool


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


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was saved: of each partition its state, or why that is useless; and the history of end offsets.

    `ends_stamp` is when that history was saved. `verdicts` is what the verdicts depend on.
    """

    id: int
    partitions: Mapping[int, Saved | str]
    ends: State | str
    ends_stamp: Moment | None = None
    verdicts: State | None = None


@dataclass(frozen=True, slots=True)
class LogSizesFetched:
    """The bytes by topic on a broker, or why they are unknown. Without a `broker`, none can be asked."""

    id: int
    broker: int | None
    sizes: Mapping[str, int] | str
    final: bool


@dataclass(frozen=True, slots=True)
class StoredGroupsFetched:
    """The groups of ZooKeeper: (offset, commit time in ms) by (group, topic, partition), and the groups.

    `refused` are the groups of which a node may not be read, and the path of that node. They are left out.
    """

    id: int
    offsets: Mapping[tuple[str, str, int], tuple[int, int]]
    groups: Mapping[str, Group]
    refused: Mapping[str, str] = field(default_factory=dict)


class FirstRecord(NamedTuple):
    """The first record at or after a place, and when it was written: one of `koff.lag.FirstRecords`."""

    offset: int
    timestamp_ms: int
    later_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class FirstRecordsRead:
    """The first records at the places of a request, or why they could not be read.

    `denied` are the topics that this user may not read.
    """

    id: int
    records: Mapping[RecordPlace, FirstRecord | str]
    denied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Display:
    """What is shown of the cluster, the labels that all of it gets besides `cluster`, and which groups are
    expected to be there.

    `group_labels` give labels from the names of groups (`koff.serve.metrics.labels.derive_labels`).
    `objectives` are the lags in seconds that their owners accept.
    An input too: the configuration may be changed while the monitor runs.
    """

    names: ShownNames = field(default_factory=ShownNames)
    labels: Mapping[str, str] = field(default_factory=dict)
    group_labels: tuple[re.Pattern[str], ...] = ()
    expected_groups: tuple[str, ...] = ()
    objectives: tuple[Objective, ...] = ()


Input = (
    Failed
    | Done
    | TopicsFetched
    | OffsetsFetched
    | TopicConfigsFetched
    | GroupsFetched
    | ShareLagsFetched
    | Polled
    | ReadFailed
    | Unreachable
    | HistoryRead
    | Loaded
    | LogSizesFetched
    | StoredGroupsFetched
    | FirstRecordsRead
    | Display
)
