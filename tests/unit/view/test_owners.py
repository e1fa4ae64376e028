"""Who owns a group, and which runbook it has."""

import re
from dataclasses import replace

from koff.tracker import Tracker
from koff.view import owners as owners_module
from koff.view.owners import Owner, Owners
from tests.unit.serve.views import take_view

PAY = Owner(re.compile(r"^pay\."), "payments", "#pay", "https://pay/{group}/{cause}", "pay-slack")
REST = Owner(re.compile("."), "platform")
OWNERS = Owners((PAY, REST))


def test_the_first_owner_whose_groups_are_found_in_the_name_decides():
    assert [OWNERS.find(name) for name in ("pay.x", "repay.x", "pay.x")] == [PAY, REST, PAY]
    assert Owners((PAY,)).find("x") is None
    assert Owners().find("pay.x") is None


def test_what_is_remembered_of_names_has_a_limit(monkeypatch):
    monkeypatch.setattr(owners_module, "_MOST_KNOWN", 2)
    owners = Owners((PAY,))
    for number in range(5):
        assert owners.find(f"pay.{number}") is PAY
        assert len(owners._known) <= 2


def test_owners_are_equal_whatever_was_asked_before():
    asked = Owners((PAY, REST))
    asked.find("pay.x")
    assert asked == OWNERS
    assert asked != Owners((REST, PAY))


def test_a_group_has_the_runbook_of_its_owner_before_that_of_the_cluster():
    view = replace(take_view(Tracker()), owners=OWNERS)
    assert view.find_runbook_url("pay.x", "no_members") == "https://pay/pay.x/no_members"
    assert view.find_runbook_url("other", "no_members") is None
    view = replace(view, runbook="https://all/{cluster}")
    assert view.find_runbook_url("pay.x", "no_members") == "https://pay/pay.x/no_members"
    assert view.find_runbook_url("other", "no_members") == "https://all/c"
