"""Offsets by time: from them, the age of records is known that are older than the first sample."""

from collections.abc import Mapping

from koff.client.cluster_conf import TopicPartition
from koff.client.offsets.lister import OffsetLister
from koff.monitor.past_ends import NO_RECORD, PastEnds
from koff.tracker import Tracker

Place = tuple[str, int]
PastOffsets = Mapping[int, Mapping[Place, int]]
"""By time in ms: the first offset of partitions with a record at that time or later."""


class PastOffsetSearch:
    """Finds, by the daemon's plan, how old the oldest uncommitted records of a cluster are, within 20 %."""

    def __init__(self, lister: OffsetLister) -> None:
        self._lister, self._plan = lister, PastEnds()

    def fetch(self, tracker: Tracker, ends: Mapping[Place, int], at_ms: int) -> PastOffsets:
        """The offsets that the tracker needs. `ends` are those of the sample at `at_ms`.

        Partitions whose leader does not respond are asked with a later sample. Raises `ConnectError`.
        """
        found: dict[int, dict[Place, int]] = {}
        undated = tracker.find_undated(at_ms)
        while requests := self._plan.wanted(undated, at_ms):
            for past_ms, places in requests:
                listed = self._lister.list_offsets(map(TopicPartition._make, sorted(places)), past_ms)
                answered = ((at, each) for at, each in listed.items() if not isinstance(each, str))
                offsets = {(at.topic, at.partition): each.offset for at, each in answered}
                # Without a record that late, that was the end offset at that time, too. An offset beyond the
                # sampled end is that of another log.
                known = {
                    at: ends[at] if offset == NO_RECORD else offset
                    for at, offset in offsets.items()
                    if at in ends and offset <= ends[at]
                }
                self._plan.note(known, past_ms)
                self._plan.note_failed(places - known.keys(), past_ms, at_ms)
                found.setdefault(past_ms, {}).update(known)
        return {
            past_ms: {at: offset for at, offset in of_time.items() if self._plan.is_needed(at, past_ms)}
            for past_ms, of_time in sorted(found.items())
        }
