"""Why a lag is null, or stranger than its number says."""

from __future__ import annotations

from enum import IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag.offsets import UNKNOWN, Offsets

Flags = bool | NDArray[np.bool_]
Times = int | NDArray[np.int64]
TopicIds = int | NDArray[Any]
"""Topic ids as numbers (codes of a table, or a UUID's `int`); 0 is Kafka's zero id, "none"."""


class Reason(IntFlag):
    """What there is to say about one row's lag. The names are for JSON and never change; eight bits."""

    NO_COMMIT = 1
    """The group has no committed offset here (or below 0: Kafka's tool reads it so)."""
    TOPIC_GONE = 2
    """The topic does not exist."""
    END_UNKNOWN = 4
    """The end offset could not be had, though the topic is there for all that is known."""
    TOPIC_RECREATED = 8
    """The commit was for a deleted topic of the same name: Kafka takes it as no commit (OffsetFetch v10)."""
    AHEAD_OF_LOG = 16
    """Committed beyond the end: truncation, unclean election, an old commit, or a commit that was wrong."""
    BELOW_LOG_START = 32
    """Records left the log before they were committed; the consumer will jump by `auto.offset.reset`."""

    @property
    def null(self) -> bool:
        """Whether the lag is null for this reason."""
        return bool(self & NULL)

    @property
    def names(self) -> tuple[str, ...]:
        """The names for JSON, such as `no_commit`, in the order of the bits."""
        return tuple(str(bit.name).lower() for bit in type(self) if bit & self)


NULL = Reason.NO_COMMIT | Reason.TOPIC_GONE | Reason.END_UNKNOWN | Reason.TOPIC_RECREATED
"""The reasons for which a lag is null, whatever numbers there are."""


def recreated(*, committed_topic_id: TopicIds, topic_id: TopicIds) -> NDArray[np.bool_]:
    """Whether the commit was made to another topic of the same name.

    Not said where either id is 0: slots written before Kafka 4.1 have none, and cannot be told apart.
    """
    has_both = np.not_equal(committed_topic_id, 0) & np.not_equal(topic_id, 0)
    different: NDArray[np.bool_] = has_both & np.not_equal(committed_topic_id, topic_id)
    return different


def reasons(
    *,
    end: Offsets,
    committed: Offsets,
    start: Offsets = UNKNOWN,
    topic_gone: Flags = False,
    committed_topic_id: TopicIds = 0,
    topic_id: TopicIds = 0,
    end_sampled_at_ms: Times = UNKNOWN,
    commit_seen_at_ms: Times = UNKNOWN,
) -> NDArray[np.uint8]:
    """`Reason` of every row, 0 where the lag is known and plain. Arguments broadcast.

    All that apply, less what another implies: a topic that is gone has no end.
    `AHEAD_OF_LOG` and `BELOW_LOG_START` are said only of lags that are known.

    Commits outrun sampled ends all the time. So "ahead" is said only when the end was asked for
    (`end_sampled_at_ms`: before the request went out) after the commit had arrived (`commit_seen_at_ms`),
    both by koff's clock; never where either is UNKNOWN.
    """
    has_commit = np.greater_equal(committed, 0)
    gone = np.asarray(topic_gone, bool)
    null = (
        _said(~has_commit, Reason.NO_COMMIT)
        | _said(gone, Reason.TOPIC_GONE)
        | _said(np.less(end, 0) & ~gone, Reason.END_UNKNOWN)
        | _said(
            has_commit & recreated(committed_topic_id=committed_topic_id, topic_id=topic_id),
            Reason.TOPIC_RECREATED,
        )
    )
    raced = np.less(commit_seen_at_ms, 0) | np.less_equal(end_sampled_at_ms, commit_seen_at_ms)
    strange = _said(np.greater(committed, end) & ~raced, Reason.AHEAD_OF_LOG) | _said(
        np.less(committed, start), Reason.BELOW_LOG_START
    )
    return np.where(null == 0, strange, null)


def _said(where: NDArray[np.bool_] | np.bool_, reason: Reason) -> NDArray[np.uint8]:
    return np.where(where, np.uint8(reason), np.uint8(0))
