"""The requests to save: the state of each partition that changed, and an index of those that did not.

Requests to the disk are carried out in order, and at most one round is open: a slow disk is not given more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from koff.monitor.followed_log import FollowedLog
from koff.monitor.followed_partition import FollowedPartition
from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.requests import Request, Result
from koff.monitor.saved import Origin, Saved, StateFile
from koff.tracker import State
from koff.tracker.saved_ends import save_ends

if TYPE_CHECKING:
    from koff.monitor.state import StateDir

TIMEOUT_S = 120.0
INTERVAL_S, ENDS_INTERVAL_S = 30.0, 300.0
"""Between two savings of partitions, and of end offsets: a killed process reads again what is newer."""
RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Done(Result):
    """A request to the state directory was carried out.

    `is_emptied`: before that, the folder for saved state was removed, with all that had been saved.
    """

    is_emptied: bool = False


@dataclass(frozen=True, slots=True)
class WriteRequest(Request):
    """A request to write into the state directory. Its result is `Done`."""

    thread = "disk"

    def carry_out(self, means: Means) -> Result:
        self.write(means.state_dir)
        return Done(self.id, is_emptied=means.state_dir.take_emptied())

    def write(self, state_dir: StateDir) -> None:
        """Writes. Raises `KoffError`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Save(WriteRequest):
    """Write the state of a partition of the offsets topic."""

    origin: Origin
    saved: Saved

    def write(self, state_dir: StateDir) -> None:
        state_dir.save(self.origin, self.saved)


@dataclass(frozen=True, slots=True)
class SaveIndex(WriteRequest):
    """Write, by partition, a position and when the log was last known to end there.

    So the file of a partition that did not change need not be written again.
    """

    origin: Origin
    positions: Mapping[int, tuple[int, Moment]]
    stamp: Moment

    def write(self, state_dir: StateDir) -> None:
        state_dir.note(self.origin, self.positions, stamp=self.stamp)


@dataclass(frozen=True, slots=True)
class SaveFile(WriteRequest):
    """Write the history of end offsets, or what the verdicts depend on."""

    name: StateFile
    origin: Origin
    stamp: Moment
    state: State

    def write(self, state_dir: StateDir) -> None:
        state_dir.save_file(self.name, self.origin, self.state, stamp=self.stamp)


@dataclass(frozen=True, slots=True)
class ForgetSaved(WriteRequest):
    """Remove the files of partitions whose log is not what it was."""

    partitions: frozenset[int]

    def write(self, state_dir: StateDir) -> None:
        for partition in sorted(self.partitions):
            state_dir.forget(partition)


class Savings:
    """Which partitions are saved, as of which version and position."""

    def __init__(
        self,
        now: Moment,
        shared: Shared,
        *,
        saves: bool,
        read_log: Callable[[], FollowedLog],
        read_verdicts: Callable[[], State | None],
    ) -> None:
        self._tracker, self._outbox, self._steady_ms = shared
        self._saves, self._read_log, self._read_verdicts = saves, read_log, read_verdicts
        self._due_s = now.at_s + INTERVAL_S
        self._ends_due_s = now.at_s + INTERVAL_S
        self._origin: Origin | None = None
        self._saved: dict[int, tuple[int, int]] = {}
        """By partition: the version that was saved, and the position in its file."""
        self._in_flight: dict[int, tuple[int, int, int]] = {}
        """By request id: partition, version, position."""
        self._verdicts: State | None = None
        """What is saved of the verdicts."""
        self._forget: set[int] = set()
        self._open: set[int] = set()
        self._has_failed = False
        """Whether a request of this round has failed."""
        self._is_told = False
        """Whether the log has a warning of the failures of this round, or of the last one."""

    @property
    def due_s(self) -> float:
        """When the next round is due; infinite while one is open, or if nothing is saved."""
        return float("inf") if self._open or not self._saves else self._due_s

    def set_origin(self, origin: Origin | None) -> None:
        """Sets the topic that is saved. What was saved of another topic is not known here any more."""
        if origin != self._origin:
            self._origin, self._saved, self._in_flight = origin, {}, {}

    def note_resumed(self, partition: int, saved: Saved, version: int) -> None:
        """The tracker has the saved state, so it need not be saved again until it changes."""
        self._saved[partition] = version, saved.position

    def forget(self, partition: int) -> None:
        """What was saved of that partition must not be used any more: its log is not what it was."""
        self._saved.pop(partition, None)
        self._in_flight = {i: at for i, at in self._in_flight.items() if at[0] != partition}
        self._forget.add(partition)
        self._due_s = float("-inf")

    def make_due(self) -> None:
        """Everything is to be saved now."""
        self._due_s = self._ends_due_s = float("-inf")
        self._open.clear()

    def request(self, now: Moment) -> None:
        """Sends the requests of one round, if it is due and the last round has ended."""
        if now.at_s < self.due_s:
            return
        self._due_s = now.at_s + INTERVAL_S
        self._is_told, self._has_failed = self._has_failed, False
        for request in self._round(now):
            self._open.add(request.id)
            self._outbox.send(request, self, now, TIMEOUT_S)

    def _round(self, now: Moment) -> Iterator[WriteRequest]:
        next_id, tracker = self._outbox.next_id, self._tracker
        if self._forget:
            # Before anything else: a log that was cut may grow until the old state looks right.
            forgotten, self._forget = frozenset(self._forget), set()
            yield ForgetSaved(next_id(), forgotten)
        if self._origin is None:
            return
        index = {}
        for number, part in sorted(self._read_log().partitions.items()):
            stamp = part.current
            if stamp is None or not _is_complete(part):
                continue
            version = tracker.version(number)
            if self._saved.get(number, (None,))[0] == version:
                # A position that moved past control records or compacted ones needs no new file.
                index[number] = self._saved[number][1], stamp
                continue
            state = tracker.save_partition(number)
            if state is None:
                continue
            saved = Saved(number, part.position, part.leader_epoch, stamp, state)
            request = Save(next_id(), self._origin, saved)
            self._in_flight[request.id] = number, version, part.position
            yield request
        if index:
            yield SaveIndex(next_id(), self._origin, index, now)
        if now.at_s >= self._ends_due_s:
            self._ends_due_s = now.at_s + ENDS_INTERVAL_S
            ends_ms = self._steady_ms(now)
            stamp = now._replace(wall_ms=ends_ms)
            yield SaveFile(next_id(), "ends", self._origin, stamp, save_ends(tracker.partitions, ends_ms))
        verdicts = self._read_verdicts()
        if verdicts is not None and verdicts is not self._verdicts:
            self._verdicts = verdicts
            yield SaveFile(next_id(), "verdicts", self._origin, now, verdicts)

    def receive(self, given: Done, pending: Pending[WriteRequest], now: Moment) -> None:
        """The disk has carried out a request. If it had emptied itself, all is saved again after this round.

        The first round without a failure, after one with a failure, is an event.
        """
        self._open.discard(given.id)
        if given.is_emptied:
            self._saved.clear()
            self._verdicts = None
            self._due_s = self._ends_due_s = float("-inf")
        if given.id in self._in_flight:
            number, version, position = self._in_flight.pop(given.id)
            self._saved[number] = version, position
        if self._is_told and not self._has_failed and not self._open:
            self._is_told = False
            self._outbox.note(now, "state is saved again")

    def give_up(self, pending: Pending[WriteRequest], why: str, now: Moment) -> None:
        """The disk has not carried out a request. The first failure after a round without one is an event."""
        request = pending.request
        self._open.discard(request.id)
        self._in_flight.pop(request.id, None)
        if isinstance(request, ForgetSaved):
            self._forget |= request.partitions
            self._due_s = min(self._due_s, now.at_s + RETRY_S)
        if isinstance(request, SaveFile):
            if request.name == "ends":
                self._ends_due_s = now.at_s
            else:
                self._verdicts = None
        if not self._is_told:
            self._outbox.note(now, "state is not saved", warn=True, why=why)
        self._is_told = self._has_failed = True


def _is_complete(part: FollowedPartition) -> bool:
    return part.is_reading and not part.needs_history and not part.is_waiting
