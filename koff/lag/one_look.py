"""The verdict on each row by itself, from one look: of rows whose group nobody follows over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from koff.lag.judge import Judge
from koff.lag.rates import Rates
from koff.lag.time_lag import TimeLags
from koff.lag.verdict_sample import Floats, Ints, Mask, VerdictSample


def judge_rows(
    *,
    at_s: float,
    counts: Mask,
    committed: Ints,
    start: Ints,
    end: Ints,
    times: TimeLags,
    moved_at_s: Floats,
    consume: Rates,
    produce: Rates,
    is_empty: Mask,
) -> NDArray[np.uint8]:
    """The `Verdict` of each row (N,) at the time `at_s`: by the rule of `koff.lag.verdict`, without learning.

    Offsets are -1 where unknown. `counts` is False of rows on which there is no verdict. `moved_at_s` is when
    the committed offset last changed (NaN: unknown), and `is_empty` says that the group has no members, and
    had some before.
    """
    size = len(counts)
    unknown, nothing = np.full(size, -1), np.zeros(size, np.bool_)
    sample = VerdictSample(
        at_s=at_s,
        group=np.arange(size),
        counts=counts,
        committed=committed,
        start=start,
        end=end,
        stable=unknown,
        held_s=np.zeros(size),
        member=unknown,
        subscribed=~nothing,
        assigned=~nothing,
        produce_per_s=np.where(produce.known, produce.per_s, np.nan),
        consume_per_s=np.where(consume.known, consume.per_s, np.nan),
        late_s=np.where(times.known, times.seconds, np.nan),
        at_least=times.at_least,
        moved_at_s=moved_at_s,
        objective_s=np.full(size, np.nan),
        retention_s=np.full(size, np.nan),
        members=np.where(is_empty, 0, unknown),
        epoch=unknown,
        rebalances=np.zeros(size, np.int64),
        commits_held_back=nothing,
    )
    return Judge(size, size).judge(sample).verdict
