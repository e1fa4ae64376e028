"""The rules of lag, as functions of numbers and of arrays. Nobody else writes a rule down."""

from koff.lag.offsets import UNKNOWN, Lags, lag, lag_to_stable, lags, lost, published, readable
from koff.lag.reasons import NULL, Reason, reasons, recreated

__all__ = [
    "NULL",
    "UNKNOWN",
    "Lags",
    "Reason",
    "lag",
    "lag_to_stable",
    "lags",
    "lost",
    "published",
    "readable",
    "reasons",
    "recreated",
]
