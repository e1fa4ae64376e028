"""What has to be saved, and when: the state of each partition that changed, and that the others did not.

Requests to the disk are carried out in order, and at most one round is open: a slow disk is not given more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from koff.monitor.followed_log import FollowedLog
from koff.monitor.followed_partition import FollowedPartition
from koff.monitor.requests import (
    ForgetSaved,
    Moment,
    Origin,
    Request,
    Save,
    Saved,
    SaveFile,
    SaveIndex,
)
from koff.tracker import State, Tracker
from koff.tracker.saved_ends import save_ends

INTERVAL_S, ENDS_INTERVAL_S = 30.0, 300.0
"""Between two savings of partitions, and of end offsets: a killed process reads again what is newer."""
RETRY_S = 5.0


class Savings:
    """Which partitions are saved, as of which version and position."""

    def __init__(self, now: Moment) -> None:
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
        """When the next round is due; infinite while one is open."""
        return float("inf") if self._open else self._due_s

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

    def collect(
        self,
        now: Moment,
        log: FollowedLog,
        tracker: Tracker,
        next_id: Callable[[], int],
        ends_ms: int,
        verdicts: State | None = None,
    ) -> Iterator[Save | SaveIndex | SaveFile | ForgetSaved]:
        """The requests of one round, if it is due and the last round has ended.

        `ends_ms` is now by the clock of the tracker's end offsets.
        """
        if now.at_s < self.due_s:
            return
        self._due_s = now.at_s + INTERVAL_S
        self._is_told, self._has_failed = self._has_failed, False
        for request in self._round(now, log, tracker, next_id, ends_ms, verdicts):
            self._open.add(request.id)
            yield request

    def _round(
        self,
        now: Moment,
        log: FollowedLog,
        tracker: Tracker,
        next_id: Callable[[], int],
        ends_ms: int,
        verdicts: State | None,
    ) -> Iterator[ForgetSaved | Save | SaveFile | SaveIndex]:
        if self._forget:
            # Before anything else: a log that was cut may grow until the old state looks right.
            forgotten, self._forget = frozenset(self._forget), set()
            yield ForgetSaved(next_id(), forgotten)
        if self._origin is None:
            return
        index = {}
        for number, part in sorted(log.partitions.items()):
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
            request = Save(next_id(), self._origin, number, part.position, part.leader_epoch, stamp, state)
            self._in_flight[request.id] = number, version, part.position
            yield request
        if index:
            yield SaveIndex(next_id(), self._origin, index, now)
        if now.at_s >= self._ends_due_s:
            self._ends_due_s = now.at_s + ENDS_INTERVAL_S
            stamp = now._replace(wall_ms=ends_ms)
            yield SaveFile(next_id(), "ends", self._origin, stamp, save_ends(tracker.partitions, ends_ms))
        if verdicts is not None and verdicts is not self._verdicts:
            self._verdicts = verdicts
            yield SaveFile(next_id(), "verdicts", self._origin, now, verdicts)

    def note_done(self, request: Request, *, is_emptied: bool = False) -> bool:
        """Notes that the disk has carried out the request.

        `is_emptied`: what was saved before it is gone. All is saved again when the open round has ended.
        Returns True at the end of the first round without a failure, after one with a failure.
        """
        if not isinstance(request, Save | SaveIndex | SaveFile | ForgetSaved):
            return False
        self._open.discard(request.id)
        if is_emptied:
            self._saved.clear()
            self._verdicts = None
            self._due_s = self._ends_due_s = float("-inf")
        if request.id in self._in_flight:
            number, version, position = self._in_flight.pop(request.id)
            self._saved[number] = version, position
        works_again = self._is_told and not self._has_failed and not self._open
        self._is_told = self._is_told and not works_again
        return works_again

    def note_failed(self, request: Save | SaveIndex | SaveFile | ForgetSaved, now: Moment) -> bool:
        """Notes that the disk has not carried out the request.

        Returns True for the first failure, and again only after a round without one.
        """
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
        was_told, self._is_told, self._has_failed = self._is_told, True, True
        return not was_told


def _is_complete(part: FollowedPartition) -> bool:
    return part.is_reading and not part.needs_history and not part.is_waiting
