"""`koff config`: checks koff.yaml, and shows what koff makes of it."""

import json
import socket
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from koff.cli import main
from koff.config.settings import build_schema

FILE = """
clusters:
  - name: europe
    brokers: a:1
    properties: {sasl.username: koff, sasl.password: "${PASSWORD}"}
    groups: ^pay
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "koff.yaml"
    path.write_text(FILE)
    return path


def run(*args: object, **environment: str):
    return CliRunner(env={"PASSWORD": "hunter2", **environment}).invoke(main, ["config", *map(str, args)])


def test_a_file_that_is_right_is_named_with_its_clusters(file):
    result = run("check", file)
    assert (result.exit_code, result.output) == (0, f"{file} is right. Clusters: europe\n")


def test_each_error_is_a_line_of_its_own(file):
    file.write_text("listen: ''\nclusters: [{name: a}]\n")
    result = run("check", file)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{file}, line 1: listen must be a text that is not empty",
        f"{file}, line 2: clusters[0] has no brokers",
    ]


def test_properties_are_checked(file):
    file.write_text(FILE.replace("sasl.username: koff", "no.such.property: koff"))
    result = run("check", file)
    assert result.exit_code == 2
    assert f"{file}, line 3: clusters[0]: there is no property no.such.property" in result.stderr


def test_secrets_are_masked(file):
    result = run("show", file, KOFF_PROPERTY_SSL_KEY_PASSWORD="hunter3")
    assert result.exit_code == 0, result.output
    assert "hunter" not in result.output
    shown = yaml.safe_load(result.output)
    (europe,) = shown["clusters"]
    assert europe["properties"] == {
        "sasl.username": "koff",
        "sasl.password": "********",
        "ssl.key.password": "********",
    }
    assert (europe["groups"], europe["source"], shown["listen"]) == ("^pay", "auto", "127.0.0.1:9850")


@pytest.mark.parametrize("is_file", [False, True])
def test_secrets_of_webhooks_are_masked(file, tmp_path, is_file):
    template = '{"routing_key": "hunter2", "events": $events}'
    (tmp_path / "template").write_text(template)
    webhook = {
        "url": "https://a:1/x/hunter2?hunter2",
        "headers": {"Authorization": "hunter2"},
        "template": f"file:{tmp_path}/template" if is_file else template,
    }
    file.write_text(FILE + json.dumps({"webhooks": [webhook]})[1:-1] + "\n")
    result = run("show", file)
    assert result.exit_code == 0, result.output
    assert "hunter" not in result.output
    (shown,) = yaml.safe_load(result.output)["webhooks"]
    assert (shown["url"], shown["template"]) == ("https://a:1/********", "********")
    assert shown["headers"] == {"Authorization": "********"}
    assert (shown["min_severity"], shown["retries"]) == ("warning", 8)


def test_what_is_no_secret_of_a_webhook_is_shown(file):
    webhook = {"url": "https://a", "template": "pagerduty", "routing_key": "hunter2"}
    file.write_text(FILE + json.dumps({"webhooks": [{**webhook, "quiet_hours": "22:00-07:00"}]})[1:-1] + "\n")
    (shown,) = yaml.safe_load(run("show", file).output)["webhooks"]
    assert (shown["template"], shown["routing_key"]) == ("pagerduty", "********")
    assert shown["quiet_hours"] == "22:00-07:00"


def test_patterns_are_shown_as_they_were_written(file):
    file.write_text(FILE + "    group_labels: ['(?P<team>.)', '(?P<other>.)']\n")
    (europe,) = yaml.safe_load(run("show", file).output)["clusters"]
    assert europe["group_labels"] == ["(?P<team>.)", "(?P<other>.)"]


def test_a_variable_that_is_missing_is_named(file):
    result = CliRunner().invoke(main, ["config", "show", str(file)])
    assert result.exit_code == 2
    assert "clusters[0].properties.sasl.password: set the environment variable PASSWORD" in result.output


def test_the_schema_is_json():
    assert json.loads(run("schema").output) == build_schema()


def test_the_files_for_access_are_checked_too(file, tmp_path):
    (tmp_path / "web.yml").write_text("basic_auth_users: {alice: hunter2}")
    (tmp_path / "tokens").write_text("grafana 0123456789abcdef")
    file.write_text(f"{FILE}\nweb_config_file: {tmp_path}/web.yml\ntokens_file: {tmp_path}/tokens\n")
    result = run("check", file)
    assert result.exit_code == 2
    assert "web.yml, line 1: basic_auth_users.alice is no bcrypt hash" in result.stderr
    assert "hunter2" not in result.output
    (tmp_path / "web.yml").write_text("{}")
    result = run("check", file)
    assert result.exit_code == 0, result.output
    assert f"web_config_file: {tmp_path}/web.yml" in run("show", file).output


def test_a_property_in_a_file_is_shown_unless_it_is_a_secret(file, tmp_path):
    for name in ("user", "password"):
        (tmp_path / name).write_text(f"the-{name}\n")
    properties = f"sasl.username: file:{tmp_path}/user, sasl.password: file:{tmp_path}/password"
    file.write_text(f"clusters: [{{name: a, brokers: 'a:1', properties: {{{properties}}}}}]")
    (cluster,) = yaml.safe_load(run("show", file).output)["clusters"]
    assert cluster["properties"] == {"sasl.username": "the-user", "sasl.password": "********"}


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("256.1.1.1:9850", "listen is wrong: '256.1.1.1:9850' is not HOST:PORT"),
        ("[::1:9850", "is not HOST:PORT"),
        ("::1:9850", "is not HOST:PORT"),
        ("localhost:1:2", "is not HOST:PORT"),
        ("a b:1", "is not HOST:PORT"),
        ("192.0.2.1:9850", "cannot listen on 192.0.2.1:9850: Cannot assign requested address"),
        ("no-such-host.invalid:9850", "cannot listen on no-such-host.invalid:9850"),
    ],
)
def test_an_address_on_which_koff_cannot_listen_is_an_error(tmp_path: Path, listen: str, why: str):
    file = tmp_path / "koff.yaml"
    file.write_text(f"clusters: [{{name: a, brokers: 'b:1'}}]\nlisten: '{listen}'\n")
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert why in result.output


def test_an_address_in_use_is_right_because_koff_may_be_running(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "koff.yaml"
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(f"clusters: [{{name: a, brokers: 'b:1'}}]\nlisten: '{listen}'\n")
        result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert (result.exit_code, result.output) == (0, f"{file} is right. Clusters: a\n")
