"""`webhooks` and `expected_groups` of koff.yaml."""

import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.config.koff_yaml import override
from koff.config.monitors import list_monitors, list_webhooks
from koff.errors import ConfigError
from koff.serve.events.event import Severity
from koff.serve.events.quiet_hours import QuietHours
from koff.serve.events.webhook_conf import WebhookConf
from koff.tracker import Rule
from tests.unit.config.test_koff_yaml import list_errors, parse

CLUSTERS = "clusters: [{name: a, brokers: 'b:1'}]\n"
SECRET = "hunter2"


def test_webhooks_are_read_with_their_secrets(tmp_path):
    (tmp_path / "url").write_text(f"https://a.example/{SECRET}\n")
    (tmp_path / "key").write_text(f"{SECRET}\n")
    text = f"""
webhooks:
  - url: file:{tmp_path}/url
    min_severity: error
    kinds: [blind, records_lost]
    groups: ["exclude:test", ^pay]
    headers: {{Authorization: "Bearer ${{TOKEN}}"}}
    timeout: 2.5
    retries: 0
    template: '{{"text": $text}}'
  - {{url: "http://b:8080", kinds: blind}}
  - url: https://pager.example
    name: pager
    template: pagerduty
    routing_key: file:{tmp_path}/key
    throttle: 20
    remind: 3600
    quiet_hours: ["sat,sun 00:00-24:00", "22:00-07:00 Europe/Berlin"]
"""
    file = override(parse(tmp_path, CLUSTERS + text, TOKEN="t"), {"listen": ":1"})
    assert list_webhooks(file) == [
        WebhookConf(
            url=f"https://a.example/{SECRET}",
            min_severity=Severity.ERROR,
            kinds=("blind", "records_lost"),
            groups=(Rule.parse("exclude:test"), Rule.parse("^pay")),
            headers={"Authorization": "Bearer t"},
            timeout_s=2.5,
            retries=0,
            template='{"text": $text}',
        ),
        WebhookConf(url="http://b:8080", kinds=("blind",)),
        WebhookConf(
            url="https://pager.example",
            name="pager",
            template="pagerduty",
            routing_key=SECRET,
            throttle=20,
            remind_s=3600.0,
            quiet_hours=(
                QuietHours.parse("sat,sun 00:00-24:00"),
                QuietHours.parse("22:00-07:00 Europe/Berlin"),
            ),
        ),
    ]


def test_each_error_has_its_line_and_no_secret(tmp_path):
    text = f"""webhooks:
  - min_severity: bad
  - url: ftp://{SECRET}
    kinds: nothing
    template: $none
    retries: -1
  - http://{SECRET}
  - url: file:/nowhere/{tmp_path.name}
    color: red
"""
    lines = list_errors(tmp_path, CLUSTERS + text)
    assert [line.partition(":")[0] for line in lines] == [f"line {n}" for n in (3, 3, 4, 5, 6, 7, 8, 9, 10)]
    assert lines[0] == "line 3: webhooks[0] has no url"
    assert lines[1] == "line 3: webhooks[0].min_severity must be info, warning or error"
    assert "webhooks[1].url is wrong: the URL of a webhook must be" in lines[2]
    assert "webhooks[1].kinds must be one of incident_opened," in lines[3]
    assert "webhooks[2] must be a mapping" in lines[6]
    assert "cannot read /nowhere" in lines[7]
    assert "unknown key color" in lines[8]
    assert SECRET not in str(lines)


def test_webhooks_are_a_list(tmp_path):
    assert list_errors(tmp_path, CLUSTERS + "webhooks: {url: 'http://a'}\n") == [
        "line 2: webhooks must be a list (- url: ...)"
    ]


def test_a_header_that_http_forbids_is_refused_by_check(tmp_path):
    file = tmp_path / "koff.yaml"
    file.write_text(f'{CLUSTERS}webhooks: [{{url: "http://a", headers: {{A b: {SECRET}}}}}]\n')
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code != 0
    assert "koff.yaml, line 2: webhooks[0].headers.A b has characters that HTTP forbids" in result.stderr
    assert SECRET not in result.output


def test_expected_groups_are_one_or_several(tmp_path):
    text = """
clusters:
  - {name: a, brokers: "b:1", expected_groups: [one, two]}
  - {name: b, brokers: "b:2"}
defaults: {expected_groups: three}
"""
    confs = list_monitors(parse(tmp_path, text), {}, shares_state_dir=True)
    assert [conf.display.expected_groups for conf in confs] == [("one", "two"), ("three",)]


@pytest.mark.parametrize("hides", ["groups: ^pay", "group: payments"])
def test_an_expected_group_that_is_not_shown_is_an_error(tmp_path, hides):
    text = f"clusters: [{{name: a, brokers: 'b:1', expected_groups: [payments, orders], {hides}}}]\n"
    with pytest.raises(
        ConfigError, match=r"line 1: clusters\[0\]: expected_groups has 'orders', which groups"
    ):
        list_monitors(parse(tmp_path, text), {}, shares_state_dir=True)
