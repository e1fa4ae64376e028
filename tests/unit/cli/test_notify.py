"""`koff notify test`: to a receiver, to a real Alertmanager, and to the terminal."""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koff.cli import main
from koff.kafkatest import free_ports, wait_until
from koff.serve.events.templates import TEMPLATES
from tests.unit.serve.events.test_webhook import SECRET, receiving

ALERTMANAGER = shutil.which("prometheus-alertmanager")


def run(path: Path, *args: str, webhooks: list[dict[str, Any]] | None = None) -> Result:
    """Runs the command with a file that has these webhooks."""
    file = path / "koff.yaml"
    file.write_text(json.dumps({"clusters": [{"name": "a", "brokers": "b:1"}], "webhooks": webhooks or []}))
    return CliRunner().invoke(main, ["notify", "test", "--config", str(file), *args])


def test_an_example_of_each_kind_of_notice_is_sent_whatever_the_filters_are(tmp_path):
    with receiving(200) as receiver:
        webhooks = [
            {"url": "http://other", "name": "other"},
            {"url": receiver.url, "name": "mine", "kinds": "blind", "quiet_hours": "00:00-24:00"},
        ]
        result = run(tmp_path, "--webhook", "mine", webhooks=webhooks)
    assert result.exit_code == 0, result.output
    events = [json.loads(body)["events"][0] for _, _, body in receiver.requests]
    assert [event["kind"] for event in events] == [
        *("incident_opened", "incident_raised", "incident_lasts", "incident_closed", "offsets_reset"),
        *("blind", "recovered", "summary"),
    ]
    assert all(event["text"].startswith("TEST: ") for event in events)
    assert result.output.splitlines()[0] == "an incident begins: ok"
    assert len(result.output.splitlines()) == len(events)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (
            403,
            "it lasts: refused: HTTP status 403: are the path of the URL, the token and the template",
        ),
        (500, "it lasts: failed: HTTP status 500: is the address right, and can this machine reach it?"),
    ],
)
def test_what_is_not_accepted_is_told_with_the_cure_and_without_a_secret(tmp_path, status, told):
    with receiving(status) as receiver:
        result = run(tmp_path, webhooks=[{"url": receiver.url}])
    assert result.exit_code == 1
    assert told in result.output
    assert SECRET not in result.output


def test_every_template_can_be_printed_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["notify", "test", "--print"])
    assert result.exit_code == 0, result.output
    for name, template in TEMPLATES.items():
        assert f"# {name}: an incident begins\nPOST URL\n" in result.output
        assert (f"# {name}: a summary\n" in result.output) != template.keeps_alerts


def test_the_requests_of_one_webhook_are_printed_without_its_secrets(tmp_path):
    webhook = {"url": f"http://a/{SECRET}", "template": "pagerduty", "routing_key": SECRET}
    result = run(tmp_path, "--print", "--webhook", "p", webhooks=[{**webhook, "name": "p"}])
    assert result.output.count('"routing_key": "ROUTING_KEY"') == 7
    assert SECRET not in result.output


@pytest.mark.parametrize("args", [(), ("--webhook", "none")])
def test_the_webhook_must_be_named_if_there_are_several(tmp_path, args):
    webhooks = [{"url": "http://a", "name": "one"}, {"url": "http://b", "name": "two"}, {"url": "http://c"}]
    result = run(tmp_path, *args, webhooks=webhooks)
    assert result.exit_code == 2
    assert "--webhook must name one of 3 webhooks of" in result.output
    assert "koff.yaml: one, two" in result.output


# --- A real Alertmanager ----------------------------------------------------------------------------------


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """The URL of an Alertmanager."""
    if ALERTMANAGER is None:
        pytest.skip("needs Alertmanager: apt-get install prometheus-alertmanager")
    (tmp_path / "alertmanager.yml").write_text("{route: {receiver: none}, receivers: [{name: none}]}")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        ALERTMANAGER,
        f"--config.file={tmp_path}/alertmanager.yml",
        f"--storage.path={tmp_path}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(
                lambda: read(f"http://{address}/-/ready") is not None, timeout_s=60, what="Alertmanager"
            )
            yield f"http://{address}/api/v2/alerts"
        finally:
            process.terminate()


def read(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bytes(response.read())
    except OSError:  # it is starting
        return None


def test_alertmanager_takes_each_example_and_ends_what_ends(tmp_path, alertmanager):
    result = run(tmp_path, webhooks=[{"url": alertmanager, "template": "alertmanager", "remind": 60}])
    assert result.exit_code == 0, result.output

    def list_names() -> list[str]:
        return [alert["labels"]["alertname"] for alert in json.loads(read(alertmanager) or b"[]")]

    wait_until(lambda: list_names() == ["KoffOffsetsReset"], timeout_s=30, what="the alerts that last")
    (alert,) = json.loads(read(alertmanager) or b"[]")
    assert alert["labels"] == {
        "alertname": "KoffOffsetsReset",
        "cluster": "koff-test",
        "group": "example",
        "owner": "example-team",
        "severity": "warning",
    }
    assert alert["annotations"]["contact"] == "#example-oncall"
