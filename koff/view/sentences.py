"""The one sentence about a group: what is wrong, since when, and how much waits."""

from collections.abc import Sequence

from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal
from koff.view.cause_texts import Finding
from koff.view.verdicts import CALM
from koff.view.wording import count, show_duration

_HEADS: dict[Cause, str] = {
    Cause.FELL_OUT_OF_LOG: "Records lost",
    Cause.OPEN_TRANSACTION: "Blocked",
    Cause.NO_MEMBERS: "Stopped",
    Cause.HELD_BACK_COMMITS: "Blocked",
    Cause.NOT_COMMITTING: "Stopped",
    Cause.STUCK_PARTITION: "Stuck",
}
"""The first word about a late group, where the cause says since when. All other causes have "Late for"."""
_UNKNOWN: dict[str, str] = {
    "": "not enough was seen yet to judge it",
    "commits_not_current": "its commits are not read up to now",
    "rows_missing": "some of its partitions are missing",
    "lags_withheld": "some of its lags are not current",
    "lags_unknown": "none of its lags is known",
    "no_partitions": "it has committed nothing and reads nothing",
}
"""Why there is no verdict, by the reason why the lag is unknown."""


def describe_verdict(total: GroupTotal, found: Sequence[Finding] | None) -> str:
    """The sentence. `found` are the causes of the lag, the first one first; None if the lag is withheld."""
    return write_sentence(
        total.status,
        found or (),
        total.lag,
        total.time_lag_s,
        allowance_s=total.allowance_s,
        late_for_s=total.late_for_s,
        reason=total.reason,
    )


def write_sentence(
    verdict: Verdict,
    found: Sequence[Finding],
    lag: int | None,
    time_lag_s: float | None,
    *,
    allowance_s: float | None = None,
    late_for_s: float | None = None,
    reason: str = "",
) -> str:
    """The same of a group that may be `allowance_s` late, and whose open incident lasts for `late_for_s`."""
    is_late = verdict in (Verdict.WARN, Verdict.ERR)
    why, waiting = _describe_late(found, late_for_s), _describe_waiting(lag, time_lag_s)
    if verdict is Verdict.UNKNOWN:
        why = f"Unknown: {_UNKNOWN.get(reason, reason)}"
    elif lag is None:  # the verdict is that of the last look at which the lag was known
        why = why if is_late else "Kept up before"
        waiting = f"not known now: {_UNKNOWN.get(reason, reason)}"
    elif not is_late:
        # A group that has just stopped does not keep up: it is only not late yet.
        is_near = allowance_s is not None and time_lag_s is not None and time_lag_s > allowance_s * CALM
        keeps_up = "Keeps up" if late_for_s is None else "Keeps up again"
        why = f"Not late yet: {show_duration(allowance_s or 0)} is allowed" if is_near else keeps_up
    return f"{why}; {waiting}" if waiting else why


def _describe_late(found: Sequence[Finding], late_for_s: float | None) -> str:
    late = f"Late for {show_duration(late_for_s)}" if late_for_s else "Late"
    return f"{_HEADS.get(found[0].cause, late)}: {found[0].text}" if found else late


def _describe_waiting(lag: int | None, time_lag_s: float | None) -> str:
    """How much waits; "" if nothing does, or if that is unknown."""
    if not lag:
        return ""
    oldest = f", the oldest for {show_duration(time_lag_s)}" if time_lag_s is not None else ""
    return f"{count(lag, 'record')} {'waits' if lag == 1 else 'wait'}{oldest}"
