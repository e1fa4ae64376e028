"""Facts of a view for the terminal: why groups lag, and which lags koff does not know."""

from __future__ import annotations

from collections.abc import Sequence

from koff.lag import WITHHELD
from koff.serve.api.group_columns import GroupPlace, find_group_causes
from koff.tracker import GroupTotal, PartitionLag
from koff.view.cause_texts import Finding
from koff.view.cluster_view import ClusterView
from koff.view.wording import show

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
    """By group, what there is to say of it."""
    causes = find_causes(view, totals)
    return {
        total.group.name: total.reason or (found[0].text if (found := causes[total.group.name]) else "")
        for total in totals
    }


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
