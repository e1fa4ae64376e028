"""What the requests of each service have in them."""

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from koff.errors import ConfigError
from koff.serve.events.event import ClusterEvent, Severity, format_time
from koff.serve.events.examples import build_examples
from koff.serve.events.templates import TEMPLATES, Filling, WebhookRequest, find_template
from koff.view.owners import Owner

AT_MS = 1_795_225_081_984
OWNER = Owner(re.compile("g"), "search", "<!here> & #search")
OPENED = ClusterEvent(
    "eu",
    "incident_opened",
    Severity.WARNING,
    "group <g>: late",
    group="<g>",
    topic="t",
    partition=3,
    details={"lag": 5},
    key="eu/1/<g>",
    id="1-1",
    time=format_time(AT_MS),
    owner=OWNER,
    runbook_url="https://wiki/?a=b&c=d",
)
RAISED = replace(OPENED, kind="incident_raised", severity=Severity.ERROR)
CLOSED = replace(
    OPENED, kind="incident_closed", severity=Severity.INFO, ends=Severity.ERROR, text="it is OK again"
)
RESET = replace(OPENED, kind="offsets_reset", key="", owner=None, runbook_url=None)
BLIND = ClusterEvent(
    "eu", "blind", Severity.ERROR, "koff is not ready", key="eu/blind", time=format_time(AT_MS)
)
FILLING = Filling("the key", 3600.0)


def build(name: str, *events: ClusterEvent) -> WebhookRequest:
    return TEMPLATES[name].build(events, FILLING)


def build_json(name: str, *events: ClusterEvent) -> Any:
    request = build(name, *events)
    assert request.content_type == "application/json"
    return json.loads(request.body)


def test_plain_text_has_a_line_for_each_event():
    request = build("plain", OPENED, BLIND)
    assert request.content_type == "text/plain; charset=utf-8"
    assert request.body.decode().splitlines() == [
        "group <g>: late (<!here> & #search) https://wiki/?a=b&c=d",
        "koff is not ready",
    ]


def test_slack_gets_no_mention_and_no_link_but_the_runbook():
    assert build_json("slack", OPENED, CLOSED, BLIND)["text"].splitlines() == [
        ":large_orange_circle: group &lt;g&gt;: late (&lt;!here&gt; &amp; #search) "
        "<https://wiki/?a=b&amp;c=d|runbook>",
        ":white_check_mark: it is OK again (&lt;!here&gt; &amp; #search) <https://wiki/?a=b&amp;c=d|runbook>",
        ":red_circle: koff is not ready",
    ]


def test_teams_gets_a_card_with_texts_that_are_no_markdown():
    summary = replace(BLIND, kind="summary", text="2 events:\n- one")
    (attachment,) = build_json("teams", OPENED, summary)["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    blocks = attachment["content"]["body"]
    assert {block["type"] for block in blocks} == {"RichTextBlock"}
    assert [[run["text"] for run in block["inlines"]] for block in blocks] == [
        ["group <g>: late (<!here> & #search)", " runbook"],
        ["2 events:"],
        ["- one"],
    ]
    text, runbook = blocks[0]["inlines"]
    assert text["color"] == "warning"
    assert runbook["selectAction"] == {"type": "Action.OpenUrl", "url": "https://wiki/?a=b&c=d"}


def test_a_card_of_teams_is_small_enough():
    large = replace(OPENED, text="x" * 5000)
    template = TEMPLATES["teams"]
    assert len(template.build([large] * template.at_once, FILLING).body) < 28 * 1024


def test_pagerduty_triggers_and_resolves_by_the_key_of_the_incident():
    opened, closed = build_json("pagerduty", OPENED), build_json("pagerduty", CLOSED)
    assert closed == {"routing_key": "the key", "event_action": "resolve", "dedup_key": "eu/1/<g>"}
    assert (opened["event_action"], opened["dedup_key"]) == ("trigger", closed["dedup_key"])
    assert opened["links"] == [{"href": "https://wiki/?a=b&c=d", "text": "Runbook"}]
    details = opened["payload"].pop("custom_details")
    assert (details["topic"], details["details"]) == ("t", {"lag": 5})
    assert opened["payload"] == {
        "summary": "group <g>: late",
        "severity": "warning",
        "source": "eu",
        "timestamp": OPENED.time,
        "component": "<g>",
        "group": "search",
        "class": "incident_opened",
    }
    assert len(build_json("pagerduty", replace(OPENED, text="x" * 5000))["payload"]["summary"]) == 1024
    assert "component" not in build_json("pagerduty", BLIND)["payload"]


def test_opsgenie_opens_and_closes_by_an_alias_that_a_path_can_have():
    opened, closing = build_json("opsgenie", OPENED), build("opsgenie", CLOSED)
    assert opened["alias"] == "eu:1:<g>"
    assert closing.path == "/eu:1:%3Cg%3E/close?identifierType=alias"
    assert json.loads(closing.body) == {"source": "koff", "note": "it is OK again"}
    assert (opened["priority"], build_json("opsgenie", RAISED)["priority"]) == ("P3", "P1")
    assert opened["details"]["team"] == "search"
    assert (opened["entity"], build_json("opsgenie", BLIND)["entity"]) == ("<g>", "eu")
    assert len(build_json("opsgenie", replace(OPENED, text="x" * 500))["message"]) == 130
    assert all(isinstance(value, str) for value in opened["details"].values())


def test_alertmanager_gets_an_alert_for_each_severity_that_ends_with_it():
    (opened,), raised, (closed,) = (build_json("alertmanager", each) for each in (OPENED, RAISED, CLOSED))
    labels = {"alertname": "KoffIncident", "cluster": "eu", "group": "<g>", "owner": "search"}
    assert opened["labels"] == labels | {"severity": "warning"}
    assert [alert["labels"] for alert in raised] == [labels | {"severity": "critical"}, opened["labels"]]
    assert closed["labels"] == raised[0]["labels"]
    assert [datetime.fromisoformat(alert["endsAt"]) for alert in (*raised, closed)] == [
        datetime.fromisoformat(OPENED.time) + timedelta(hours=1),
        *[datetime.fromisoformat(OPENED.time)] * 2,
    ]
    (blind,) = build_json("alertmanager", BLIND)
    (recovered,) = build_json(
        "alertmanager", replace(BLIND, kind="recovered", severity=Severity.INFO, ends=Severity.ERROR)
    )
    assert blind["labels"] == recovered["labels"]
    (reset,) = build_json("alertmanager", RESET)
    assert reset["labels"]["alertname"] == "KoffOffsetsReset"


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_can_have_any_event(name: str):
    template = TEMPLATES[name]
    for event in (OPENED, RESET, BLIND, *build_examples(AT_MS).values()):
        hostile = replace(event, text='"\ud800\n</script>$text', group="\udfff\n")
        assert template.build([hostile], FILLING).body
        assert template.build([event] * template.at_once, FILLING).body


def test_what_begins_in_the_examples_also_ends():
    open_ = set[str]()
    for event in build_examples(AT_MS).values():
        assert event.text.startswith("TEST: ")
        if event.key:
            (open_.add if event.ends is None else open_.discard)(event.key)
    assert not open_


def test_a_template_of_ones_own_keeps_alerts_if_it_has_their_key_and_what_becomes_of_them():
    for text, at_once, keeps_alerts in (
        ('{"a": $events}', 100, False),
        ('{"a": $severity}', 1, False),
        ('{"a": $key, "b": ${action}}', 1, True),
    ):
        found = find_template(text)
        assert (found.at_once, found.keeps_alerts) == (at_once, keeps_alerts)


def test_a_name_that_no_template_has_is_an_error_with_all_names():
    with pytest.raises(ConfigError, match="no template 'discord': use events, plain, slack, teams, "):
        find_template("discord")
