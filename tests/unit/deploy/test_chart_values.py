"""Which values the Helm chart refuses, and that it makes valid objects of all others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit.deploy.chart import (
    CHART,
    CLUSTERS,
    DEFAULTS,
    find_pod,
    find_workload,
    needs_helm,
    render,
    render_objects,
)
from tests.unit.deploy.chart_readme import README


@needs_helm
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replicas": 2, "shards": 2}, "replicas cannot be combined"),
        ({"replicas": 2, "state": {"enabled": True}}, "replicas cannot be combined"),
        ({"replicas": 3, "config": {"clusters": CLUSTERS, "webhooks": [{"url": "http://a"}]}}, "at most"),
        ({"shards": 2, "config": {"clusters": [{"name": n, "brokers": "k:1"} for n in "ab"]}}, "several"),
        ({"webConfig": {"key": "web.yml"}}, "set existingSecret"),
        ({"webConfig": {"tls": True, "clientCert": "tls.crt"}}, "set existingSecret"),
        ({"existingSecret": "s", "webConfig": {"clientCert": "tls.crt"}}, "/webConfig/tls"),
        ({"shards": 0}, "shards"),
        ({"replicas": 0, "shards": 2}, "replicas cannot be combined"),
        ({"state": {"enabled": True, "size": ""}}, "/state/size"),
        ({"replica": 2}, "replica"),
        ({"service": {"port": 70000}}, "/service/port"),
        ({"service": {"port": None}}, "missing property 'port'"),
        ({"webConfig": None}, "missing property 'webConfig'"),
        ({"image": {"digest": "sha256:1"}}, "/image/digest"),
        ({"fullnameOverride": "-koff"}, "/fullnameOverride"),
        ({"fullnameOverride": "k" * 53}, "/fullnameOverride"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "/podLabels"),
        ({"podLabels": {"app.kubernetes.io/instance": "x"}}, "/podLabels"),
        ({"networkPolicy": {"from": [{"podSelecter": {}}]}}, "podSelecter"),
        ({"networkPolicy": {"from": [{}]}}, "/networkPolicy/from/0"),
        ({"resources": {"limit": {}}}, "limit"),
        ({"tolerations": [{"kye": "k"}]}, "kye"),
        ({"affinity": {"podAntiAfinity": {}}}, "podAntiAfinity"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topologyKey"),
        ({"serviceMonitor": {"endpoint": {"tlsconfig": {}}}}, "tlsconfig"),
        ({"env": [{"name": "A", "valu": "1"}]}, "valu"),
        ({"config": {"clustres": [], "clusters": CLUSTERS}}, "clustres"),
        ({"config": {"clusters": [{"name": "a", "brokers": "k:1", "gruops": "x"}]}}, "gruops"),
        ({"config": {"clusters": CLUSTERS, "defaults": {"gruops": "x"}}}, "gruops"),
        ({"config": {"listen": ":1", "clusters": CLUSTERS}}, "config"),
    ],
)
def test_the_chart_refuses_values_that_cannot_work(values: dict[str, Any], why: str, tmp_path: Path):
    rendered = render(values, tmp_path)
    assert rendered.returncode != 0
    assert why in rendered.stderr


def test_each_value_of_the_chart_is_in_its_schema():
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert DEFAULTS.keys() | {"global", "enabled"} == schema["properties"].keys()
    jsonschema.validate(DEFAULTS, schema)


def test_the_readme_of_the_chart_has_each_value():
    text = README.read_text()
    assert [name for name in DEFAULTS if f"`{name}" not in text] == []


@needs_helm
@pytest.mark.parametrize("text", ["1", "1e3", "0123", "true", "null", "~", "a: b", "a #b", "[", "it's", '"'])
def test_a_text_stays_a_text(text: str, tmp_path: Path):
    labels = {"x": text}
    values = {
        "image": {"repository": f"koff{text}", "tag": text},
        "imagePullSecrets": [{"name": text}],
        "existingSecret": text,
        "webConfig": {"key": text, "tls": True, "clientCert": text, "clientKey": text},
        "state": {"enabled": True, "size": text, "storageClassName": text},
        "config": {"clusters": [{"name": "a", "brokers": "k:1", "labels": {"x": text}}]},
        "extraArgs": [text],
        "env": [{"name": "X", "value": text}],
        "priorityClassName": text,
        "serviceAccount": {"annotations": labels},
        "podAnnotations": labels,
        "podLabels": labels,
        "nodeSelector": labels,
        "service": {"annotations": labels},
        "serviceMonitor": {"enabled": True, "labels": labels},
        "prometheusRule": {"enabled": True, "labels": labels},
    }
    objects = render_objects(values, tmp_path)
    pod = find_pod(objects)
    (claim,) = objects["StatefulSet"]["spec"]["volumeClaimTemplates"]
    (secret,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    (container,) = pod["containers"]
    assert claim["spec"]["resources"]["requests"]["storage"] == text
    assert claim["spec"]["storageClassName"] == text
    assert secret["secretName"] == text
    assert pod["priorityClassName"] == text
    assert container["image"] == f"koff{text}:{text}"
    assert container["args"][-1] == text
    assert f"/etc/koff-secrets/{text}" in container["args"]
    assert container["livenessProbe"]["exec"]["command"].count(f"/etc/koff-secrets/{text}") == 2
    assert container["env"] == [{"name": "X", "value": text}]
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert objects[kind]["metadata"]["labels"]["x"] == text
    # koff reads its file by another library than Kubernetes.
    config = yaml.safe_load(objects["ConfigMap"]["data"]["koff.yaml"])
    assert config["clusters"][0]["labels"]["x"] == text


def _list_paths(values: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The keys of the chart's values, also nested ones."""
    for name, value in values.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *path) for path in _list_paths(value))


@needs_helm
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=".".join(path), marks=[pytest.mark.thorough] if path[1:] else [])
        for path in _list_paths(DEFAULTS)
    ],
)
def test_an_empty_value_is_as_none_or_refused_by_its_name(path: tuple[str, ...], tmp_path: Path):
    """In YAML, `nodeSelector:` without more is null. Helm then removes the default."""
    values: Any = None
    for name in reversed(path):
        values = {name: values}
    for name in ("serviceMonitor", "prometheusRule", "networkPolicy"):
        if path[0] != name:
            values[name] = {"enabled": True}
        elif len(path) == 2:
            values[name].setdefault("enabled", True)
    rendered = render(values, tmp_path)
    if rendered.returncode:
        assert f"missing property '{path[-1]}'" in rendered.stderr
    else:
        render_objects(values, tmp_path)


@needs_helm
def test_a_large_number_stays_an_integer(tmp_path: Path):
    cluster = {"name": "a", "brokers": "k:1", "end_offset_interval": 12_345_678}
    objects = render_objects(
        {"shards": 1_000_000, "config": {"clusters": [cluster], "max_series": 1_000_000}}, tmp_path
    )
    (container,) = find_pod(objects)["containers"]
    assert objects["StatefulSet"]["spec"]["replicas"] == 1_000_000
    assert "$(POD_INDEX)/1000000" in container["args"]
    config = yaml.safe_load(objects["ConfigMap"]["data"]["koff.yaml"])
    assert (config["max_series"], config["clusters"]) == (1_000_000, [cluster])
    assert render_objects({"replicas": 1_000_000}, tmp_path)["Deployment"]["spec"]["replicas"] == 1_000_000


@needs_helm
@pytest.mark.parametrize(
    "release",
    ["koff", "123", "1e3", "true", "a.b", "9-koff", "r" * 53, "r" * 40 + "-" * 9 + "r", "koff" + "r" * 49],
)
def test_kubernetes_accepts_the_names_and_labels_of_any_release(release: str, tmp_path: Path):
    objects = render_objects(
        {"shards": 2, "networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        tmp_path,
        release=release,
    )
    assert len(objects.pop("Pod")["metadata"]["name"]) <= 63
    (name,) = {document["metadata"]["name"] for document in objects.values()}
    # A Service's name is a label of the DNS (RFC 1035).
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
    # The controller adds 11 characters to a StatefulSet's name, for a label of its pods.
    assert len(name) <= 63 - 11
    for document in (*objects.values(), find_workload(objects)["spec"]["template"]):
        assert document["metadata"]["labels"]["app.kubernetes.io/instance"] == release


@needs_helm
def test_releases_whose_long_names_begin_alike_have_objects_of_different_names(tmp_path: Path):
    names = {
        render_objects({}, tmp_path, release="r" * 52 + end)["Service"]["metadata"]["name"] for end in "ab"
    }
    assert len(names) == 2
