"""What was saved by the process before: loaded once, when the topic that it is of is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from koff.errors import KoffError
from koff.monitor.followed_log import FollowedLog
from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.requests import Request, Result
from koff.monitor.resume_rules import measure_pause_ms, reason_not_to_restore_ends
from koff.monitor.saved import Origin, Saved
from koff.tracker import State
from koff.tracker.saved_ends import restore_ends
from koff.view.activity import RecentActivity

if TYPE_CHECKING:
    from koff.monitor.state import StateDir

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Loaded(Result):
    """What was saved: of each partition its state, or why that is useless; and the history of end offsets.

    `ends_stamp` is when that history was saved. `verdicts` is what the verdicts depend on.
    """

    partitions: Mapping[int, Saved | str]
    ends: State | str
    ends_stamp: Moment | None = None
    verdicts: State | None = None


@dataclass(frozen=True, slots=True)
class Load(Request):
    """All that was saved of that topic. Its result is `Loaded`."""

    thread = "disk"
    origin: Origin

    def carry_out(self, means: Means) -> Result:
        return self.load(means.state_dir)

    def load(self, state_dir: "StateDir") -> Loaded:
        """All that can be read. Raises `KoffError`."""
        ends = state_dir.load_file("ends", self.origin)
        state, stamp = (ends, None) if isinstance(ends, str) else ends
        found = state_dir.load_file("verdicts", self.origin)
        verdicts = None if isinstance(found, str) else found[0]
        return Loaded(self.id, dict(state_dir.load(self.origin)), state, stamp, verdicts)


class SavedState:
    """Loads what was saved, if `is_wanted`. End offsets go to the tracker, verdicts to the activity."""

    def __init__(
        self,
        log: FollowedLog,
        cluster_id: str,
        shared: Shared,
        activity: RecentActivity,
        *,
        is_wanted: bool,
    ) -> None:
        self._tracker, self._outbox, self._steady_ms = shared
        self._log, self.cluster_id, self._activity = log, cluster_id, activity
        self.partitions: dict[int, Saved | str] | None = None if is_wanted else {}
        """The state of each partition, or why it is of no use; None before it is loaded."""

    @property
    def origin(self) -> Origin | None:
        """The topic as it is; None while there is none."""
        log = self._log
        return Origin(self.cluster_id, log.topic, log.topic_id, log.partition_count) if log.exists else None

    def note_cluster(self, cluster_id: str, now: Moment) -> None:
        """The brokers are of that cluster. The client believes another id if they agree on it."""
        before = self.cluster_id
        if cluster_id and cluster_id != before:
            self.cluster_id = cluster_id
            self._outbox.note(now, "another cluster is there", warn=True, id=cluster_id, before=before)

    def request(self, now: Moment) -> None:
        if self.partitions is None and (origin := self.origin) is not None and not self._outbox.has(Load):
            self._outbox.send(Load(self._outbox.next_id(), origin), self, now, TIMEOUT_S)

    def forget(self, partition: int) -> None:
        """The partition is not what it was: what was saved of it is of no use."""
        if self.partitions is not None:
            self.partitions.pop(partition, None)

    def receive(self, given: Loaded, pending: Pending[Load], now: Moment) -> None:
        self._activity.saved_verdicts = given.verdicts
        if pending.request.origin != self.origin:
            self.give_up(pending, "the offsets topic has changed", now)
            return
        self.partitions = dict(given.partitions)
        if not isinstance(given.ends, str):
            why = self._restore_ends(given.ends, given.ends_stamp, now)
            if why is not None:
                self._outbox.note(now, "saved end offsets are not used", why=why)

    def give_up(self, pending: Pending[Load], why: str, now: Moment) -> None:
        """Nothing that was saved is used."""
        self.partitions = {}
        self._outbox.note(now, "the saved state is not used", warn=True, why=why)

    def _restore_ends(self, ends: State, stamp: Moment | None, now: Moment) -> str | None:
        """Gives saved end offsets to the tracker. Returns why not, or None."""
        now_ms, pause_ms = self._steady_ms(now), None
        if stamp is not None:
            why = reason_not_to_restore_ends(stamp, now=now, steady_ms=now_ms)
            if why is not None:
                return why
            pause_ms = max(0, round(measure_pause_ms(stamp, now)))
        try:
            return restore_ends(self._tracker.partitions, ends, now_ms=now_ms, pause_ms=pause_ms)
        except ValueError as error:  # the state was loaded late: end offsets were sampled before
            return str(error)
        except (KoffError, LookupError, TypeError) as error:
            return f"they are damaged: {error}"
