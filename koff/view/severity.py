"""Which of two groups is worse: first by the verdict, then by the time lag as a share of what is allowed."""

from __future__ import annotations

from koff.lag.judge import AGAIN
from koff.lag.verdict import Verdict

WORST_FIRST = (Verdict.ERR, Verdict.WARN, Verdict.UNKNOWN, Verdict.OK)
"""An unknown group may be worse than one that is well."""
CALM = AGAIN
"""Up to this share of its allowance, a group counts as not late at all: its incident would end there."""
