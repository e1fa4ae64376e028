"""What the server needs from an engine: from `koff monitor`, or from the Spark pipeline."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self

from koff.errors import KoffError
from koff.tracker import Objective, ShownNames, Snapshot
from koff.view.activity import RecentActivity
from koff.view.owners import Owners, build_runbook_url


class NoProgress(KoffError):
    """The engine does not respond in time. The text says since when, and what to check."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the numbers may be trusted. `text` is the body of /readyz: "ready", or the reason why not."""

    ready: bool
    text: str


class TopicFacts(NamedTuple):
    """What the cluster lists of a topic: its partitions, and the least number of replicas."""

    partitions: int
    replicas: int
    leaderless: int = 0
    under_replicated: int = 0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the cluster lists of its brokers and topics. Without `brokers`, nothing is known at present.

    `coordinators` are the brokers that lead the partitions of the offsets topic, -1 for none. `denied` are
    topics that groups read and that koff may not describe: they may exist.
    """

    brokers: int | None = None
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    coordinators: tuple[int, ...] = ()
    log_sizes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """By broker and topic, the bytes of the logs. Brokers whose sizes are not known are missing."""
    denied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PipelineStats:
    """What the stream of one cluster of `koff pipeline run` has done since the process started.

    A stream that is not `running` has failed: it waits for another try, or stays down. The time of the newest
    batch is in seconds since 1970; both numbers about it are None before the first batch.
    """

    running: bool
    batches: int = 0
    records: int = 0
    failures: int = 0
    last_batch_s: float | None = None
    last_batch_took_s: float | None = None


class StoredTable(NamedTuple):
    """The size of a table's newest version."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MonitorStats:
    """The progress and the health of one cluster's monitor."""

    records: Mapping[str, int] = field(default_factory=dict)
    """How many records were read, by record type."""
    undecodable: int = 0
    """How many records could not be decoded."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How many inputs, records and parts of records could not be used, by kind."""
    behind: int | None = None
    """Offsets up to the last stable offsets that are not read yet. None: unknown, or the log is not read."""
    held_back_records: int = 0
    """Offsets of the offsets topic behind open transactions: not shown yet."""
    held_back_partitions: frozenset[int] = frozenset()
    """The partitions of the offsets topic in which an open transaction may hold back commits."""
    held_back_s: float = 0.0
    """How long the oldest open transaction has held back commits."""
    backfill_remaining: int = 0
    """Offsets of history that the backfill has not read yet."""
    input_ages_s: Mapping[str, float] = field(default_factory=dict)
    """The age of the oldest end offset, commit, or other input that is in use, by kind of input."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """How many requests were sent to the cluster, by kind."""
    rows: int = 0
    """How many lags there are. Rows without a commit, or without a topic, have none."""
    withheld: int = 0
    """How many of these lags are not served."""
    internal_partitions: int = 0
    """How many partitions of internal topics koff follows."""
    not_current: int = 0
    """How many of these are not current: groups in them are withheld or missing."""
    missing: tuple[str, ...] = ()
    """What may be missing from the snapshot, and why."""
    missing_shares_why: str | None = None
    """Why lags of share groups may be missing. None: none are, or `missing` says it."""
    source: Literal["log", "coordinators"] = "log"
    """Where commits come from."""
    up: bool = True
    """Whether koff is ready, as /readyz says."""
    pipeline: PipelineStats | None = None
    """Of `koff pipeline run` only."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ClusterView:
    """What may be served of one cluster at one moment. Immutable, shared by all who ask while it is fresh."""

    cluster: str | None
    """The value of the label `cluster`. None: not known yet, so nothing of the cluster is served."""
    snapshot: Snapshot
    """All groups, without what must not be served."""
    readiness: Readiness
    stats: MonitorStats
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that all series of the cluster get, besides `cluster`."""
    group_labels: tuple[re.Pattern[str], ...] = ()
    """Patterns that give labels from the name of a group."""
    shown: ShownNames = field(default_factory=ShownNames)
    """Which groups and topics the snapshot shows."""
    objectives: tuple[Objective, ...] = ()
    """The lags in seconds that the owners of groups accept."""
    runbook: str | None = None
    """The template of the address of a group's runbook (`koff.view.owners`), if its owner has none."""
    owners: Owners = field(default_factory=Owners)
    expected_groups: Mapping[str, bool] = field(default_factory=dict)
    """Whether each group that is expected is present. A group of which koff cannot know that is left out."""
    activity: RecentActivity = field(default_factory=RecentActivity, repr=False, compare=False)
    """What the groups did before: filled by those who compare views. All views of a monitor share it."""
    causes: dict[int, object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By shard, what `koff.view.causes` has computed for this view."""

    @property
    def knows_groups(self) -> bool:
        """Whether koff knows which groups there are. Before it is ready, no group may mean many."""
        return self.readiness.ready or any(shard.groups for shard in self.snapshot.shards.values())

    def find_labels(self, group: str) -> dict[str, str]:
        """The labels that the first pattern found in the name of the group gives, and `owner` if it has one.

        A part that matched nothing gives no label: for Prometheus, an empty label is an absent one.
        """
        found = next(filter(None, (pattern.search(group) for pattern in self.group_labels)), None)
        labels = {name: value for name, value in found.groupdict().items() if value} if found else {}
        owner = self.owners.find(group)
        return {**labels, "owner": owner.team} if owner else labels

    def find_runbook_url(self, group: str, cause: str) -> str | None:
        """The address of the runbook for the group with this cause (its label); None without a runbook."""
        owner = self.owners.find(group)
        template = (owner.runbook if owner else None) or self.runbook
        if template is None:
            return None
        return build_runbook_url(template, cluster=self.cluster or "", group=group, cause=cause)


class LastReload(NamedTuple):
    """Whether the configuration that was read last is in force, and when one was applied last (since 1970).

    At first, the configuration of the start.
    """

    successful: bool
    success_s: float


@dataclass(frozen=True, slots=True)
class Views:
    """The views of all clusters, and whether the process is ready."""

    clusters: tuple[ClusterView, ...]
    readiness: Readiness
    tables: Mapping[str, StoredTable] = field(default_factory=dict)
    """The tables that `koff pipeline run` writes. Empty: not known, or there are none."""
    reload: LastReload | None = None
    """None if the process does not read its configuration again."""

    @classmethod
    def from_one(cls, view: ClusterView) -> Self:
        """The view of the only cluster."""
        return cls((view,), view.readiness)


class ViewSource(Protocol):
    """Gives views of one or more clusters. Any thread may call any method at any time."""

    def take_views(self) -> Views:
        """What may be served now. Raises `NoProgress` if the engine does not respond.

        As long as nothing is newer, the view of a cluster is the same object.
        """

    def find_stall(self) -> str | None:
        """Why the process makes no progress and should be restarted; None while it makes progress.

        Returns at once.
        """
