"""Notices of incidents that last."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from koff.serve.events.event import ClusterEvent, format_time
from koff.serve.events.notice_queue import Lasting
from koff.serve.events.sentences import describe_group, find_severity, name_owner
from koff.view.cause_texts import ADVICE
from koff.view.cluster_view import ClusterView
from koff.view.incidents import Incident
from koff.view.wording import show_duration


def list_lasting(views: Iterable[ClusterView], now_ms: int) -> Lasting:
    """The incidents of these views that last. There may be thousands, so their texts are built later."""
    return {
        incident.key: partial(build_reminder, view, incident, now_ms)
        for view in views
        for incident in view.activity.incidents.open.values()
        if view.shown.shows_group(incident.group)
    }


def build_reminder(view: ClusterView, incident: Incident, now_ms: int) -> ClusterEvent:
    """Tells that the incident lasts. Its severity is that of the worst verdict."""
    duration_s = max(0, now_ms - incident.opened_ms) / 1000
    verdict, _, why = incident.steps[-1][1:] if incident.steps else (incident.worst.name, "", "")
    causes = [{"cause": incident.cause.label, "text": why, "advice": ADVICE[incident.cause]}] if why else []
    fields = describe_group(
        incident.group,
        f"{verdict} for {show_duration(duration_s)} now: {why or 'it is late'}; the group was at most"
        f" {incident.lag:,} offsets and {show_duration(incident.time_lag_s)} behind",
        status=verdict,
        duration_s=duration_s,
        worst=incident.worst.name,
        worst_lag=incident.lag,
        worst_time_lag_s=incident.time_lag_s,
        causes=causes,
    )
    severity, key = find_severity(incident.worst), incident.key
    event = ClusterEvent(
        str(view.cluster),
        "incident_lasts",
        severity,
        key=key,
        id=f"{key}/{now_ms}",
        time=format_time(now_ms),
        **fields,
    )
    return name_owner(event, view)
