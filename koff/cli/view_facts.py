"""Facts of a view for the terminal: why groups lag, and which lags koff does not know."""

from collections.abc import Sequence

from koff.lag import WITHHELD
from koff.lag.verdict import Verdict
from koff.serve.api.group_columns import GroupPlace, find_group_causes
from koff.tracker import GroupTotal, PartitionLag
from koff.view.cause_texts import Finding
from koff.view.cluster_view import ClusterView
from koff.view.lag_history import find_last_known
from koff.view.sentences import describe_verdict
from koff.view.wording import count, show, show_duration

WITHHELD_TOTALS = frozenset({"commits_not_current", "rows_missing", "lags_withheld"})
"""The reasons of totals that koff withholds."""
_NAMED = 5


def find_causes(view: ClusterView, totals: Sequence[GroupTotal]) -> dict[str, list[Finding] | None]:
    """By group, why it lags."""
    shown = {total.group.name for total in totals}
    return {
        group.name: find_group_causes(GroupPlace(view, number, place))
        for number, shard in view.snapshot.shards.items()
        for place, group in enumerate(shard.groups)
        if group.name in shown
    }


def describe_groups(view: ClusterView, totals: Sequence[GroupTotal]) -> dict[str, str]:
    """By group, the sentence about it. Where its lag is withheld, it begins with the last one known."""
    causes = find_causes(view, totals)
    return {
        total.group.name: _describe_withheld(view, total) + describe_verdict(total, causes[total.group.name])
        for total in totals
    }


def _describe_withheld(view: ClusterView, total: GroupTotal) -> str:
    if total.reason not in WITHHELD_TOTALS:
        return ""
    last = find_last_known(view.activity.history.find(total.group.name))
    if last is None:
        return "" if total.status is Verdict.UNKNOWN else "Withheld. "
    lag = count(int(last.lag), "record")
    return f"Withheld: {lag} waited {show_duration(last.age_s)} ago, when koff last knew. "


def list_unknown(view: ClusterView, rows: Sequence[PartitionLag], totals: Sequence[GroupTotal]) -> list[str]:
    """A text for each thing that koff could not find out, with the reason. Empty if koff knows all lags."""
    causes = [] if view.readiness.ready else [view.readiness.text]
    withheld = [row for row in rows if row.reasons & WITHHELD]
    if withheld:
        names = sorted({name for row in withheld for name in (row.reasons & WITHHELD).names})
        causes.append(f"{len(withheld)} of {len(rows)} lags are not known ({', '.join(names)})")
    causes += view.stats.missing
    shares = sorted(show(total.group.name) for total in totals if not total.whole)
    if shares:
        named = ", ".join([*shares[:_NAMED], *(["..."] if len(shares) > _NAMED else [])])
        why = f": {view.stats.missing_shares_why}" if view.stats.missing_shares_why else ""
        causes.append(f"lags of {len(shares)} share groups are missing ({named}){why}")
    return causes
