"""The Helm chart in deploy/helm: what it makes of values, and which values it refuses."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from koff.cli.health import health
from koff.config.keys import CLUSTER_KEYS, DEFAULTS_KEYS, TOP_KEYS
from koff.version import VERSION
from tests.unit.deploy.test_manifests import (
    KUBERNETES,
    ROOT,
    check,
    check_config,
    check_koff,
    check_pod,
    find_koffs,
)
from tests.unit.deploy.test_rules import RULES

CHART = ROOT / "deploy" / "helm" / "koff"

HELM = shutil.which("helm") or shutil.which("helm", path=str(Path.home() / "go" / "bin"))
needs_helm = pytest.mark.skipif(HELM is None, reason="needs helm: go install helm.sh/helm/v3/cmd/helm@latest")

CLUSTERS = [{"name": "a", "brokers": "k:1"}]
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "two replicas": {"replicas": 2, "networkPolicy": {"enabled": True}},
    "shards with state": {"shards": 3, "state": {"enabled": True, "size": "2Gi", "storageClassName": "fast"}},
    "the Prometheus operator": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "p"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "p"}},
    },
    "TLS and users": {
        "existingSecret": "koff",
        "webConfig": {"key": "web.yml", "tls": True},
        "serviceMonitor": {
            "enabled": True,
            "endpoint": {
                "tlsConfig": {"insecureSkipVerify": True},
                "basicAuth": {
                    "username": {"name": "s", "key": "user"},
                    "password": {"name": "s", "key": "password"},
                },
                "metricRelabelings": [{"action": "labeldrop", "regex": "pod"}],
            },
        },
    },
    "everything that a pod may have": {
        "image": {"repository": "registry.example/koff", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "env": [
            {"name": "KOFF_PROPERTY_SASL_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "k", "key": "p"}}}
        ],
        "extraArgs": ["--families", "all"],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
        "serviceAccount": {"annotations": {"role": "r"}},
        "podAnnotations": {"a": "1"},
        "podLabels": {"l": "1"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "priorityClassName": "high",
        "service": {"annotations": {"s": "1"}},
        "podDisruptionBudget": {"enabled": False},
    },
}


class _Loader(yaml.SafeLoader):
    """Reads YAML as Kubernetes does: 1e3 is a number, and a key may be there only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is there twice: {sorted(map(str, keys))}"
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def render(
    values: dict[str, Any], tmp_path: Path, *, release: str = "k", chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    given = tmp_path / "values.yaml"
    given.write_text(json.dumps(values))  # PyYAML would write the text "1e3" as a number of Go
    command = f"{HELM} template {release} {chart} --namespace n --kube-version 1.33.0 --values {given}"
    return subprocess.run(command.split(), capture_output=True, text=True, check=False)


def render_objects(
    values: dict[str, Any], tmp_path: Path, *, release: str = "k", chart: Path = CHART
) -> dict[str, dict[str, Any]]:
    """The objects by kind. Each fits its schema."""
    rendered = render(values, tmp_path, release=release, chart=chart)
    assert rendered.returncode == 0, rendered.stderr
    # The loader is a SafeLoader.
    documents = [document for document in yaml.load_all(rendered.stdout, _Loader) if document]
    for document in documents:
        for kubernetes in KUBERNETES:
            check(document, kubernetes)
    objects = {document["kind"]: document for document in documents}
    assert len(objects) == len(documents)
    return objects


def find_workload(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (workload,) = [objects[kind] for kind in ("Deployment", "StatefulSet") if kind in objects]
    return workload


def find_pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return find_workload(objects)["spec"]["template"]["spec"]


def render_notes(values: dict[str, Any], tmp_path: Path) -> str:
    """What helm prints after an installation. `helm template` does not print it, so an object has it here."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    shutil.move(chart / "templates" / "NOTES.txt", chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(
        'kind: Notes\ntext: {{ tpl (.Files.Get "notes.txt") . | quote }}\n'
    )
    rendered = render(values, tmp_path, chart=chart)
    assert rendered.returncode == 0, rendered.stderr
    (text,) = [d["text"] for d in yaml.safe_load_all(rendered.stdout) if d and d["kind"] == "Notes"]
    return str(text)


@needs_helm
def test_helm_finds_no_fault_in_the_chart() -> None:
    linted = subprocess.run(
        [str(HELM), "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout


@needs_helm
@pytest.mark.parametrize("name", VALUES)
def test_the_chart_makes_objects_that_run_koff(name: str, tmp_path: Path) -> None:
    objects = render_objects(VALUES[name], tmp_path)
    check_config(objects["ConfigMap"], tmp_path)
    workload = find_workload(objects)
    (container,) = find_koffs(workload)
    check_koff(container)
    check_pod(find_pod(objects))
    # Services, budgets and monitors find the pods, also those of another version of the chart.
    labels = workload["spec"]["template"]["metadata"]["labels"]
    for kind, document in objects.items():
        spec = document.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        assert selector.get("matchLabels", selector).items() <= labels.items(), kind
        assert "helm.sh/chart" not in selector.get("matchLabels", selector)


@needs_helm
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replicas": 2, "shards": 2}, "replicas cannot be combined"),
        ({"replicas": 2, "state": {"enabled": True}}, "replicas cannot be combined"),
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
def test_the_chart_refuses_values_that_cannot_work(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    rendered = render(values, tmp_path)
    assert rendered.returncode != 0
    assert why in rendered.stderr


def test_the_chart_has_the_version_and_the_rules_of_koff() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert (CHART / "files" / "koff-rules.yml").read_text() == RULES.read_text(), (
        "copy deploy/prometheus there"
    )


def test_each_value_of_the_chart_is_in_its_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert DEFAULTS.keys() | {"global", "enabled"} == schema["properties"].keys()
    jsonschema.validate(DEFAULTS, schema)


def test_the_schema_knows_the_keys_of_koff_yaml() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    set_by_the_chart = {"listen", "state_dir"}
    of_file = {key.name for key in TOP_KEYS} | {"clusters", "defaults", "webhooks"}
    assert schema.keys() == of_file - set_by_the_chart
    assert schema["defaults"]["properties"].keys() == {key.name for key in DEFAULTS_KEYS}
    of_cluster = {key.name for key in (*CLUSTER_KEYS, *DEFAULTS_KEYS)}
    assert schema["clusters"]["items"]["properties"].keys() == of_cluster


@needs_helm
@pytest.mark.parametrize("text", ["1", "1e3", "0123", "true", "null", "~", "a: b", "a #b", "[", "it's", '"'])
def test_a_text_stays_a_text(text: str, tmp_path: Path) -> None:
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
@pytest.mark.parametrize("path", list(_list_paths(DEFAULTS)), ids=".".join)
def test_an_empty_value_is_as_none_or_refused_by_its_name(path: tuple[str, ...], tmp_path: Path) -> None:
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
def test_a_large_number_stays_an_integer(tmp_path: Path) -> None:
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
def test_kubernetes_accepts_the_names_and_labels_of_any_release(release: str, tmp_path: Path) -> None:
    objects = render_objects(
        {"shards": 2, "networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        tmp_path,
        release=release,
    )
    (name,) = {document["metadata"]["name"] for document in objects.values()}
    # A Service's name is a label of the DNS (RFC 1035).
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
    # The controller adds 11 characters to a StatefulSet's name, for a label of its pods.
    assert len(name) <= 63 - 11
    for document in (*objects.values(), find_workload(objects)["spec"]["template"]):
        assert document["metadata"]["labels"]["app.kubernetes.io/instance"] == release


@needs_helm
def test_releases_whose_long_names_begin_alike_have_objects_of_different_names(tmp_path: Path) -> None:
    names = {
        render_objects({}, tmp_path, release="r" * 52 + end)["Service"]["metadata"]["name"] for end in "ab"
    }
    assert len(names) == 2


@needs_helm
def test_a_name_may_be_given(tmp_path: Path) -> None:
    objects = render_objects({"fullnameOverride": "lag"}, tmp_path)
    assert {document["metadata"]["name"] for document in objects.values()} == {"lag"}
    pod = find_pod(objects)
    assert pod["serviceAccountName"] == "lag"
    assert {"name": "config", "configMap": {"name": "lag"}} in pod["volumes"]


@needs_helm
def test_an_image_may_be_a_digest(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    objects = render_objects({"image": {"repository": "r/koff", "tag": "1", "digest": digest}}, tmp_path)
    assert find_pod(objects)["containers"][0]["image"] == f"r/koff@{digest}"


@needs_helm
def test_labels_and_annotations_of_a_user_replace_those_of_the_chart(tmp_path: Path) -> None:
    version = {"app.kubernetes.io/version": "mine"}
    objects = render_objects(
        {
            "podLabels": version,
            "podAnnotations": {"checksum/config": "mine"},
            "serviceMonitor": {"enabled": True, "labels": version},
            "prometheusRule": {"enabled": True, "labels": version},
        },
        tmp_path,
    )
    pod = objects["Deployment"]["spec"]["template"]
    assert pod["metadata"]["annotations"] == {"checksum/config": "mine"}
    for document in (pod, objects["ServiceMonitor"], objects["PrometheusRule"]):
        assert document["metadata"]["labels"]["app.kubernetes.io/version"] == "mine"


@needs_helm
def test_another_configuration_makes_another_pod(tmp_path: Path) -> None:
    pods = [
        find_workload(render_objects({"config": {"clusters": CLUSTERS, "wait": wait}}, tmp_path))["spec"]
        for wait in (True, True, False)
    ]
    assert pods[0] == pods[1] != pods[2]


@needs_helm
def test_no_peer_in_the_network_policy_means_that_nobody_may_connect(tmp_path: Path) -> None:
    """In Kubernetes, an empty `from` allows all sources, and an empty `ingress` none."""
    policy = render_objects({"networkPolicy": {"enabled": True, "from": []}}, tmp_path)["NetworkPolicy"]
    assert policy["spec"]["ingress"] == []
    assert policy["spec"]["policyTypes"] == ["Ingress"]


@needs_helm
def test_prometheus_scrapes_as_the_endpoint_says(tmp_path: Path) -> None:
    authorization = {"credentials": {"name": "s", "key": "token"}}
    values = {
        "webConfig": {"tls": True},
        "serviceMonitor": {"enabled": True, "endpoint": {"authorization": authorization, "interval": "1m"}},
    }
    (endpoint,) = render_objects(values, tmp_path)["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint == {
        "port": "http",
        "scheme": "https",
        "interval": "1m",
        "scrapeTimeout": "10s",
        "authorization": authorization,
    }


@needs_helm
def test_probes_use_tls_if_koff_does(tmp_path: Path) -> None:
    for tls, scheme in ((False, "HTTP"), (True, "HTTPS")):
        (container,) = find_pod(render_objects({"webConfig": {"tls": tls}}, tmp_path))["containers"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[name]["httpGet"].get("scheme", "HTTP") == scheme


@needs_helm
def test_probes_show_a_client_certificate_if_koff_requires_one(tmp_path: Path) -> None:
    """The kubelet has no certificate for httpGet, so a command in the container asks."""
    web_config = {"key": "web.yml", "tls": True, "clientCert": "tls.crt", "clientKey": "tls.key"}
    (container,) = find_pod(render_objects({"existingSecret": "s", "webConfig": web_config}, tmp_path))[
        "containers"
    ]
    for name, more in (("startupProbe", []), ("livenessProbe", []), ("readinessProbe", ["--ready"])):
        assert "httpGet" not in container[name]
        program, command, *args = container[name]["exec"]["command"]
        assert (program, command) == ("koff", "health")
        parsed = health.make_context("koff health", list(args)).params
        assert (str(parsed["client_cert"]), str(parsed["client_key"])) == (
            "/etc/koff-secrets/tls.crt",
            "/etc/koff-secrets/tls.key",
        )
        assert parsed["ready"] == bool(more)
        assert parsed["listen"] == ":9850"
        # Longer than the deadline of `koff health`, which then says why.
        assert container[name]["timeoutSeconds"] > parsed["timeout_s"]


@needs_helm
@pytest.mark.parametrize("values", [{}, {"shards": 2}, {"state": {"enabled": True}}])
def test_a_volume_of_state_belongs_to_the_user_of_koff(values: dict[str, Any], tmp_path: Path) -> None:
    """Without such a volume no group is named: OpenShift accepts only groups of its own."""
    pod = find_pod(render_objects(values, tmp_path))
    assert pod["securityContext"].get("fsGroup") == (65532 if "state" in values else None)


@needs_helm
@pytest.mark.parametrize("enabled", [True, False])
def test_a_parent_chart_may_have_a_condition_for_koff(enabled: bool, tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / "koff")
    dependency = {"name": "koff", "version": VERSION, "condition": "koff.enabled"}
    (parent / "Chart.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v2", "name": "p", "version": "1.0.0", "dependencies": [dependency]})
    )
    objects = render_objects({"koff": {"enabled": enabled}, "global": {"x": 1}}, tmp_path, chart=parent)
    assert ("Deployment" in objects) == enabled


@needs_helm
@pytest.mark.parametrize(
    ("values", "commands"),
    [
        ({}, ["port-forward service/k-koff 9850:9850", "curl http://localhost:9850/readyz"]),
        ({"service": {"port": 80}}, ["port-forward service/k-koff 9850:80"]),
        ({"state": {"enabled": True}}, ["port-forward service/k-koff 9850:9850"]),
        ({"fullnameOverride": "lag"}, ["port-forward service/lag 9850:9850"]),
        # The Service would choose any of the shards.
        ({"shards": 3}, ["port-forward pod/k-koff-0 9850:9850", "k-koff-2"]),
        # The certificate is for the name of the Service.
        ({"webConfig": {"tls": True}}, ["curl --insecure https://localhost:9850/readyz"]),
        (
            {"existingSecret": "s", "webConfig": {"tls": True, "clientCert": "c"}},
            ["curl --cert FILE --key FILE --insecure https:"],
        ),
        ({"existingSecret": "s", "webConfig": {"key": "web.yml"}}, ["--user"]),
        ({"config": {"clusters": CLUSTERS, "tokens_file": "/etc/koff-secrets/tokens"}}, ["--user"]),
    ],
)
def test_the_notes_have_commands_that_reach_koff(
    values: dict[str, Any], commands: list[str], tmp_path: Path
) -> None:
    notes = render_notes(values, tmp_path)
    assert [command for command in commands if command not in notes] == []
    assert "kubectl -n n " in notes
    assert ("--user" in notes) == ("--user" in commands)


@needs_helm
@pytest.mark.parametrize("page", ["docs/deploy.md", "README.md"])
def test_a_documented_installation_renders(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text().replace("\\\n", " ")
    commands = [shlex.split(line, comments=True) for line in re.findall("helm (?:install|upgrade) .*", text)]
    assert commands or page != "docs/deploy.md"
    for command in commands:
        sets = [
            argument
            for option, value in itertools.pairwise(command)
            if option.startswith("--set")
            for argument in (option, value)
        ]
        rendered = subprocess.run(
            [str(HELM), "template", "koff", CHART, "--kube-version", "1.33.0", *sets],
            capture_output=True,
            text=True,
            check=False,
        )
        assert rendered.returncode == 0, rendered.stderr
