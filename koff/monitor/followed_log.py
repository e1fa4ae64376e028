"""An internal topic that is being read: its partitions, from their bounds to records applied."""

from collections.abc import Callable, Iterator, Mapping

from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.followed_partition import FollowedPartition
from koff.monitor.moment import Moment
from koff.monitor.plan import Bounds, Plan, Resume, Seed
from koff.monitor.requests import Lost, OffsetKind, Polled, Records, Start, Topic, TopicPartition
from koff.tracker.log_batch import BytesColumn

LIVE_S = 25.0

Apply = Callable[[int, BytesColumn, BytesColumn, bool, Moment], None]
"""Applies keys and values of records of a partition. The flag is set if they are not history."""


class FollowedLog:
    """An internal topic that is being read. Its records go to `apply` as soon as they may be applied."""

    def __init__(
        self, topic: str, apply: Apply, only: ChosenPartitions | None = None, *, live_s: float = LIVE_S
    ) -> None:
        """Records are history, and not live, if the reader was not at the end of the log for `live_s`."""
        self.topic = topic
        self.exists: bool | None = None
        """Whether the topic exists; None if that is not known yet."""
        self.topic_id = ""
        self.partition_count = 0
        self.leaderless: frozenset[int] = frozenset()
        self.partitions: dict[int, FollowedPartition] = {}
        self.denied: str | None = None
        """Why this user may not read the topic, or why it is not read."""
        self.is_never_read = False
        self.is_hidden = False
        """Whether the list of topics lacks it, so that only the coordinators can be asked: see `hide`."""
        self.retry_s: float | None = None
        """When to begin to read again after a failure."""
        self.lost_s = float("-inf")
        """When a partition was lost, or begun again after that: the topic may be another of that name."""
        self.denied_since_s: float | None = None
        """Since when the reader is denied; None if it is not."""
        self._apply, self.live_s = apply, live_s
        self._only = only
        self._failures = 0
        self._first_resets = 0  # `resets` of new partitions
        self._was_read = False
        self._before_hidden: tuple[str | None, bool] = (None, False)

    def hide(self, why: str) -> None:
        """The list of topics lacks the topic, which may exist all the same.

        One partition, 0, then stands for all of them: with a partition count of 1, every group belongs to it.
        It is never read. That ends when the topic appears (`note_topic`): partition 0 is then lost.
        """
        self._before_hidden = self.denied, self.is_never_read
        self.is_hidden, self.denied, self.is_never_read = True, why, True
        self.partition_count, self.leaderless = 1, frozenset()
        self.partitions = {0: FollowedPartition(attempt=self._first_resets, resets=self._first_resets)}

    def note_topic(self, topic: Topic | None) -> list[int]:
        """Notes the topic as it is believed to be. Returns the partitions that are lost."""
        lost: list[int] = []
        if self.is_hidden and topic is not None:
            self.is_hidden = False
            self.denied, self.is_never_read = self._before_hidden
            lost = self._forget_partitions()
        elif topic is None or (self.topic_id and topic.id != self.topic_id):
            lost = self._forget_partitions()
        self.exists = topic is not None
        if topic is not None:
            self.topic_id, self.partition_count = topic.id, topic.partitions
            self.leaderless = topic.leaderless
            for partition in range(topic.partitions):
                if self._only is None or self._only.includes(partition, topic.partitions):
                    fresh = FollowedPartition(attempt=self._first_resets, resets=self._first_resets)
                    self.partitions.setdefault(partition, fresh)
        return lost

    def _forget_partitions(self) -> list[int]:
        lost = list(self.partitions)
        # Late records and responses are of earlier attempts and resets than those of the new topic.
        newest = [max(part.attempt, part.resets) for part in self.partitions.values()]
        self._first_resets, self.partitions = max([self._first_resets, *newest]) + 1, {}
        return lost

    def take_unbounded(self, now: Moment, again_s: float) -> list[int]:
        """The partitions whose bounds have to be requested now, and not again before `again_s`."""
        unbounded = [
            p
            for p, part in self.partitions.items()
            if not part.is_reading and not part.is_bounded and now.at_s >= part.bounds_due_s
        ]
        for number in unbounded:
            self.partitions[number].bounds_due_s = again_s
        return unbounded

    def next_due_s(self) -> float:
        """When bounds are to be requested, or reading begun again; infinite if neither is."""
        due = [p.bounds_due_s for p in self.partitions.values() if not p.is_reading and not p.is_bounded]
        return min([*due, *([] if self.retry_s is None else [self.retry_s])], default=float("inf"))

    def take_progress(self) -> bool:
        """Whether records or positions came in since the last call."""
        was_read, self._was_read = self._was_read, False
        return was_read

    def bounds(self) -> dict[int, Bounds]:
        """The bounds of the partitions that wait for a plan."""
        return {
            p: Bounds(part.start, part.stable)
            for p, part in self.partitions.items()
            if not part.is_reading and part.start is not None and part.stable is not None
        }

    def begin(self, plans: Mapping[int, Plan], now: Moment) -> dict[int, Start]:
        """Begins to read the partitions as planned. Returns the starts for the reader."""
        starts = {}
        for number, plan in plans.items():
            part = self.partitions[number]
            epoch = plan.leader_epoch if isinstance(plan, Resume) else -1
            starts[number] = part.begin(plan.position, epoch, now)
            if part.resets > self._first_resets:
                self.lost_s = now.at_s
            if isinstance(plan, Seed):
                part.needs_history, part.seeded_at = True, plan.position
                part.wait()
        return starts

    def begin_again(self, now: Moment) -> dict[int, Start]:
        """Begins to read all partitions again, at their positions: the reader has stopped."""
        self.retry_s = None
        if self.is_never_read:
            return {}
        return {
            p: part.begin(part.position, part.leader_epoch, now)
            for p, part in self.partitions.items()
            if part.is_reading
        }

    def receive_polled(self, given: Polled, now: Moment) -> list[Lost]:
        """Applies what a reader read. Returns the partitions that cannot be read on."""
        if not self.is_hidden:  # else these are the last records of an earlier topic
            self.denied = None
        self.denied_since_s, self._failures = None, 0
        self._was_read |= bool(given.records or given.positions)
        for records in given.records:
            if (part := self._find(records.partition, records.attempt)) is not None:
                new = part.split_known(records)
                if new is not None:
                    self._take_records(part, new, now)
        for number, (attempt, position) in given.positions.items():
            if (part := self._find(number, attempt)) is not None:
                part.move(position, now)
                self._release(number, part)
        for number, ends in given.ends.items():
            if (part := self._find(number, ends.attempt)) is not None:
                part.note_ends(ends)
                if part.needs_no_response:
                    self.stop_waiting(number)
                self._release(number, part)
        return [lost for lost in given.lost if self._find(lost.partition, lost.attempt) is not None]

    def receive_bounds(
        self, kind: OffsetKind, offsets: Mapping[int, int], resets: Mapping[TopicPartition, int]
    ) -> None:
        """Notes the log start offsets, or the last stable offsets, of partitions that are not read yet.

        `resets` is what `resets` returned when they were requested.
        """
        for number, offset in offsets.items():
            part = self.partitions.get(number)
            if part is None or part.is_reading or resets.get((self.topic, number)) != part.resets:
                continue
            if kind == "start":
                part.start = offset
            else:
                part.stable = offset

    def stop_waiting(self, number: int) -> None:
        """Applies the records that wait for the coordinators' response, or for what it contains."""
        part = self.partitions[number]
        part.wait_until = part.wait_ends_from_s = None
        part.earlier_wait = None, None
        waiting, part.waiting = part.waiting, []
        for records, is_live, read_at in waiting:
            self._apply(number, records.keys, records.values, is_live, read_at)
        part.find_current()

    def stop_asking(self, number: int) -> None:
        """The coordinators did not respond. Records wait on only for an earlier response."""
        part = self.partitions[number]
        part.stop_asking()
        if not part.is_waiting:
            self.stop_waiting(number)
        self._release(number, part)

    def reset(self, number: int, *, keep_bounds: bool = False) -> None:
        """Forgets a partition, which then waits for its bounds, or only for a plan."""
        part = self.partitions[number]
        start, stable = part.start, part.stable
        part.reset()
        if keep_bounds:
            part.start, part.stable = start, stable

    def note_failure(self, why: str, now: Moment, *, denied: bool) -> None:
        """Notes that the reader has stopped. It is tried again after 1 to 10 s."""
        self._failures += 1
        if denied:
            self.denied = why
            self.denied_since_s = now.at_s if self.denied_since_s is None else self.denied_since_s
        self.retry_s = now.at_s + min(2.0 ** min(self._failures - 1, 4), 10.0)

    def note_held_back(self, now: Moment) -> None:
        """Notes since when open transactions hold commits back."""
        for _, part in self.reading():
            part.note_held_back(now)

    def reading(self) -> Iterator[tuple[int, FollowedPartition]]:
        """The partitions that are being read."""
        return ((p, part) for p, part in self.partitions.items() if part.is_reading)

    def resets(self) -> dict[TopicPartition, int]:
        """How often all was forgotten of each partition: to be kept with a request that is sent now."""
        return {(self.topic, p): part.resets for p, part in self.partitions.items()}

    @property
    def unread(self) -> list[int]:
        """The partitions that have a leader and are not read yet."""
        return [p for p, part in self.partitions.items() if not part.is_read and p not in self.leaderless]

    def find_empty(self) -> frozenset[int]:
        """The partitions that are known to have no record."""
        return frozenset(
            number
            for number, part in self.partitions.items()
            if part.is_bounded and part.start == part.stable == (part.end or part.stable)
        )

    @property
    def last_written(self) -> int:
        """The last partition that has, or had, records; -1 if there is none."""
        return max(
            (p for p, part in self.partitions.items() if (part.end or part.stable or 0) > 0), default=-1
        )

    @property
    def behind(self) -> int:
        """How many offsets up to the last stable offsets are not read yet."""
        return sum(
            max(0, part.stable - part.position) for _, part in self.reading() if part.stable is not None
        )

    @property
    def held_back(self) -> int:
        """How many offsets are behind open transactions."""
        return sum(part.held_back for _, part in self.reading())

    def _find(self, number: int, attempt: int) -> FollowedPartition | None:
        """The partition, if it is being read and that is its present attempt."""
        part = self.partitions.get(number)
        return part if part is not None and part.is_reading and part.attempt == attempt else None

    def _take_records(self, part: FollowedPartition, records: Records, now: Moment) -> None:
        part.leader_epoch = records.leader_epoch
        is_live = part.is_live(now, self.live_s)  # before the position moves: that may be the end of the log
        if part.is_waiting:
            part.waiting.append((records, is_live, now))
        else:
            self._apply(records.partition, records.keys, records.values, is_live, now)
        part.move(records.offsets[-1] + 1, now)
        self._release(records.partition, part)

    def _release(self, number: int, part: FollowedPartition) -> None:
        """Applies waiting records once the reader has passed what the coordinators' response contains."""
        if part.wait_until is not None and part.position >= part.wait_until:
            self.stop_waiting(number)
