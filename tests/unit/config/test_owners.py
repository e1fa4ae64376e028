"""`owners` of koff.yaml, and the webhooks that they name."""

import re

import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.config.koff_yaml import finds_all
from koff.config.monitors import list_monitors, list_webhooks
from koff.view.owners import Owner, Owners
from tests.unit.config.test_koff_yaml import list_errors, parse

WEBHOOKS = "webhooks: [{name: slack, url: 'http://a'}, {name: pager, url: 'http://b'}, {url: 'http://c'}]\n"
TEXT = """
clusters:
  - {name: a, brokers: "b:1"}
  - {name: c, brokers: "b:2", owners: [{groups: x, team: own}]}
defaults:
  owners:
    - {groups: ^pay, team: payments, contact: "#pay", runbook: "https://w/{cause}", webhook: slack}
    - {groups: ., team: platform}
"""


def test_owners_are_of_a_cluster_or_of_all(tmp_path):
    file = parse(tmp_path, TEXT + WEBHOOKS)
    pay = Owner(re.compile("^pay"), "payments", "#pay", "https://w/{cause}", "slack")
    assert [conf.display.owners for conf in list_monitors(file, {}, shares_state_dir=True)] == [
        Owners((pay, Owner(re.compile("."), "platform"))),
        Owners((Owner(re.compile("x"), "own"),)),
    ]
    assert [(conf.name, conf.owned) for conf in list_webhooks(file)] == [
        ("slack", True),
        ("pager", False),
        (None, False),
    ]
    assert file.warnings == ()


@pytest.mark.parametrize(
    ("owners", "told"),
    [
        (
            "[{groups: ^pay, team: a}, {groups: x, team: b, webhook: teams}]",
            "defaults.owners[1]: no webhook has the name 'teams': use pager, slack",
        ),
        (
            "[{groups: .*, team: a}, {groups: x, team: b}]",
            "defaults.owners[0]: its groups are all groups, so the owners after it never decide: put it last",
        ),
        (
            "[{groups: x, team: a}, {groups: y, team: b}, {groups: x, team: c}]",
            "defaults.owners[2]: it never decides: owners[0] has the same groups",
        ),
        ("[{groups: x}]", "defaults.owners[0] has no team"),
        ("[{groups: '(', team: a}]", "defaults.owners[0].groups is not a regular expression"),
        ("[{groups: x, team: a, runbook: wiki}]", "defaults.owners[0].runbook it must begin with http"),
    ],
)
def test_an_owner_that_cannot_be_meant_is_an_error_with_its_line(tmp_path, owners, told):
    text = f"clusters: [{{name: a, brokers: 'b:1'}}]\n{WEBHOOKS}defaults:\n  owners: {owners}\n"
    (line,) = list_errors(tmp_path, text)
    assert line.startswith(f"line 4: {told}")


def test_a_name_is_of_one_webhook(tmp_path):
    text = "clusters: [{name: a, brokers: 'b:1'}]\nwebhooks:\n"
    text += "  - {name: one, url: 'http://a'}\n  - {url: 'http://a'}\n  - {name: one, url: 'http://b'}\n"
    assert list_errors(tmp_path, text) == ["line 5: two webhooks have the name 'one'"]


def test_a_webhook_without_any_name_cannot_be_of_an_owner(tmp_path):
    text = "clusters: [{name: a, brokers: 'b:1', owners: [{groups: x, team: t, webhook: w}]}]\n"
    assert list_errors(tmp_path, text) == [
        "line 1: clusters[0].owners[0]: no webhook has the name 'w': give one of webhooks this name"
    ]


@pytest.mark.parametrize(
    ("clash", "told"),
    [
        ("labels: {owner: x}", "labels and owners both set the label owner"),
        ("group_labels: '(?P<owner>.)'", "group_labels and owners both set the label owner"),
    ],
)
def test_the_label_owner_may_be_set_by_one_setting_only(tmp_path, clash, told):
    text = f"clusters: [{{name: a, brokers: 'b:1', {clash}}}]\n"
    assert parse(tmp_path, text).clusters  # without owners, it may be
    text += "defaults: {owners: [{groups: x, team: t}]}\n"
    assert list_errors(tmp_path, text) == [f"line 1: clusters[0]: {told}"]


def test_check_warns_of_an_owner_whom_no_webhook_tells(tmp_path):
    file = tmp_path / "koff.yaml"
    file.write_text(TEXT + WEBHOOKS.replace("{name: pager, url: 'http://b'}, {url: 'http://c'}", ""))
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code == 0, result.output
    why = "has no webhook, and each webhook is of other owners: nobody is told of events of its groups"
    assert result.stderr.splitlines() == [
        f"warning: {file}, line 4: clusters[1].owners[0] {why}",
        f"warning: {file}, line 8: defaults.owners[1] {why}",
    ]
    file.write_text(TEXT + WEBHOOKS)
    assert CliRunner().invoke(main, ["config", "check", str(file)]).stderr == ""


@pytest.mark.parametrize("pattern", ["", ".", ".*", "^.+$", "^", "x?", r"[\s\S]", ".?$"])
def test_an_expression_that_is_found_in_any_name_is_known(pattern):
    assert finds_all(re.compile(pattern))


@pytest.mark.parametrize("pattern", ["^$", "^.$", "[a-z]", r"\w", "^.{2,}", "^(?!test)", "[^-]"])
def test_an_expression_that_some_names_do_not_have_is_not_one_for_all(pattern):
    assert not finds_all(re.compile(pattern))
