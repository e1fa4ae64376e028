"""The reasons why a lag is null, or is not what its number suggests."""

from enum import IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag.offsets import UNKNOWN, Offsets

Flags = bool | NDArray[np.bool_]
Times = int | NDArray[np.int64]
Bits = int | NDArray[np.uint8]
TopicIds = int | NDArray[Any]
"""Topic ids as numbers (codes of a table, or the `int` of a UUID). 0 is Kafka's zero id: none."""


class Reason(IntFlag):
    """What is special about the lag of a row. Eight bits; the names are in JSON, so they never change."""

    NO_COMMIT = 1
    """The group has no committed offset here, or one below 0, which Kafka's own tool reads as no commit."""
    TOPIC_GONE = 2
    """The topic does not exist."""
    END_UNKNOWN = 4
    """The end offset is unknown, although the topic is not known to be gone."""
    TOPIC_RECREATED = 8
    """The commit is from a deleted topic of the same name. OffsetFetch v10 treats it as no commit."""
    AHEAD_OF_LOG = 16
    """The committed offset is beyond the end: truncation, unclean election, an old or a wrong commit."""
    BELOW_LOG_START = 32
    """Records left the log before they were committed. The consumer will jump by `auto.offset.reset`."""
    COMMITS_NOT_CURRENT = 64
    """koff cannot tell whether the commit is still the newest: the log of commits is not read to its end."""
    END_NOT_CURRENT = 128
    """The end offset was not returned lately."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names in JSON, such as `no_commit`, in the order of the bits."""
        return tuple(str(bit.name).lower() for bit in type(self) if bit & self)


WITHHELD = Reason.COMMITS_NOT_CURRENT | Reason.END_NOT_CURRENT
"""The reasons that withhold a lag: koff may have the offsets, but cannot vouch for them now."""
NULL = Reason.NO_COMMIT | Reason.TOPIC_GONE | Reason.END_UNKNOWN | Reason.TOPIC_RECREATED | WITHHELD
"""The reasons that make a lag null, even if the offsets are known."""


def is_topic_recreated(*, committed_topic_id: TopicIds, topic_id: TopicIds) -> NDArray[np.bool_]:
    """Whether the commit was made to an earlier topic of the same name.

    False where either id is 0: commits written before Kafka 4.1 carry no topic id, so their topic is unknown.
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
    withheld: Bits = 0,
) -> NDArray[np.uint8]:
    """The `Reason` bits of every row, 0 where the lag is known and ordinary. Arguments broadcast.

    All reasons that apply are set, but no reason that another implies: a topic that is gone has no end
    offset, so `END_UNKNOWN` is not set with `TOPIC_GONE`. `AHEAD_OF_LOG` and `BELOW_LOG_START` are set only
    where the lag is known.

    Commits are often newer than the sampled end offsets. So `AHEAD_OF_LOG` is set only where the end offset
    was sampled after the commit arrived. `end_sampled_at_ms` is the time before the ListOffsets request was
    sent, `commit_seen_at_ms` the time at which koff read the commit, both by koff's clock. `AHEAD_OF_LOG` is
    never set where either is UNKNOWN.

    `withheld` has the `WITHHELD` bits of the rows. Such a row has no other reason: they all follow from
    offsets that are not current.
    """
    has_commit = np.greater_equal(committed, 0)
    gone = np.asarray(topic_gone, bool)
    # Reasons that make the lag null.
    null = (
        _set_where(~has_commit, Reason.NO_COMMIT)
        | _set_where(gone, Reason.TOPIC_GONE)
        | _set_where(np.less(end, 0) & ~gone, Reason.END_UNKNOWN)
        | _set_where(
            has_commit & is_topic_recreated(committed_topic_id=committed_topic_id, topic_id=topic_id),
            Reason.TOPIC_RECREATED,
        )
    )
    # Reasons to doubt a lag that is known. A commit that arrived after the end offset was sampled may be
    # ahead of that end, but need not be ahead of the log.
    may_have_raced = np.less(commit_seen_at_ms, 0) | np.less_equal(end_sampled_at_ms, commit_seen_at_ms)
    doubtful = _set_where(np.greater(committed, end) & ~may_have_raced, Reason.AHEAD_OF_LOG) | _set_where(
        np.less(committed, start), Reason.BELOW_LOG_START
    )
    found = np.where(null == 0, doubtful, null)
    return np.where(np.not_equal(withheld, 0), np.uint8(withheld), found)


def _set_where(where: NDArray[np.bool_] | np.bool_, reason: Reason) -> NDArray[np.uint8]:
    return np.where(where, np.uint8(reason), np.uint8(0))
