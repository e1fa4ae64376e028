"""One partition of an internal topic: the reader's position, watermarks, and up to when it is current.

A partition is current at t if the reader's position has reached the high watermark that was returned for a
request sent at t. So each high watermark that is not reached yet is kept with its time: a position that has
reached the watermark of an earlier moment only, because an open transaction holds later records back or the
reader is behind, proves that the partition is current as of that earlier moment.

But compaction may have removed a commit that the reader had not read yet, because of a newer one behind the
position. That newer one was there when the reader read up to the position. So a watermark that was reached
counts once another one is reached that was requested after that; the same one, if nothing was read since its
request.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from koff.monitor.moment import Moment
from koff.monitor.requests import Records, Start, Watermarks

MAX_WATERMARKS = 64
_REQUESTED = float("inf")


@dataclass(slots=True)
class FollowedPartition:
    """It waits for `start` and `stable` first, then for a plan, and is then read.

    `attempt` counts how often reading it was begun: records of another attempt are not its own. `resets`
    counts how often all that was known of it was forgotten: a response to an earlier request means nothing.
    """

    attempt: int = 0
    resets: int = 0
    is_reading: bool = False
    position: int = -1
    leader_epoch: int = -1
    start: int | None = None
    """Log start offset."""
    stable: int | None = None
    """The newest last stable offset."""
    end: int | None = None
    """The high watermark that was returned with `stable`; None before the partition is read."""
    is_read: bool = False
    """Whether the reader has reached the end that the log had when reading began, or an open transaction."""
    caught_up_s: float | None = None
    """When the newest high watermark was requested that the reader has reached."""
    current: Moment | None = None
    """Up to when the commits of this partition are known. None: not at all."""
    wait_until: int | None = None
    """Until the reader reaches this offset, records wait, to be applied together: they are older than the
    coordinators' response, which the tracker has."""
    wait_ends_from_s: float | None = None
    """The first high watermark that is requested at or after this moment sets `wait_until`."""
    waiting: list[tuple[Records, bool, Moment]] = field(default_factory=list)
    """The records that wait, whether they are live (`is_live`), and when they were read."""
    earlier_wait: tuple[float | None, int | None] = (None, None)
    """`wait_asks_from_s` and `wait_until` of an earlier response, while another one is requested."""
    stale_groups: dict[str, Moment | None] = field(default_factory=dict)
    """Groups that are known up to another moment: the coordinators' newest response lacks them."""
    read_s: float = float("-inf")
    """When the position moved last."""
    held_back_since: tuple[int, float] | None = None
    """The last stable offset behind which commits are held back, and since when koff sees that; or None."""
    needs_history: bool = False
    """Whether only the coordinators' response is known, and not the log before `seeded_at`."""
    seeded_at: int = 0
    bounds_due_s: float = 0.0
    _watermarks: deque[tuple[Moment, int]] = field(default_factory=deque)
    # The watermarks that were reached and do not count yet: when each was requested, and when it was reached.
    _reached: deque[tuple[Moment, float]] = field(default_factory=deque)

    @property
    def is_bounded(self) -> bool:
        """Whether the log start offset and the last stable offset are known."""
        return self.start is not None and self.stable is not None

    @property
    def is_waiting(self) -> bool:
        """Whether records wait for the offset up to which the coordinators' response is newer."""
        return self.wait_until is not None or self.wait_ends_from_s is not None

    @property
    def needs_no_response(self) -> bool:
        """Whether records wait for a response of the coordinators that the log has made needless."""
        if self.wait_ends_from_s != _REQUESTED or self.is_unseeded or self.end is None:
            return False
        ends_from_s, until = self.earlier_wait
        return self.position >= max(self.end, until or 0) and (ends_from_s is None or until is not None)

    @property
    def is_unseeded(self) -> bool:
        """Whether nothing is known of it before the coordinators' first response."""
        return self.needs_history and self.current is None

    @property
    def is_overtaken(self) -> bool:
        """Whether the tracker has a response of the coordinators that is newer than the position."""
        ends_from_s, until = self.wait_ends_from_s, self.wait_until
        if ends_from_s == _REQUESTED:
            ends_from_s, until = self.earlier_wait
        return ends_from_s is not None or (until is not None and self.position < until)

    @property
    def is_held_back(self) -> bool:
        """Whether all was read that an open transaction does not hold back, and more was written."""
        return (
            self.is_reading
            and self.stable is not None
            and self.end is not None
            and self.stable <= self.position < self.end
        )

    @property
    def held_back(self) -> int:
        """How many offsets are behind an open transaction."""
        return 0 if self.stable is None or self.end is None else self.end - self.stable

    def note_held_back(self, now: Moment) -> None:
        """Notes since when the same open transaction holds back commits."""
        if self.stable is None or not self.is_held_back:
            self.held_back_since = None
        elif self.held_back_since is None or self.held_back_since[0] != self.stable:
            self.held_back_since = self.stable, now.at_s

    def is_live(self, now: Moment, within_s: float) -> bool:
        """Whether records that are read now were written just before: the reader was lately at the end."""
        return self.caught_up_s is not None and now.at_s - self.caught_up_s <= within_s

    def begin(self, position: int, leader_epoch: int, now: Moment) -> Start:
        """Begins to read at `position`. Returns the start for the reader."""
        self.attempt += 1
        self.is_reading, self.position, self.leader_epoch = True, position, leader_epoch
        return Start(position, self.attempt, leader_epoch)

    def wait(self) -> None:
        """Lets records wait for a response of the coordinators that is being requested."""
        if self.wait_ends_from_s != _REQUESTED:
            self.earlier_wait = self.wait_ends_from_s, self.wait_until
        self.wait_ends_from_s, self.wait_until = _REQUESTED, None

    def stop_asking(self) -> None:
        """There is no response: records wait for what the one before contains, if there was one."""
        self.wait_ends_from_s, self.wait_until = self.earlier_wait
        self.earlier_wait = None, None

    def reset(self) -> None:
        """Forgets all: the partition waits for its bounds again."""
        fresh = FollowedPartition(attempt=self.attempt + 1, resets=self.resets + 1)
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def note_seed(self, requested: Moment, now: Moment, failed: Iterable[str]) -> None:
        """The tracker has the coordinators' response to a request of `requested`, but nothing of `failed`."""
        before = self.current
        self.stale_groups = {name: self.stale_groups.get(name, before) for name in failed}
        self.current, self.is_read = requested, True
        self.wait_ends_from_s, self.wait_until = now.at_s, None
        self.earlier_wait = None, None

    def note_ends(self, ends: Watermarks) -> None:
        """Notes where a leader's log ends. An end before the position is ignored.

        The high watermark of a leader that was just elected may be too low for a moment.
        """
        if ends.end < self.position:
            return
        self.end, self.stable, requested = ends.end, ends.stable, ends.requested
        if self.wait_ends_from_s is not None and requested.at_s >= self.wait_ends_from_s:
            self.wait_until, self.wait_ends_from_s = self.end, None
        if self.earlier_wait[0] is not None and requested.at_s >= self.earlier_wait[0]:
            self.earlier_wait = None, self.end
        while self._watermarks and self._watermarks[-1][1] > self.end:  # the log was truncated
            self._watermarks.pop()
        if len(self._watermarks) >= MAX_WATERMARKS:  # currency is then known less finely, and never too well
            self._watermarks = deque(list(self._watermarks)[::2])
        self._watermarks.append((requested, self.end))
        self.find_current()

    def move(self, position: int, now: Moment) -> None:
        """Notes that the reader has reached `position`."""
        if position > self.position:
            self.position, self.read_s = position, now.at_s
            self.find_current()

    def find_current(self) -> None:
        """Works out up to when this partition is current."""
        if self.is_waiting and (self.wait_until is None or self.position < self.wait_until):
            return  # the tracker has the coordinators' response, which has a moment of its own
        while self._watermarks and self._watermarks[0][1] <= self.position:
            requested, _ = self._watermarks.popleft()
            self.caught_up_s = requested.at_s
            self._reached.append((requested, self.read_s))
        while self._reached and self._reached[0][1] <= self._reached[-1][0].at_s:
            requested, _ = self._reached.popleft()
            self.is_read = True
            self.stale_groups.clear()
            if self.current is None or requested.at_s > self.current.at_s:
                self.current = requested
        if self.is_held_back:
            self.is_read = True

    def split_known(self, records: Records) -> Records | None:
        """The records at or behind the position; None if there are none: they were applied before."""
        offsets = records.offsets
        if not len(offsets) or offsets[-1] < self.position:
            return None
        if offsets[0] >= self.position:
            return records
        first = next(i for i, offset in enumerate(offsets) if offset >= self.position)
        return records._replace(
            keys=records.keys[first:], values=records.values[first:], offsets=offsets[first:]
        )
