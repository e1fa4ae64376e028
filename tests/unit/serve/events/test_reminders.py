"""Reminders of incidents that last, from the views."""

import re

from koff.serve.events.event import Severity
from koff.serve.events.notices import list_lasting
from koff.tracker import Rule, ShownNames
from koff.view.owners import Owner, Owners
from tests.unit.serve.events.watched import Watched, stop


def test_an_incident_that_lasts_is_told_with_its_age_its_cause_and_its_owner(watched: Watched):
    watched.owners = Owners((Owner(re.compile("g"), "search", runbook="https://wiki/{cause}"),))
    stop(watched)
    (opened,) = watched.look()
    watched.wait(3600)
    view = watched.take_view()
    view.activity.incidents = watched.changes.incidents
    (build,) = list_lasting([view], watched.now_ms).values()
    event = build()
    assert (event.kind, event.severity, event.key) == ("incident_lasts", Severity.ERROR, opened.key)
    assert event.text == (
        "group g: ERR for 1 h now: it committed nothing for 4 min 50 s; the group was at most 290 offsets "
        "and 4 min 49 s behind"
    )
    assert (event.owner, event.runbook_url) == (view.owners.listed[0], "https://wiki/not_committing")
    assert event.details["duration_s"] == 3600
    assert event.id != opened.id
    assert event.ends is None


def test_a_group_that_is_not_shown_any_more_is_not_told_of(watched: Watched):
    stop(watched)
    assert watched.look()
    watched.shown = ShownNames((Rule.parse("exclude:g"),))
    view = watched.take_view()
    view.activity.incidents = watched.changes.incidents
    assert list_lasting([view], watched.now_ms) == {}
