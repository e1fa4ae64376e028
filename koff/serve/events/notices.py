"""Hands events to webhooks: at once, or as the standby of another koff."""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from koff.logs import get_logger
from koff.serve.events.event import ClusterEvent, format_time
from koff.serve.events.first_koff import FirstKoff
from koff.serve.events.notice_queue import Lasting
from koff.serve.events.sentences import describe_group, find_severity, name_owner
from koff.serve.events.standby import FirstAnswer, Standby, Turn
from koff.serve.events.webhook import Webhooks
from koff.view.cause_texts import ADVICE
from koff.view.cluster_view import ClusterView
from koff.view.incidents import Incident
from koff.view.wording import show_duration

log = get_logger("events")
_LATE = FirstAnswer(why="it has not responded in time")


class Notices:
    """Hands events to `webhooks`. With the URL of a `first` koff, only those that the first may not send.

    One thread calls it, and no call waits for the first. `instance` names this process.
    """

    def __init__(self, webhooks: Webhooks, first: str | None = None) -> None:
        self.instance = secrets.token_hex(8)
        self._webhooks, self._first = webhooks, FirstKoff(first) if first else None
        self._standbys: dict[str, Standby] = {}

    def send(self, cluster: str, events: Sequence[ClusterEvent]) -> None:
        """Takes new events of a cluster."""
        if self._first is None:
            self._webhooks.send(events)
        else:
            self._find_standby(cluster).add(events, time.monotonic())

    def look(self, views: Sequence[ClusterView], now_ms: int) -> None:
        """Takes the present views, and sends what it is time for."""
        named = {view.cluster: view for view in views if view.cluster is not None}
        taken_over: set[str] = set()
        if self._first is not None:
            taken_over = self._look_at(self._first, named, now_ms)
            named = {cluster: view for cluster, view in named.items() if self._standbys[cluster].sends}
        if taken_over or self._webhooks.reminds:
            self._webhooks.remind(list_lasting(named.values(), now_ms), taken_over)

    def stop(self) -> None:
        """Sends the events that the first may not send."""
        for standby in self._standbys.values():
            self._webhooks.send(standby.take(time.monotonic(), is_last=True))

    def _look_at(self, first: FirstKoff, views: Mapping[str, ClusterView], now_ms: int) -> set[str]:
        """Sends what the first may not send. If this koff takes over, returns the keys of what else lasts."""
        for cluster in views:
            self._find_standby(cluster)
        answers, now_s = first.take_answers(), time.monotonic()
        lasting: set[str] = set()
        for cluster, standby in self._standbys.items():
            view = views.get(cluster)
            turn = None
            if answers is not None:
                answer = answers.get(cluster, _LATE)
                turn = standby.note(answer, now_s, is_ready=view is not None and view.readiness.ready)
                _log_turn(turn, cluster=cluster, first=first.url, why=answer.why)
            events = standby.take(now_s)
            self._webhooks.send(events)
            if turn == "takes over" and view is not None:
                lasting |= list_lasting([view], now_ms).keys() - {event.key for event in events}
        first.ask(self._standbys)
        return lasting

    def _find_standby(self, cluster: str) -> Standby:
        if cluster not in self._standbys:
            self._standbys[cluster] = Standby(self.instance, time.monotonic())
        return self._standbys[cluster]


def _log_turn(turn: Turn | None, *, why: str, **place: str) -> None:
    if turn == "takes over":
        log.warning("the first koff does not see the cluster: this koff sends its events", **place, why=why)
    elif turn == "gives back":
        log.info("the first koff sends the events of the cluster again", **place)


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
