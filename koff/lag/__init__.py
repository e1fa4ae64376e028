"""The rules of lag, as functions of numbers and of arrays. Nobody else writes a rule down."""

from koff.lag.history import EndHistory
from koff.lag.offsets import UNKNOWN, Lags, lag, lag_to_stable, lags, lost, published, readable
from koff.lag.reasons import NULL, Reason, reasons, recreated
from koff.lag.timelag import TimeLags, time_lag_s

__all__ = [
    "NULL",
    "UNKNOWN",
    "EndHistory",
    "Lags",
    "Reason",
    "TimeLags",
    "lag",
    "lag_to_stable",
    "lags",
    "lost",
    "published",
    "readable",
    "reasons",
    "recreated",
    "time_lag_s",
]
