"""The rules of lag, as pure functions of numbers and arrays. No other package states a rule of lag."""

from koff.lag.end_history import Ages, Curves, EndHistory
from koff.lag.late_causes import Cause
from koff.lag.offsets import (
    UNKNOWN,
    Lags,
    lag,
    lag_to_stable,
    lags,
    lost,
    published_lag,
    readable,
    share_committed_offset,
)
from koff.lag.rates import (
    NEVER,
    CatchUps,
    Rates,
    consume_rates,
    produce_rates,
    seconds_until_caught_up,
    usual_lags,
)
from koff.lag.reasons import NULL, WITHHELD, Reason, is_topic_recreated, reasons
from koff.lag.status import ENDS_SPAN_MS, Status, group_completeness, group_status, status
from koff.lag.thinning import PRECISION
from koff.lag.time_lag import NO_RECORD, NO_TIMESTAMP, FirstRecords, TimeLags, refine_with_records, time_lag_s
from koff.lag.window import (
    WINDOW,
    Features,
    Mark,
    Placement,
    lacks_commit_time,
    placements,
    window_features,
)

__all__ = [
    "ENDS_SPAN_MS",
    "NEVER",
    "NO_RECORD",
    "NO_TIMESTAMP",
    "NULL",
    "PRECISION",
    "UNKNOWN",
    "WINDOW",
    "WITHHELD",
    "Ages",
    "CatchUps",
    "Cause",
    "Curves",
    "EndHistory",
    "Features",
    "FirstRecords",
    "Lags",
    "Mark",
    "Placement",
    "Rates",
    "Reason",
    "Status",
    "TimeLags",
    "consume_rates",
    "group_completeness",
    "group_status",
    "is_topic_recreated",
    "lacks_commit_time",
    "lag",
    "lag_to_stable",
    "lags",
    "lost",
    "placements",
    "produce_rates",
    "published_lag",
    "readable",
    "reasons",
    "refine_with_records",
    "seconds_until_caught_up",
    "share_committed_offset",
    "status",
    "time_lag_s",
    "usual_lags",
    "window_features",
]
