"""What a request to a webhook has in it: `TEMPLATES` has an entry for each service, by the name in koff.yaml.

The services and their limits: incoming webhooks of Slack; Workflows of Teams, which take an Adaptive Card of
at most 28 KB; PagerDuty's Events API v2; Opsgenie's Alert API, which Jira Service Management has, too;
Alertmanager's API v2.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from string import Template
from typing import Any, NamedTuple
from urllib.parse import quote

from koff.errors import ConfigError
from koff.serve.events.event import ClusterEvent, Severity

AT_ONCE = 100
"""So many events are in one request at most."""
OF_ONE = ("key", "action", "severity")
"""Names in a template that are of one event. `action` is trigger, or resolve if the event ends something."""
PASSES_S = 3600.0
"""Alertmanager takes an event that nothing will end as an alert that lasts so long."""


class WebhookRequest(NamedTuple):
    """A request: its body, and what follows the path of the webhook's URL."""

    body: bytes
    path: str = ""
    content_type: str = "application/json"


class Filling(NamedTuple):
    """What the requests of a webhook need besides events. An alert lasts for `lasts_s` without a reminder."""

    routing_key: str = ""
    lasts_s: float = 86_400.0


Build = Callable[[Sequence[ClusterEvent], Filling], WebhookRequest]


class NoticeTemplate(NamedTuple):
    """How requests are built: of `at_once` events at most.

    A receiver that `keeps_alerts` has an alert for each key, from the event that opens it to the one that
    ends it: so it must get each end.
    """

    build: Build
    at_once: int = AT_ONCE
    keeps_alerts: bool = False


def find_template(given: str) -> NoticeTemplate:
    """The template of that name, or from that JSON. Raises `ConfigError`."""
    if given in TEMPLATES:
        return TEMPLATES[given]
    _check_json(given)
    names = {found["named"] or found["braced"] for found in Template.pattern.finditer(given)}
    is_of_one = bool(names.intersection(OF_ONE))

    def build(events: Sequence[ClusterEvent], _: Filling) -> WebhookRequest:
        first = events[0]
        values = {
            "events": [event.to_json() for event in events],
            "text": _join_texts(events),
            "key": first.thing,
            "action": _find_action(first),
            "severity": str(first.severity),
        }
        texts = {name: json.dumps(value) for name, value in values.items()}
        return WebhookRequest(Template(given).substitute(texts).encode())

    return NoticeTemplate(build, 1 if is_of_one else AT_ONCE, {"key", "action"} <= names)


def _check_json(template: str) -> None:
    """Raises `ConfigError` if the template is not JSON once its names are replaced."""
    if re.fullmatch("[a-z]+", template):
        raise ConfigError(f"a webhook has no template {template!r}: use {', '.join(TEMPLATES)}, or JSON")
    try:
        json.loads(
            Template(template).substitute(events="[]", **dict.fromkeys(("text", *OF_ONE), '""')).encode()
        )
    except KeyError as error:
        names = ", ".join(f"${name}" for name in ("events", "text", *OF_ONE))
        raise ConfigError(f"the template of a webhook has ${error.args[0]}: use {names}") from None
    except ValueError as error:
        raise ConfigError(f"the template of a webhook is not JSON: {error}") from None


def _join_texts(events: Sequence[ClusterEvent]) -> str:
    return "\n".join(event.text for event in events)


def _find_action(event: ClusterEvent) -> str:
    return "trigger" if event.ends is None else "resolve"


def _encode(value: Any, path: str = "") -> WebhookRequest:
    return WebhookRequest(json.dumps(value).encode(), path)


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _build_events(events: Sequence[ClusterEvent], _: Filling) -> WebhookRequest:
    return _encode({"events": [event.to_json() for event in events]})


def _build_plain(events: Sequence[ClusterEvent], _: Filling) -> WebhookRequest:
    """The sentences, as ntfy and programs of one's own take them."""
    lines = [f"{event.text}{_show_contact(event)}{_join(' ', event.runbook_url)}" for event in events]
    return WebhookRequest("\n".join(lines).encode(errors="replace"), "", "text/plain; charset=utf-8")


def _show_contact(event: ClusterEvent) -> str:
    return f" ({event.owner.contact})" if event.owner and event.owner.contact else ""


def _join(before: str, text: str | None) -> str:
    return f"{before}{text}" if text else ""


def _build_slack(events: Sequence[ClusterEvent], _: Filling) -> WebhookRequest:
    return _encode({"text": "\n".join(map(_write_slack_line, events))})


def _write_slack_line(event: ClusterEvent) -> str:
    runbook = f" <{_escape_slack(event.runbook_url)}|runbook>" if event.runbook_url else ""
    return f"{_SLACK_MARKS[_find_look(event)]} {_escape_slack(event.text + _show_contact(event))}{runbook}"


def _escape_slack(text: str) -> str:
    """The text, in which Slack finds no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _find_look(event: ClusterEvent) -> Severity | None:
    """How bad it is now. None: it is over."""
    return event.severity if event.ends is None else None


_SLACK_MARKS = {
    None: ":white_check_mark:",
    Severity.INFO: ":information_source:",
    Severity.WARNING: ":large_orange_circle:",
    Severity.ERROR: ":red_circle:",
}
_TEAMS_COLORS = {
    None: "good",
    Severity.INFO: "default",
    Severity.WARNING: "warning",
    Severity.ERROR: "attention",
}
_TEAMS_AT_ONCE, _TEAMS_TEXT = 20, 1000


def _build_teams(events: Sequence[ClusterEvent], _: Filling) -> WebhookRequest:
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [
            {"type": "RichTextBlock", "inlines": runs}
            for event in events
            for runs in _write_teams_lines(event)
        ],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return _encode({"type": "message", "attachments": [attachment]})


def _write_teams_lines(event: ClusterEvent) -> list[list[dict[str, Any]]]:
    """Text runs by line: Teams finds no Markdown in them."""
    text, color = event.text[:_TEAMS_TEXT] + _show_contact(event), _TEAMS_COLORS[_find_look(event)]
    lines: list[list[dict[str, Any]]] = [
        [{"type": "TextRun", "text": line, "color": color}] for line in text.splitlines()
    ]
    if event.runbook_url:
        action = {"type": "Action.OpenUrl", "url": event.runbook_url}
        lines[-1].append({"type": "TextRun", "text": " runbook", "selectAction": action})
    return lines


def _build_pagerduty(events: Sequence[ClusterEvent], filling: Filling) -> WebhookRequest:
    event = events[0]
    head = {"routing_key": filling.routing_key, "event_action": _find_action(event), "dedup_key": event.thing}
    if event.ends is not None:
        return _encode(head)
    payload = {
        "summary": event.text[:1024],
        "severity": str(event.severity),
        "source": event.cluster,
        "timestamp": event.time,
        "component": event.group,
        "group": event.owner.team if event.owner else None,
        "class": event.kind,
        "custom_details": _describe(event),
    }
    links = [{"href": event.runbook_url, "text": "Runbook"}] if event.runbook_url else []
    return _encode({**head, "client": "koff", "payload": _drop_none(payload), "links": links})


def _describe(event: ClusterEvent) -> dict[str, Any]:
    about = event.to_json()
    return {name: about[name] for name in ("topic", "partition", "owner", "details") if name in about}


def _build_opsgenie(events: Sequence[ClusterEvent], _: Filling) -> WebhookRequest:
    event = events[0]
    alias = event.thing.replace("/", ":")  # servers take %2F in a path for the end of a part
    if event.ends is not None:
        path = f"/{quote(alias, safe=':')}/close?identifierType=alias"
        return _encode({"source": "koff", "note": event.text[:25_000]}, path)
    owner = event.owner
    details = {
        "cluster": event.cluster,
        "kind": event.kind,
        "team": owner.team if owner else None,
        "contact": owner.contact if owner else None,
        "runbook": event.runbook_url,
    }
    alert = {
        "message": event.text[:130],
        "alias": alias,
        "description": event.text[:15_000],
        "entity": event.group or event.cluster,
        "source": "koff",
        "priority": _PRIORITIES[event.severity],
        "tags": ["koff", event.kind],
        "details": _drop_none(details),
    }
    return _encode(alert)


_PRIORITIES = {Severity.INFO: "P5", Severity.WARNING: "P3", Severity.ERROR: "P1"}


def _build_alertmanager(events: Sequence[ClusterEvent], filling: Filling) -> WebhookRequest:
    alerts = []
    for event in events:
        if event.ends is None:
            alerts.append(_build_alert(event, event.severity, filling.lasts_s if event.key else PASSES_S))
        else:
            alerts.append(_build_alert(event, event.ends, None))
        if event.kind == "incident_raised":  # the severity is a label, so that there are two alerts
            alerts.append(_build_alert(event, Severity.WARNING, None))
    return _encode(alerts)


def _build_alert(event: ClusterEvent, severity: Severity, lasts_s: float | None) -> dict[str, Any]:
    """An alert that lasts, or that is over (None). Without an end, it would be over after five minutes."""
    words = _THINGS.get(event.kind, event.kind).split("_")
    labels = {
        "alertname": "Koff" + "".join(map(str.capitalize, words)),
        "cluster": event.cluster,
        "group": event.group,
        "owner": event.owner.team if event.owner else None,
        "severity": "critical" if severity is Severity.ERROR else str(severity),
    }
    annotations = {
        "summary": event.text,
        "contact": event.owner.contact if event.owner else None,
        "runbook_url": event.runbook_url,
    }
    alert = {"labels": _drop_none(labels), "annotations": _drop_none(annotations)}
    if lasts_s is None:
        return {**alert, "endsAt": event.time}
    ends_at = datetime.fromisoformat(event.time) + timedelta(seconds=lasts_s)
    return {**alert, "startsAt": event.time, "endsAt": ends_at.isoformat()}


_THINGS = {
    **dict.fromkeys(("incident_opened", "incident_raised", "incident_lasts", "incident_closed"), "incident"),
    "recovered": "blind",
    "expected_group_back": "expected_group_absent",
}
"""The name of the alert of several kinds of events."""

TEMPLATES: dict[str, NoticeTemplate] = {
    "events": NoticeTemplate(_build_events),
    "plain": NoticeTemplate(_build_plain),
    "slack": NoticeTemplate(_build_slack),
    "teams": NoticeTemplate(_build_teams, _TEAMS_AT_ONCE),
    "pagerduty": NoticeTemplate(_build_pagerduty, 1, keeps_alerts=True),
    "opsgenie": NoticeTemplate(_build_opsgenie, 1, keeps_alerts=True),
    "alertmanager": NoticeTemplate(_build_alertmanager, keeps_alerts=True),
}
