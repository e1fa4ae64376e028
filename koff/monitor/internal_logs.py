"""The two internal topics that are read: `__consumer_offsets` and `__share_group_state`.

Both are followed alike. Their records go to the tracker; what is known of a partition is dropped when its log
turns out to be another one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from koff.lag import UNKNOWN
from koff.monitor.core_conf import CoreConf
from koff.monitor.duties.loading import SavedState
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.retention import TombstoneRetention
from koff.monitor.duties.savings import Savings
from koff.monitor.duties.topics import TopicList
from koff.monitor.followed_log import FollowedLog
from koff.monitor.known_facts import LogFacts
from koff.monitor.moment import Moment
from koff.monitor.offsets_start import OffsetsStart
from koff.monitor.outbox import Pending, Shared
from koff.monitor.plan import Replay
from koff.monitor.requests import (
    OffsetKind,
    Polled,
    Read,
    ReadFailed,
    Start,
    StopReading,
    Topic,
    TopicPartition,
)
from koff.records.topics import SHARE_STATE_TOPIC
from koff.tracker.log_batch import BytesColumn
from koff.view.activity import RecentActivity

RETENTION_PART = 0.9
"""koff reads a partition from its start if it was not current for this part of delete.retention.ms."""
SHORTEST_RETENTION_S = 30.0
"""Compaction looks for work every 15 s, and removes a tombstone in its second pass at the earliest."""
TIMEOUT_S = 10.0
BOUNDS_RETRY_S = 1.0
_BOUNDS: tuple[OffsetKind, ...] = ("start", "stable")


class InternalLogs:
    """Follows both topics, and gives their records to the tracker.

    `start` begins the partitions of the offsets topic. Those of share groups' state are always read from
    their log start.
    """

    def __init__(
        self,
        conf: CoreConf,
        shared: Shared,
        savings: Savings,
        topics: TopicList,
        activity: RecentActivity,
    ) -> None:
        self._tracker, self._outbox, self._steady_ms = shared
        self._conf, self._savings = conf, savings
        live_s = conf.limit_s
        self.offsets = FollowedLog(conf.offsets_topic, self._apply_commits, conf.only, live_s=live_s)
        if conf.source == "coordinators":
            self.offsets.denied, self.offsets.is_never_read = "--source coordinators", True
        self.share = FollowedLog(SHARE_STATE_TOPIC, self._apply_share_state, live_s=live_s)
        self.both = (self.offsets, self.share)
        is_wanted = conf.start == "resume"
        saved = SavedState(self.offsets, conf.cluster_id, shared, activity, is_wanted=is_wanted)
        self.start = OffsetsStart(conf.start, self.offsets, saved, shared, savings, topics, conf.tail)
        self._share_retention = TombstoneRetention(SHARE_STATE_TOPIC, self._outbox)

    def find(self, topic: str) -> FollowedLog:
        return self.share if topic == self.share.topic else self.offsets

    @property
    def lost_s(self) -> float:
        """When a partition was lost last: the list of topics has to be newer to be believed.

        Or when commits to a topic were missing first: koff may not DESCRIBE the topic, perhaps.
        """
        return max(self.start.left_topics.newest_s, *(log.lost_s for log in self.both))

    @property
    def is_read(self) -> bool:
        """Whether koff has read both logs to their ends. Leaderless and denied partitions do not count."""
        logs = [self.offsets, *([self.share] if self.share.denied is None else [])]
        return all(log.exists is not None and not log.unread for log in logs)

    def _find_doubtful(self, topics: TopicList) -> set[str]:
        """The topics that may be others than those whose partitions were read."""
        requested = topics.requested
        return {
            log.topic
            for log in self.both
            if topics.is_another(log.topic) or requested is None or requested.at_s < log.lost_s
        }

    def list_facts(self, topics: TopicList) -> LogFacts:
        """The known facts of both topics, and of the groups in them."""
        polls = self.offsets.denied is not None and self._conf.source != "log"
        return LogFacts(
            self.offsets,
            self.share,
            source="coordinators" if polls else "log",
            doubtful_topics=self._find_doubtful(topics),
            elsewhere=self._tracker.find_groups_elsewhere(),
            history=self.start.history.replayed,
            denied_groups=self.start.denied_groups.count,
        )

    def find_alive(self) -> set[str]:
        """The topics that exist, even if the next list lacks them.

        Records of them came in since the last call, or they may not be read, and so perhaps not described.
        """
        shut = {log.topic for log in self.both if log.exists and log.denied is not None}
        return {log.topic for log in self.both if log.take_progress()} | shut

    # --- Requests ----------------------------------------------------------------------------------------

    def request(self, now: Moment) -> None:
        """Requests what is due to begin partitions, and begins those whose bounds are known."""
        for log in self.both:
            self._request_bounds(log, now)
            if log.retry_s is not None and now.at_s >= log.retry_s:
                self._read(log, log.begin_again(now))
        self.start.begin_partitions(now)
        if self.share.exists:
            self._share_retention.request(now)
        bounds = self.share.bounds().items()
        replays = {number: Replay(bound.start, "share state is not saved") for number, bound in bounds}
        self._read(self.share, self.share.begin(replays, now))

    def sample(self, now: Moment, *, interval_s: float) -> None:
        """Reads partitions from their start that were not current for too long.

        Asks the coordinators for partitions that cannot be read on. `interval_s` is the time between two
        samples.
        """
        for log in self.both:
            if not log.is_hidden:
                log.note_held_back(now)
                self._lose_late(log, now)
        if self._conf.source != "log" or self.offsets.denied is None:
            self.start.fetch_held_back(now, now.at_s - 2 * interval_s)

    @property
    def due_s(self) -> float:
        """When `request` has something to do at the latest."""
        retentions = (self._retention(log).due_s for log in self.both if log.exists)
        return min(*(log.next_due_s() for log in self.both), *retentions)

    def _request_bounds(self, log: FollowedLog, now: Moment) -> None:
        """Requests the bounds of partitions that are not read yet."""
        unbounded = log.take_unbounded(now, now.at_s + BOUNDS_RETRY_S)
        for kind in _BOUNDS if unbounded else ():
            under_way = self._find_under_way(kind, log.resets())
            wanted = frozenset((log.topic, number) for number in unbounded) - under_way
            if wanted and not log.is_hidden:
                request = FetchOffsets(self._outbox.next_id(), kind, wanted)
                self._outbox.send(request, self, now, TIMEOUT_S, log.resets())

    def _find_under_way(self, kind: OffsetKind, resets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """The partitions whose bound is being requested, and was not forgotten since."""
        return {
            at
            for pending in self._outbox.list_open(FetchOffsets)
            if pending.requester is self and pending.request.kind == kind
            for at in pending.waiting
            if at in resets and pending.resets.get(at) == resets[at]
        }

    def _lose_late(self, log: FollowedLog, now: Moment) -> None:
        retention_s = RETENTION_PART * self._retention(log).retention_ms / 1000
        oldest_s = now.at_s - max(retention_s, SHORTEST_RETENTION_S)
        late = [
            number
            for number, part in log.reading()
            if part.current is not None and part.current.at_s < oldest_s
        ]
        self._lose(log, late, "deletions may have been missed", now)

    def _read(self, log: FollowedLog, starts: Mapping[int, Start]) -> None:
        if starts:
            self._outbox.command(Read(log.topic, starts))

    def _retention(self, log: FollowedLog) -> TombstoneRetention:
        return self._share_retention if log is self.share else self.start.retention

    # --- Results -----------------------------------------------------------------------------------------

    def receive_topics(
        self, changed: Collection[str], listed: Mapping[str, Topic], topics: TopicList, now: Moment
    ) -> None:
        """Notes a list of topics. `changed` are the topics that differ from what koff believed before."""
        for log in self.both:
            if log.topic in changed:
                self._receive_topic(log, topics.topics[log.topic], now)
        if self.share.exists is None and self.share.topic not in listed:
            self.share.exists = False  # at once: most clusters have none, and no row depends on it yet
        for log in self.both:  # which partitions have a leader changes without the rest
            seen = listed.get(log.topic)
            if seen is not None and seen.id == log.topic_id:
                log.leaderless = seen.leaderless

    def _receive_topic(self, log: FollowedLog, topic: Topic | None, now: Moment) -> None:
        """The topic came, went, was created again, or has grown."""
        existed, was_hidden = log.exists, log.is_hidden
        lost = log.note_topic(topic)
        if was_hidden and not log.is_hidden:
            # One shard had the groups of all partitions. Nothing of them was saved, so no file is removed.
            for number in lost:
                self.start.known_groups.note_dropped(number)
                self._tracker.reset_partition(number)
            self._tracker.set_offsets_partitions(0)
            lost = []
        if lost:
            self._outbox.note(now, "topic is gone or was created again", topic=log.topic, warn=True)
            self._outbox.command(StopReading(log.topic, frozenset(lost)))
            self._drop_state(log, lost)
        elif existed is not log.exists:
            text = "topic found" if log.exists else "topic does not exist"
            self._outbox.note(now, text, topic=log.topic, partitions=log.partition_count)
        if log is self.offsets:
            self.start.hide_absent_topic(self._conf.source, self._conf.only, now)
            self._savings.set_origin(self.start.saved.origin)

    def receive(self, given: OffsetsFetched, pending: Pending[FetchOffsets], now: Moment) -> None:
        pending.waiting.difference_update(given.offsets)
        for (topic, number), offset in given.offsets.items():
            if isinstance(offset, int):
                self.find(topic).receive_bounds(pending.request.kind, {number: offset}, pending.resets)

    def give_up(self, pending: Pending[FetchOffsets], why: str, now: Moment) -> None:
        """The bounds are requested again."""

    def receive_polled(self, given: Polled, now: Moment) -> None:
        log = self.find(given.topic)
        if log.denied is not None and not log.is_hidden:
            self._outbox.note(now, "topic may be read again", topic=log.topic)
            if log is self.offsets:
                self.start.seed_after_denial(now)
        self._outbox.note_response(now)
        by_reason: dict[str, list[int]] = {}
        for lost in log.receive_polled(given, now):
            by_reason.setdefault(lost.why, []).append(lost.partition)
        for why, partitions in by_reason.items():
            self._lose(log, partitions, why, now)

    def receive_failure(self, given: ReadFailed, now: Moment) -> None:
        """A reader has stopped. It begins again after a pause."""
        log = self.find(given.topic)
        if given.denied and log.denied is None:
            self._outbox.note(now, "topic may not be read", warn=True, topic=log.topic, why=given.why)
        if not given.denied:
            self._outbox.note_failure(given.why, now)
        log.note_failure(given.why, now, denied=given.denied)

    # --- State -------------------------------------------------------------------------------------------

    def _apply_commits(
        self, number: int, keys: BytesColumn, values: BytesColumn, is_live: bool, now: Moment
    ) -> None:
        # Histories have a time too: koff has to know whether a list of topics is newer.
        apply = partial(self._tracker.apply, is_live=is_live)
        self._apply(apply, number, keys, values, self._steady_ms(now), now)
        self.start.history.note_applied(number, keys, values)

    def _apply_share_state(
        self, number: int, keys: BytesColumn, values: BytesColumn, is_live: bool, now: Moment
    ) -> None:
        seen_at_ms = self._steady_ms(now) if is_live else UNKNOWN
        self._apply(self._tracker.shares.apply, number, keys, values, seen_at_ms, now)

    def _apply(
        self,
        apply: Callable[..., None],
        number: int,
        keys: BytesColumn,
        values: BytesColumn,
        seen_at_ms: int,
        now: Moment,
    ) -> None:
        """Applies records. If one of them makes that fail, they are applied one by one, without it."""
        try:
            apply(number, keys, values, seen_at_ms=seen_at_ms)
        except Exception:  # which record it was is found below
            for key, value in zip(keys, values, strict=True):
                try:
                    apply(number, [key], [value], seen_at_ms=seen_at_ms)
                except Exception as error:  # any client may write any bytes
                    self._outbox.skip("record", error, now)

    def _lose(self, log: FollowedLog, partitions: Collection[int], why: str, now: Moment) -> None:
        """Drops the state of partitions whose logs have changed, and reads them from their start."""
        if not partitions:
            return
        named = sorted(partitions)
        self._outbox.note(
            now, "partitions are read anew", warn=True, topic=log.topic, partitions=named, why=why
        )
        self._outbox.command(StopReading(log.topic, frozenset(partitions)))
        for number in partitions:
            log.reset(number)
        self._drop_state(log, partitions)
        # The topic may have been deleted, or created again.
        log.lost_s = now.at_s

    def _drop_state(self, log: FollowedLog, partitions: Iterable[int]) -> None:
        for number in partitions:
            if log is self.offsets:
                self.start.known_groups.note_dropped(number)
                self._tracker.reset_partition(number)
                self.start.forget(number)
                self._savings.forget(number)
            else:
                self._tracker.shares.reset_partition(number)
