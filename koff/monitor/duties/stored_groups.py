"""Groups that keep their offsets in ZooKeeper, as Kafka's first consumers do: what the core knows of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.requests import Request, Result
from koff.tracker import Group

SHARD = -1
"""Where the tracker keeps these groups: no partition of the offsets topic has that number."""
TIMEOUT_S = 30.0
_BUSY = 4
"""The pause between two requests is so many times as long as ZooKeeper took to respond, but so short that a
response is current until the next one is there, if ZooKeeper takes less than half of the limit."""
_SHORTEST_PAUSE_S = 1.0
_NAMED = 5


@dataclass(frozen=True, slots=True)
class StoredGroupsFetched(Result):
    """The groups of ZooKeeper: (offset, commit time in ms) by (group, topic, partition), and the groups.

    `refused` are the groups of which a node may not be read, and the path of that node. They are left out.
    """

    offsets: Mapping[tuple[str, str, int], tuple[int, int]]
    groups: Mapping[str, Group]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchStoredGroups(Request):
    """All groups of ZooKeeper. Its result is `StoredGroupsFetched`."""

    thread = "zookeeper"

    def carry_out(self, means: Means) -> Result:
        return StoredGroupsFetched(self.id, *means.zookeeper.fetch_groups())


class StoredGroups:
    """Requests all groups of ZooKeeper, again and again, and gives what changed to the tracker.

    `current` is when the newest response was requested; None before the first.
    """

    def __init__(self, interval_s: float | None, shared: Shared, *, limit_s: float) -> None:
        """A response is current for `limit_s`."""
        self.current: Moment | None = None
        self.refused: Mapping[str, str] = {}
        """The groups that are left out, with the path of a node that may not be read."""
        self._is_failing = False
        self.due_s = float("inf") if interval_s is None else float("-inf")
        self._interval_s, self._limit_s = interval_s, limit_s
        self._tracker, self._outbox, self._steady_ms = shared
        self._offsets: dict[tuple[str, str, int], tuple[int, int]] = {}

    @property
    def is_known(self) -> bool:
        """Whether ZooKeeper has responded, or is not asked."""
        return self._interval_s is None or self.current is not None

    def request(self, now: Moment) -> None:
        if now.at_s >= self.due_s and not self._outbox.has(FetchStoredGroups):
            self._outbox.send(FetchStoredGroups(self._outbox.next_id()), self, now, TIMEOUT_S)
            self.due_s = float("inf")

    def receive(self, given: StoredGroupsFetched, pending: Pending[FetchStoredGroups], now: Moment) -> None:
        """Takes all groups. A commit of the first response may be older than any end offset.

        Groups that may not be read any more stay as they were: they were not deleted.
        """
        kept = {at: stored for at, stored in self._offsets.items() if at[0] in given.refused}
        changed = {at: stored for at, stored in given.offsets.items() if self._offsets.get(at) != stored}
        gone = self._offsets.keys() - given.offsets.keys() - kept.keys()
        self._tracker.apply_external_commits(
            SHARD,
            changed,
            gone,
            given.groups,
            kept=given.refused.keys(),
            seen_at_ms=self._steady_ms(now),
            is_live=self.current is not None,
        )
        self._offsets, self.current = {**given.offsets, **kept}, pending.requested
        if self._is_failing:
            self._is_failing = False
            self._outbox.note(now, "ZooKeeper back")
        self._report_refused(given.refused, now)
        longest_s = max(self._limit_s / 2 - (now.at_s - pending.requested.at_s), _SHORTEST_PAUSE_S)
        self._wait(pending.requested, now, longest_s)

    def _report_refused(self, refused: Mapping[str, str], now: Moment) -> None:
        """Notes which groups are left out: a sum of a part would be wrong."""
        before, self.refused = self.refused, refused
        if refused.keys() != before.keys():
            if refused:
                self._outbox.note(
                    now, "groups of ZooKeeper are hidden", warn=True, why=describe_refused(refused)
                )
            else:
                self._outbox.note(now, "all groups of ZooKeeper may be read")

    def give_up(self, pending: Pending[FetchStoredGroups], why: str, now: Moment) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._outbox.note(now, "ZooKeeper lost", warn=True, why=why)
        self._wait(pending.requested, now, self._limit_s / 2)

    def _wait(self, requested: Moment, now: Moment, longest_s: float) -> None:
        assert self._interval_s is not None
        pause_s = max(self._interval_s, _BUSY * (now.at_s - requested.at_s))
        self.due_s = now.at_s + min(pause_s, longest_s)


def describe_refused(refused: Mapping[str, str]) -> str:
    """A sentence about the groups that are left out."""
    nodes = sorted(refused.values())
    more = ", ..." if len(nodes) > _NAMED else ""
    named = ", ".join(nodes[:_NAMED])
    return f"{len(nodes)} groups of ZooKeeper are not shown: READ of these nodes is refused: {named}{more}"
