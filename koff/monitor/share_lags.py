"""The lags of share groups from their coordinators, while `__share_group_state` may not be read."""

from __future__ import annotations

from koff.monitor.followed_log import FollowedLog
from koff.monitor.outbox import Ask, Outbox
from koff.monitor.requests import FetchShareLags, Moment, ShareLagsFetched
from koff.tracker import Tracker

TIMEOUT_S = 30.0


class ShareLags:
    """Requests the lags of share groups at each sample, as long as the log cannot be their source.

    The list of topics may lack the topic because koff may not DESCRIBE it. So that counts as denied, too.
    """

    def __init__(self, share: FollowedLog, offsets: FollowedLog, tracker: Tracker, outbox: Outbox) -> None:
        self._share, self._offsets, self._tracker, self._outbox = share, offsets, tracker, outbox
        self._is_source = self._was_requested = False

    def request(self, now: Moment) -> None:
        """Requests the lags from coordinators that have responded since the last request."""
        share = self._share
        is_closed = share.exists is False or share.denied is not None
        if not is_closed and self._is_source:
            self._tracker.forget_described_shares()
        self._is_source = is_closed
        self._was_requested &= is_closed
        if not (is_closed and self._tracker.has_share_groups):
            return
        open_requests = self._outbox.of_kind(FetchShareLags)
        being_asked = {p for ask in open_requests for p in ask.request.partitions - ask.answered}
        count = self._offsets.partition_count
        wanted = frozenset(range(count)) - being_asked
        if wanted:
            self._was_requested = True
            self._outbox.send(FetchShareLags(self._outbox.next_id(), wanted, count), now, TIMEOUT_S)

    @property
    def is_settled(self) -> bool:
        """Whether no request to a coordinator is open, and none has to be sent for the first time."""
        is_due = self._is_source and not self._was_requested and self._tracker.has_share_groups
        return not is_due and not self._outbox.has(FetchShareLags)

    def receive(self, given: ShareLagsFetched, ask: Ask[FetchShareLags], asked_ms: int) -> None:
        """Takes a response. `asked_ms` is when it was requested, by the clock of the tracker."""
        ask.answered |= given.partitions
        if self._is_source:  # else the log is the source again
            self._tracker.describe_share_groups(given.lags, given.partial, asked_ms=asked_ms)
