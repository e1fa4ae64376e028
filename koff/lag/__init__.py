"""The rules of lag, as functions of numbers and of arrays. Nobody else writes a rule down."""

from koff.lag.end_history import Curves, EndHistory
from koff.lag.offsets import UNKNOWN, Lags, lag, lag_to_stable, lags, lost, published, readable, share_done
from koff.lag.rates import (
    NEVER,
    CatchUps,
    Rates,
    consume_rates,
    produce_rates,
    seconds_until_caught_up,
    usual_lags,
)
from koff.lag.reasons import NULL, Reason, reasons, recreated
from koff.lag.status import ENDS_SPAN_MS, Status, group_completeness, group_status, status
from koff.lag.time_lag import NO_RECORD, NO_TIMESTAMP, FirstRecords, TimeLags, time_lag_s, with_records
from koff.lag.window import WINDOW, Features, Mark, Placement, placements, window_features

__all__ = [
    "ENDS_SPAN_MS",
    "NEVER",
    "NO_RECORD",
    "NO_TIMESTAMP",
    "NULL",
    "UNKNOWN",
    "WINDOW",
    "CatchUps",
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
    "lag",
    "lag_to_stable",
    "lags",
    "lost",
    "placements",
    "produce_rates",
    "published",
    "readable",
    "reasons",
    "recreated",
    "seconds_until_caught_up",
    "share_done",
    "status",
    "time_lag_s",
    "usual_lags",
    "window_features",
    "with_records",
]
