"""The topic partitions that groups commit to or are assigned, and when their offsets are requested."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from koff.lag import UNKNOWN
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.topics import TopicList
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.requests import OffsetKind, TopicPartition

TIMEOUT_S = 10.0
NEW_INTERVAL_S = 1.0
"""The pause between two requests for new partitions: a stream of new topics costs no more than that."""
AGREE_S = 1.0
"""An end offset that went back is believed if another response, so much later, says so too."""


class SampledEnd(NamedTuple):
    """An end offset. `requested_ms` is when it was requested, by the tracker's clock."""

    end: int
    request_id: int
    requested_ms: int


class SampleListener(Protocol):
    """What uses the sampled offsets once the tracker has them."""

    def note_samples(
        self, given: OffsetsFetched, pending: Pending[FetchOffsets], now: Moment, *, new: bool
    ) -> None:
        """The tracker has these offsets. `new`: there are new end offsets among them."""

    def give_up_samples(self, pending: Pending[FetchOffsets]) -> None:
        """There are no more offsets of that request."""


_NONE = SampledEnd(0, -1, 0)


class EndOffsets:
    """The sampled offsets of the watched partitions, which the tracker gets.

    An end offset goes back only if records were lost in an election, or if the topic was created again. But a
    leader that was deposed, and does not know it yet, may return one that is too low.

    If the list of topics has another topic id, koff drops all offsets of the topic. If koff believes a lower
    end offset, it drops the log start offset and the last stable offset. It requests them again within a
    second, and ignores responses to earlier requests.
    """

    def __init__(self, shared: Shared, topics: TopicList, start_interval_s: float) -> None:
        self.listener: SampleListener | None = None
        self.watched: set[TopicPartition] = set()
        """The partitions that groups committed to, or are assigned."""
        self.believed: dict[TopicPartition, SampledEnd] = {}
        """By partition, the newest end offset that is believed."""
        self._tracker, self._outbox, self._steady_ms = shared
        self._topics = topics
        self._responded: set[TopicPartition] = set()
        self._slowly_requested: set[TopicPartition] = set()
        self._lower_since: dict[TopicPartition, float] = {}
        # Since when watched partitions are missing in the list of topics.
        self._missing_since: dict[TopicPartition, float] = {}
        self._numbered = 0
        # Partitions whose history of end offsets the tracker has dropped.
        self._dropped: set[TopicPartition] = set()
        # By partition, the newest request whose responses may be of an earlier log.
        self._outdated: dict[TopicPartition, int] = {}
        self._is_hurried = False  # whether offsets were dropped, and have to be requested
        # The ids of topics in the list `_compared`. None: the topic did not exist, and its id is not known.
        self._topic_ids: dict[str, str | None] = {}
        self._compared: Moment | None = None
        self._new_due_s = float("-inf")
        self._start_interval_s = start_interval_s
        self._slow_due_s = float("-inf")

    @property
    def present(self) -> set[TopicPartition]:
        """The watched partitions that exist, of topics that koff may describe."""
        return {at for at in self.watched if self._is_present(at)}

    def _is_present(self, at: TopicPartition) -> bool:
        return bool(self._topics.has_partition(at)) and at[0] not in self._topics.denied

    @property
    def has_responses(self) -> bool:
        """Whether each present partition had a response, or a failure, since `forget_responses`."""
        return self.present <= self._responded

    def unknown_topics(self) -> set[str]:
        """The topics, by name or id, that may be newer than the list of topics, or may have grown since.

        Groups refer to partitions of them that no list has had.
        """
        unlisted = {
            topic for topic, _ in self._missing_since.keys() - self._find_gone()
        } - self._topics.denied
        return self._tracker.unnamed_topic_ids() | unlisted

    def forget_responses(self) -> None:
        """What was requested before does not count for `is_answered`."""
        self._responded.clear()

    def new_due_s(self) -> float | None:
        """When new partitions, or dropped offsets, are to be requested; None if there are none."""
        is_due = self._is_hurried or len(self._tracker.partitions.numbers) != self._numbered
        return self._new_due_s if is_due else None

    def sample(self, now: Moment, *, everything: bool) -> None:
        """Requests the end offsets of `everything`, or only of partitions that were never requested."""
        self._watch(now)
        self._new_due_s, self._is_hurried = now.at_s + NEW_INTERVAL_S, False
        wanted = self.present
        requested = wanted if everything else wanted - self._responded
        self._fetch("end", requested, now)
        # Log start and last stable offsets change slowly: of new partitions at once, of all now and then.
        if now.at_s >= self._slow_due_s:
            self._slow_due_s = now.at_s + self._start_interval_s
            self._slowly_requested = set()
        new = wanted - self._slowly_requested
        self._slowly_requested |= new
        self._fetch("start", new, now)
        self._fetch("stable", new, now)

    def receive(self, given: OffsetsFetched, pending: Pending[FetchOffsets], now: Moment) -> None:
        """Takes a response, or a part of it. Errors count as responses that change nothing."""
        pending.waiting.difference_update(given.offsets)
        if given.final:
            self._note_missing(pending)
        new = self._take(pending, given.offsets, self._steady_ms(pending.requested))
        if self.listener is not None:
            self.listener.note_samples(given, pending, now, new=new)

    def _take(
        self, pending: Pending[FetchOffsets], offsets: Mapping[TopicPartition, int | str], requested_ms: int
    ) -> bool:
        """Gives offsets to the tracker. Returns whether it has new end offsets."""
        offsets = {at: offset for at, offset in offsets.items() if at in self.watched}
        if self._outdated:
            offsets = {at: offset for at, offset in offsets.items() if not self.is_outdated(at, pending)}
        if pending.request.kind == "end":
            self._responded.update(offsets)
        else:  # those that failed are requested again with the next sample
            self._slowly_requested -= {at for at, offset in offsets.items() if isinstance(offset, str)}
        known = {
            at: offset for at, offset in offsets.items() if isinstance(offset, int) and self._is_present(at)
        }
        if not known:
            return False
        match pending.request.kind:
            case "end":
                believed, lower = self._believe(known, pending, requested_ms)
                self._tracker.add_samples(ends=believed, at_ms=requested_ms)
                if lower:
                    self._drop_bounds(lower, pending.request.id)
            case "start":
                self._tracker.add_samples(starts=known)
            case "stable":
                self._tracker.add_samples(stables=known, at_ms=requested_ms)
        return pending.request.kind == "end"

    @property
    def doubted(self) -> Collection[TopicPartition]:
        """The partitions whose last response had an end offset that went back.

        It is not believed yet, or it is believed since the last `take_dropped`.
        """
        return self._lower_since.keys() | self._dropped

    def take_dropped(self) -> set[TopicPartition]:
        """The partitions whose logs were found to be others since the last call: the tracker dropped them."""
        dropped, self._dropped = self._dropped, set()
        return dropped

    def give_up(self, pending: Pending[FetchOffsets], why: str, now: Moment) -> None:
        """There is no response for the partitions that the request waits for."""
        self._note_missing(pending)
        if self.listener is not None:
            self.listener.give_up_samples(pending)

    def _note_missing(self, pending: Pending[FetchOffsets]) -> None:
        waiting = {at for at in pending.waiting if not self.is_outdated(at, pending)}
        if pending.request.kind == "end":
            self._responded |= waiting
        else:
            self._slowly_requested -= waiting

    def forget_gone(self) -> None:
        """Forgets the offsets of partitions that a list lacks which is newer than the first sight of them.

        Likewise those of topics that koff may not describe any more: these may exist.
        """
        self._forget(self._find_gone(), gone=True)
        denied = self._topics.denied
        self._forget({at for at in self.watched if at[0] in denied} if denied else set(), gone=False)

    def _forget(self, partitions: set[TopicPartition], *, gone: bool) -> None:
        if not partitions:
            return
        for at in partitions:
            self.believed.pop(at, None)
            self._lower_since.pop(at, None)
        self._responded -= partitions
        self._slowly_requested -= partitions
        self._tracker.partitions.forget_offsets(sorted(partitions), gone=gone)
        self._dropped |= partitions

    def _find_gone(self) -> set[TopicPartition]:
        """The missing partitions that were missing before the newest list was requested, and do not exist."""
        if self._topics.requested is None:
            return set()
        requested_s, has, denied = (
            self._topics.requested.at_s,
            self._topics.has_partition,
            self._topics.denied,
        )
        return {
            at
            for at, since_s in self._missing_since.items()
            if requested_s > since_s and has(at) is False and at[0] not in denied
        }

    def _watch(self, now: Moment) -> None:
        self.watched = set(self._tracker.watched_partitions())
        missing = [at for at in self.watched if not self._topics.has_partition(at)]
        self._missing_since = {at: self._missing_since.get(at, now.at_s) for at in missing}
        self._numbered = len(self._tracker.partitions.numbers)
        self._responded &= self.watched
        self._slowly_requested &= self.watched
        for known in (self.believed, self._lower_since):
            for at in known.keys() - self.watched:
                del known[at]
        self.forget_gone()
        self._begin_new_logs()
        if self._outdated:
            oldest = self._outbox.oldest_open_id()
            self._outdated = {at: last for at, last in self._outdated.items() if last >= oldest}

    def _begin_new_logs(self) -> None:
        """Drops what is known of topics that were created again since the last list of topics."""
        if self._topics.requested == self._compared:
            return
        before, self._compared = self._topic_ids, self._topics.requested
        self._topic_ids = {
            name: topic.id if topic else before.get(name) or None
            for name, topic in self._topics.topics.items()
        }
        again = {
            name
            for name, id_ in self._topic_ids.items()
            if id_ is not None and name in before and before[name] != id_
        }
        partitions = {at for at in self.watched if at[0] in again} if again else set()
        if partitions:
            self._responded -= partitions
            self._dropped |= partitions
            for at in partitions:
                self.believed.pop(at, None)
                self._lower_since.pop(at, None)
            self._drop_bounds(partitions, self._outbox.next_id(), ends=True)

    def _drop_bounds(self, partitions: set[TopicPartition], last: int, *, ends: bool = False) -> None:
        """Drops log start and last stable offsets, and end offsets if `ends`, up to request `last`."""
        self._slowly_requested -= partitions
        self._outdated.update(dict.fromkeys(partitions, last))
        self._tracker.forget_first_records(sorted(partitions))
        self._is_hurried = True
        if ends:
            self._tracker.partitions.forget_offsets(sorted(partitions), gone=False)
        else:
            unknown = dict.fromkeys(partitions, UNKNOWN)
            self._tracker.add_samples(starts=unknown, stables=unknown)

    def is_outdated(self, at: TopicPartition, pending: Pending[FetchOffsets] | Pending[Any]) -> bool:
        """Whether the result of that request may be of an earlier log of the partition."""
        return bool(pending.request.id <= self._outdated.get(at, -1))

    def _fetch(self, kind: OffsetKind, partitions: Collection[TopicPartition], now: Moment) -> None:
        waiting = {
            at
            for pending in self._outbox.list_open(FetchOffsets)
            if pending.requester is self and pending.request.kind == kind
            for at in pending.waiting
            if not self.is_outdated(at, pending)  # what is requested of an earlier log is requested again
        }
        partitions = frozenset(partitions) - waiting
        if partitions:
            self._outbox.send(FetchOffsets(self._outbox.next_id(), kind, partitions), self, now, TIMEOUT_S)

    def _believe(
        self, ends: Mapping[TopicPartition, int], pending: Pending[FetchOffsets], requested_ms: int
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """The end offsets of a response that are believed, and which of them went back."""
        believed, lower, id_ = {}, set(), pending.request.id
        for at, end in ends.items():
            newest = self.believed.get(at, _NONE)
            if id_ < newest.request_id:
                continue  # a later request had a response before
            if end < newest.end:
                first_s = self._lower_since.setdefault(at, pending.requested.at_s)
                if pending.requested.at_s - first_s < AGREE_S:
                    continue
                lower.add(at)
            if self._lower_since:
                self._lower_since.pop(at, None)
            believed[at] = end
            self.believed[at] = SampledEnd(end, id_, requested_ms)
        self._dropped |= lower
        return believed, lower
