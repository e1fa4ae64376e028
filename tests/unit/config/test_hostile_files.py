"""Whatever is in koff.yaml: it is right, or an error of one line names the file, the line and the key.

A full file is changed at each of its places. Then it is read as `koff monitor` reads it, at its start and at
each reload.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.config import koff_yaml
from koff.config.clusters import list_watched_clusters
from koff.config.koff_yaml import ConfigFileError, read_koff_yaml
from koff.config.monitors import (
    build_metrics_conf,
    build_serve_conf,
    find_refused_properties,
    list_monitors,
    list_webhooks,
)
from koff.config.settings import CLUSTER_SETTINGS, NAMING_SETTINGS, PROCESS_SETTINGS
from koff.errors import ConfigError
from koff.serve import config_files
from tests.unit.config.examples import build_examples

SECRET = "hunter2"
FULL: dict[str, Any] = {
    **build_examples(PROCESS_SETTINGS),
    "clusters": [
        {
            **build_examples(NAMING_SETTINGS + CLUSTER_SETTINGS),
            "properties": {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"},
        },
        {"name": "asia", "brokers": "c:1", "group": "payments"},
    ],
    "defaults": {
        "properties": {"sasl.username": "koff", "sasl.password": SECRET},
        "labels": {"cloud": "x"},
        "source": "auto",
    },
}
FULL["webhooks"][0] |= {"url": f"https://h:1/{SECRET}", "headers": {"Authorization": SECRET}}
del FULL["clusters"][0]["group"]  # the second cluster has it
VALUES: tuple[Any, ...] = (
    None,
    {},
    [],
    "",
    "text",
    "a\nb",
    "é\0",
    "\ud800",
    7,
    -1,
    True,
    1e300,
    10**400,
    [None],
    [{}],
    [[[["deep"]]]],
    {"a": {"b": [{"c": {}}]}},
    "${NOT_THERE}",
    "file:/nowhere",
    "file:.",
    "file:\0",
    "0/" + "9" * 5000,
    "a:" + "9" * 5000,
    "a{99999999999999999999}",
    "(" * 5000,
    "http://[::1",
)


def list_places(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(node, dict):
        for key, value in node.items():
            yield from list_places(value, (*place, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from list_places(value, (*place, index))


def change(place: tuple[Any, ...], edit: Callable[[Any, Any], None]) -> Any:
    """The full file, after `edit` of the parent and the key of that place."""
    document = {"": copy.deepcopy(FULL)}
    *above, key = ("", *place)
    parent: Any = document
    for each in above:
        parent = parent[each]
    edit(parent, key)
    return document.get("")


def list_changes() -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Each place, what became of it, and the file then."""
    for place in list_places(FULL):
        yield place, "gone", change(place, lambda parent, key: parent.pop(key))
        for value in VALUES:
            yield place, value, change(place, lambda parent, key, v=value: parent.__setitem__(key, v))  # type: ignore[misc]  # mypy knows no default of a lambda
        if isinstance(place[-1] if place else None, str):
            # As it is shown.
            yield (
                (*place[:-1], "x\\ny"),
                "another key",
                change(place, lambda parent, key: parent.update({"x\ny": 1})),
            )


def read_all(file: Path) -> str | None:
    """Reads the file as `koff monitor` does, and as `koff pipeline`. Returns the error of the monitor."""
    try:
        read = read_koff_yaml(file, {})
        with suppress(ConfigError):
            list_watched_clusters(read, {})
        monitors = list_monitors(read, {}, shares_state_dir=True)
        list_webhooks(read)
        build_metrics_conf(read)
        build_serve_conf(read)
        errors = find_refused_properties(read, monitors)
    except ConfigError as error:
        return str(error)
    return "; ".join(errors) or None


def test_the_full_file_is_right(tmp_path):
    file = tmp_path / "koff.yaml"
    file.write_text(json.dumps(FULL, indent=1))
    assert read_all(file) is None


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 5))])
def test_each_change_gives_a_right_file_or_an_error_of_one_line(tmp_path, first):
    """Each test has one of every five changes."""
    file, right = tmp_path / "koff.yaml", 0
    for place, value, document in islice(list_changes(), first, None, 5):
        # Each place has a line of its own.
        file.write_text(json.dumps(document, indent=1))
        error = read_all(file)
        if error is None:
            right += 1
            continue
        assert re.match(rf"{re.escape(str(file))}(, line \d+(, column \d+)?)?: \S", error), (place, value)
        assert error.isprintable(), (place, value, error)
        assert SECRET not in error
        key = next((each for each in reversed(place) if isinstance(each, str)), None)
        is_named = key is None or key in error or "has no" in error or "labels" in error
        # Without a mechanism, it is another one: with other needs.
        assert is_named or re.search("SASL/.* needs ", error), (place, value, error)
    assert right > 10  # texts may be anything


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", ": the file must be a mapping"),
        (b"# \n", ": the file must be a mapping"),
        (b"a: b\nc: \xff\xfe", ", line 2: the file is not text in UTF-8"),
        (b"a: b\n\0\0", ", line 2: the file is not YAML"),
        (b"[" * 5000, ", line 1: the file has values that are nested too deeply"),
        (b"a: b\nc: " + b"{a: " * 5000, ", line 2: the file has values that are nested too deeply"),
        (b'a: b\nc: "\\UFFFFFFFF"', ", line 2: the file is not YAML"),
        (b'a: b\nc: "\\U00110000"', ", line 2: the file is not YAML"),
        (b"%YAML 1." + b"9" * 5000 + b"\n--- a", ", line 1: the file is not YAML"),
        (b"--- a\n--- b", ", line 2, column 1: the file is not YAML"),
        (b"clusters: &a\n- name: *a", ", line 2: the file has more than 200000 values, or an alias"),
        (b"clusters: *a", ", line 1, column 11: the file is not YAML"),
        (b"clusters: !!python/object:os.system x", ", line 1: clusters must be a list"),
        (b"listen: :1\nlisten: :2\nclusters: []", ", line 2: the file has the key listen twice"),
        (b"? [a]\n: b", ", line 1: the file has a key that is not a text"),
        (b'"a\\0": b', ", line 1: the file has a key that is not a text"),
        (b"x" * (1 << 21), " it has more than 1048576 bytes"),
        (b"clusters: [", ", line 1, column 12: the file is not YAML"),
        (b"clusters: []", ", line 1: clusters must be a list (- name: ...)"),
        (b"clusters: {a: b}", ", line 1: clusters must be a list (- name: ...)"),
        (b"clusters: [{? [a] : b}]", ", line 1: clusters[0] has a key that is not a text"),
        (b"clusters: [x]", ", line 1: clusters[0] must be a mapping"),
        (b"clusters: [{name: a, name: b, brokers: c}]", ", line 1: clusters[0] has the key name twice"),
        (b"clusters:\nother: 1", ", line 2: the file has the unknown key other"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_its_line(tmp_path, content, told):
    file = tmp_path / "koff.yaml"
    file.write_bytes(content)
    error = read_all(file)
    assert error is not None
    assert told in error
    assert error.isprintable()
    assert len(error) < 1000


def test_a_folder_and_a_file_that_has_vanished_are_named(tmp_path):
    assert read_all(tmp_path) == f"cannot read {tmp_path}: Is a directory"
    assert read_all(tmp_path / "gone") == f"cannot read {tmp_path}/gone: No such file or directory"


def test_aliases_that_stand_for_very_many_values_are_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    file = tmp_path / "koff.yaml"
    file.write_text("\n".join(lines))
    assert "line 6: the file has more than 200000 values" in str(read_all(file))


def test_aliases_are_allowed(tmp_path):
    file = tmp_path / "koff.yaml"
    file.write_text(
        "clusters:\n- {name: a, brokers: 'b:1', properties: &p {client.id: x}}\n"
        "- {name: b, brokers: 'b:1', properties: *p}\n"
    )
    assert read_all(file) is None
    assert config_files.MAX_VALUES > 1000


def test_the_errors_of_a_short_file_are_not_endless(tmp_path):
    file = tmp_path / "koff.yaml"
    file.write_text("clusters: [" + "&a {x: 1}, " + "*a, " * 10_000 + "]")
    with pytest.raises(ConfigFileError) as raised:
        read_koff_yaml(file, {})
    assert len(raised.value.errors) == koff_yaml._MAX_ERRORS


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file"), (b"\xff", "it is not text"), (b"a\0b", "it is not text")]
)
def test_a_file_of_a_secret_that_is_gone_or_garbage_is_named_with_line_and_key(tmp_path, content, why):
    file, secret = tmp_path / "koff.yaml", tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    file.write_text(
        "clusters:\n- {name: a, brokers: 'b:1'}\n"
        f"defaults: {{properties: {{sasl.password: 'file:{secret}'}}}}\n"
        f"webhooks:\n- {{url: 'file:{secret}', headers: {{Authorization: 'file:{secret}'}}}}\n"
    )
    with pytest.raises(ConfigFileError) as raised:
        read_koff_yaml(file, {})
    keys = ["defaults.properties.sasl.password:", "webhooks[0].url", "webhooks[0].headers.Authorization:"]
    for line, key, error in zip((3, 5, 5), keys, raised.value.errors, strict=True):
        assert f"{file}, line {line}: {key}" in error
        assert why in error


@pytest.mark.parametrize(
    "text",
    [
        "clusters: [{name: a, brokers: 'b:1'}]\nwebhooks: [{}]",
        "clusters: [{name: a, brokers: 'b:1', properties: {security.protocol: \"x\\ny\"}}]",
        "clusters: [{name: a, brokers: 'b:1', start: resume}]",
        "clusters: [{name: a, brokers: 'b:1', expected_groups: a, groups: b}]",
        '"a\\nb": 1\nclusters: [{name: a, brokers: "b:1"}]',
    ],
)
def test_check_prints_a_line_for_each_error(tmp_path, text):
    file = tmp_path / "koff.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert result.stderr.startswith(f"{file}, line ")
