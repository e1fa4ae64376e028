"""The lags of share groups from their coordinators, while `__share_group_state` may not be read."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from koff.monitor.followed_log import FollowedLog
from koff.monitor.outbox import Ask, Outbox
from koff.monitor.requests import FetchShareLags, Moment, ShareLagsFetched
from koff.tracker import Tracker

TIMEOUT_S = 30.0
_SILENT = "not all of their coordinators have responded lately"
_NOT_RETURNED = "their coordinators returned no lags; koff needs DESCRIBE on the groups"


class _Answer(NamedTuple):
    """When the lags of a partition's groups were requested, and why there are none ("": there are)."""

    asked_s: float = float("-inf")
    error: str = ""


class ShareLags:
    """Requests the lags of share groups at each sample, as long as the log cannot be their source.

    The list of topics may lack the topic because koff may not DESCRIBE it. So that counts as denied, too.
    """

    def __init__(
        self, share: FollowedLog, offsets: FollowedLog, tracker: Tracker, outbox: Outbox, *, asks: bool
    ) -> None:
        """`asks`: coordinators may be the source."""
        self._share, self._offsets, self._tracker, self._outbox = share, offsets, tracker, outbox
        self._asks = asks
        self._is_source = self._was_requested = False
        self._answers: dict[int, _Answer] = {}  # the newest, by partition of the offsets topic

    def find_missing_why(self, since_s: float) -> str | None:
        """Why lags of share groups may be missing; None while the log is their source.

        Lags that were requested before `since_s` are too old.
        """
        share = self._share
        if not self._is_closed:
            return None
        if not self._asks:
            return share.denied or f"there is no topic {share.topic}, or koff may not DESCRIBE it"
        if error := self._find_error():
            return error
        is_silent = any(answer.asked_s < since_s for answer in self._present_answers())
        return _SILENT if is_silent else _NOT_RETURNED

    @property
    def _is_closed(self) -> bool:
        """Whether the log cannot be the source."""
        return self._share.exists is False or self._share.denied is not None

    def _present_answers(self) -> list[_Answer]:
        """The newest answer of each partition that there is."""
        return [self._answers.get(number, _Answer()) for number in range(self._offsets.partition_count)]

    def _find_error(self) -> str:
        return next((answer.error for answer in self._present_answers() if answer.error), "")

    def request(self, now: Moment) -> None:
        """Requests the lags from coordinators that have responded since the last request."""
        if not self._asks:
            return
        is_closed = self._is_closed
        if not is_closed and self._is_source:
            self._tracker.shares.forget_descriptions()
            self._answers = {}
        self._is_source = is_closed
        self._was_requested &= is_closed
        if not (is_closed and self._tracker.shares.has_share_groups()):
            return
        count = self._offsets.partition_count
        wanted = frozenset(range(count)) - self._outbox.being_fetched(FetchShareLags)
        if wanted:
            self._was_requested = True
            self._outbox.send(FetchShareLags(self._outbox.next_id(), wanted, count), now, TIMEOUT_S)

    @property
    def is_settled(self) -> bool:
        """Whether no request to a coordinator is open, and none has to be sent for the first time."""
        is_due = self._is_source and not self._was_requested and self._tracker.shares.has_share_groups()
        return not is_due and not self._outbox.has(FetchShareLags)

    def receive(self, given: ShareLagsFetched, ask: Ask[FetchShareLags], asked_ms: int, now: Moment) -> None:
        """Takes a response. `asked_ms` is when it was requested, by the clock of the tracker."""
        if self._is_source:  # else the log is the source again
            self._tracker.shares.describe(given.lags, given.partial, asked_ms=asked_ms)
            self._note(given.partitions, _Answer(ask.asked.at_s, given.why), now)
        ask.answered |= given.partitions

    def give_up(self, ask: Ask[FetchShareLags], why: str, now: Moment) -> None:
        """The request failed: coordinators that have not responded to it will not."""
        if self._is_source:
            self._note(ask.request.partitions - ask.answered, _Answer(ask.asked.at_s, why), now)

    def _note(self, partitions: Collection[int], answer: _Answer, now: Moment) -> None:
        """Notes the answer of these partitions. The first error is an event, and the end of all errors."""
        had_failed, count = bool(self._find_error()), self._offsets.partition_count
        answers = self._answers | dict.fromkeys(partitions, answer)
        self._answers = {number: newest for number, newest in answers.items() if number < count}
        error = self._find_error()
        if error and not had_failed:
            self._outbox.note(now, "lags of share groups are missing", warn=True, why=error)
        elif had_failed and not error:
            self._outbox.note(now, "all lags of share groups were returned")
