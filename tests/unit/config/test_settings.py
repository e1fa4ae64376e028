"""What follows from the declaration of a setting: schema, option, page, and what a reload does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from koff.cli.monitor import monitor
from koff.config.kinds import Kind, Setting
from koff.config.koff_yaml import KoffYaml, read_koff_yaml
from koff.config.monitors import list_monitors, list_webhooks
from koff.config.settings import CLUSTER_SETTINGS, NAMING_SETTINGS, PROCESS_SETTINGS, SETTINGS, build_schema
from tests.unit.config.examples import build_example, build_examples

CLUSTERS = [{"name": "a", "brokers": "b:1"}]
WEBHOOKS = [{"name": "payments", "url": "http://a"}]


def read(path: Path, **values: Any) -> KoffYaml:
    """What a file with these values says."""
    file = path / "koff.yaml"
    file.write_text(json.dumps({"clusters": CLUSTERS, "webhooks": WEBHOOKS, **values}))
    return read_koff_yaml(file, {})


def test_the_schema_has_every_key_and_allows_the_examples():
    schema = build_schema()
    assert [*schema["properties"]] == ["clusters", "defaults", *(each.name for each in PROCESS_SETTINGS)]
    clusters = [build_examples(NAMING_SETTINGS + CLUSTER_SETTINGS)]
    jsonschema.validate({**build_examples(PROCESS_SETTINGS), "clusters": clusters}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"clusters": [{"name": "a"}]}, schema)


def name(setting: Setting) -> str:
    return setting.name


@pytest.mark.parametrize("setting", [each for each in SETTINGS.values() if each.option_name], ids=name)
def test_an_option_of_the_monitor_has_the_value_that_the_file_would_have(setting: Setting):
    example, flag = build_example(setting), str(setting.option_name)
    assert isinstance(setting.kind, Kind)
    values = example if isinstance(example, list) else [example]
    args = [each for value in values for each in (flag, str(value))]
    if isinstance(example, bool):
        args = [flag if example else flag.replace("--", "--no-")]
    parsed = tuple(setting.kind.parse_value(str(value)) for value in values)
    given = monitor.make_context("koff monitor", args).params[setting.name]
    assert given == (parsed if setting.many else parsed[0])


@pytest.mark.parametrize("setting", CLUSTER_SETTINGS + PROCESS_SETTINGS, ids=name)
def test_a_reload_does_with_a_setting_what_the_page_says(setting: Setting, tmp_path: Path):
    """The daemon applies `display` and webhooks at once. A cluster with another change is restarted."""
    value = {setting.name: build_example(setting)}
    before = read(tmp_path)
    after = read(tmp_path, **(value if setting in PROCESS_SETTINGS else {"defaults": value}))
    (old,), (new,) = (list_monitors(each, {}, shares_state_dir=True) for each in (before, after))
    if replace(new, display=old.display, wait=old.wait) != old:
        assert setting.reload == "cluster"
        return
    at_once = new.display != old.display or list_webhooks(after) != list_webhooks(before)
    at_once |= setting.name.startswith("log_")  # the command applies it (test_sighup)
    assert setting.reload == ("at once" if at_once else "never")
