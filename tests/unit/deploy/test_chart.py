"""What the Helm chart in deploy/helm makes of its values."""

import itertools
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from koff.cli.health import health
from koff.cli.monitor import monitor
from koff.version import VERSION
from tests.unit.deploy.chart import (
    CHART,
    CLUSTERS,
    HELM,
    find_pod,
    find_workload,
    needs_helm,
    render_notes,
    render_objects,
)
from tests.unit.deploy.test_manifests import (
    KUBERNETES,
    ROOT,
    check,
    check_config,
    check_koff,
    check_pod,
    find_koffs,
)

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "two replicas": {"replicas": 2, "networkPolicy": {"enabled": True}},
    "a pair that sends once": {
        "replicas": 2,
        "config": {"clusters": CLUSTERS, "webhooks": [{"url": "https://alerts.example"}]},
        "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 9092}]}]},
        "webConfig": {"tls": True},
    },
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
        "envFrom": [{"secretRef": {"name": "all"}}],
        "initContainers": [{"name": "first", "image": "i", "command": ["true"]}],
        "extraContainers": [{"name": "proxy", "image": "p"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["kafka"]}],
    },
    "all that others look at": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"a": "1"},
            "hosts": [{"host": "koff.example"}, {"host": "x.example", "path": "/koff"}],
            "tls": [{"secretName": "t", "hosts": ["koff.example"]}],
        },
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["koff.example"]},
        "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 9092}]}]},
        "service": {"type": "NodePort", "labels": {"x": "y"}},
        **{
            name: {"enabled": True, "namespace": "monitoring", "labels": {"release": "p"}}
            for name in ("serviceMonitor", "podMonitor", "vmServiceScrape", "prometheusRule")
        },
        "dashboards": {"enabled": True, "namespace": "grafana", "grafanaOperator": {"enabled": True}},
    },
}


@needs_helm
def test_helm_finds_no_fault_in_the_chart():
    linted = subprocess.run(
        [str(HELM), "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout


@needs_helm
@pytest.mark.parametrize("name", VALUES)
def test_the_chart_makes_objects_that_run_koff(name: str, tmp_path: Path):
    objects = render_objects(VALUES[name], tmp_path)
    for document in objects.values():
        for kubernetes in KUBERNETES:
            check(document, kubernetes)
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


def test_the_chart_has_the_version_of_koff():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


@needs_helm
def test_a_name_may_be_given(tmp_path: Path):
    objects = render_objects({"fullnameOverride": "lag"}, tmp_path)
    assert objects.pop("Pod")["metadata"]["name"] == "lag-test"
    assert {document["metadata"]["name"] for document in objects.values()} == {"lag"}
    pod = find_pod(objects)
    assert pod["serviceAccountName"] == "lag"
    assert {"name": "config", "configMap": {"name": "lag"}} in pod["volumes"]


@needs_helm
def test_an_image_may_be_a_digest(tmp_path: Path):
    digest = "sha256:" + "0" * 64
    objects = render_objects({"image": {"repository": "r/koff", "tag": "1", "digest": digest}}, tmp_path)
    assert find_pod(objects)["containers"][0]["image"] == f"r/koff@{digest}"


@needs_helm
def test_labels_and_annotations_of_a_user_replace_those_of_the_chart(tmp_path: Path):
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
def test_another_configuration_makes_another_pod(tmp_path: Path):
    pods = [
        find_workload(render_objects({"config": {"clusters": CLUSTERS, "wait": wait}}, tmp_path))["spec"]
        for wait in (True, True, False)
    ]
    assert pods[0] == pods[1] != pods[2]


@needs_helm
def test_no_peer_in_the_network_policy_means_that_nobody_may_connect(tmp_path: Path):
    """In Kubernetes, an empty `from` allows all sources, and an empty `ingress` none."""
    policy = render_objects({"networkPolicy": {"enabled": True, "from": []}}, tmp_path)["NetworkPolicy"]
    assert policy["spec"]["ingress"] == []
    assert policy["spec"]["policyTypes"] == ["Ingress"]


@needs_helm
def test_the_second_of_two_pods_finds_the_first(tmp_path: Path):
    objects = render_objects(VALUES["a pair that sends once"], tmp_path)
    workload, names = find_workload(objects), objects["Service k-koff-pods"]
    assert (workload["kind"], workload["spec"]["replicas"]) == ("StatefulSet", 2)
    assert workload["spec"]["serviceName"] == names["metadata"]["name"]
    assert (names["spec"]["clusterIP"], names["spec"].get("ports")) == ("None", None)
    assert names["spec"]["publishNotReadyAddresses"] is True
    args = find_pod(objects)["containers"][0]["args"]
    first = monitor.make_context("koff monitor", args[1:]).params["standby_of"]
    assert first == "https://k-koff-0.k-koff-pods:9850"
    policy = objects["NetworkPolicy"]["spec"]
    (peer,) = policy["egress"][-1]["to"]
    assert peer in policy["ingress"][0]["from"]
    assert peer["podSelector"] == policy["podSelector"]


@needs_helm
def test_prometheus_scrapes_as_the_endpoint_says(tmp_path: Path):
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
def test_probes_use_tls_if_koff_does(tmp_path: Path):
    for tls, scheme in ((False, "HTTP"), (True, "HTTPS")):
        (container,) = find_pod(render_objects({"webConfig": {"tls": tls}}, tmp_path))["containers"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[name]["httpGet"].get("scheme", "HTTP") == scheme


@needs_helm
def test_probes_show_a_client_certificate_if_koff_requires_one(tmp_path: Path):
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
def test_a_volume_of_state_belongs_to_the_user_of_koff(values: dict[str, Any], tmp_path: Path):
    """Without such a volume no group is named: OpenShift accepts only groups of its own."""
    pod = find_pod(render_objects(values, tmp_path))
    assert pod["securityContext"].get("fsGroup") == (65532 if "state" in values else None)


@needs_helm
@pytest.mark.parametrize("enabled", [True, False])
def test_a_parent_chart_may_have_a_condition_for_koff(enabled: bool, tmp_path: Path):
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
def test_the_notes_have_commands_that_reach_koff(values: dict[str, Any], commands: list[str], tmp_path: Path):
    notes = render_notes(values, tmp_path)
    assert [command for command in commands if command not in notes] == []
    assert "kubectl -n n " in notes
    assert ("--user" in notes) == ("--user" in commands)


@needs_helm
@pytest.mark.parametrize("page", ["docs/deploy.md", "README.md"])
def test_a_documented_installation_renders(page: str, tmp_path: Path):
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


@needs_helm
@pytest.mark.parametrize("name", VALUES)
def test_the_test_pod_asks_koff_through_its_service(name: str, tmp_path: Path):
    objects = render_objects(VALUES[name], tmp_path)
    pod, service = objects["Pod"], objects["Service"]
    (container,) = pod["spec"]["containers"]
    command, *args = container["args"]
    assert command == "health"
    given = health.make_context("koff health", args).params
    assert given["listen"] == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert given["ready"]
    # The Service does not take the pod for a koff, and the restricted profile accepts it.
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    check_pod(pod["spec"])
    assert container["securityContext"] == find_pod(objects)["containers"][0]["securityContext"]


@needs_helm
def test_security_contexts_and_probes_get_the_fields_of_the_values(tmp_path: Path):
    values = {
        "podSecurityContext": {"runAsUser": 1000, "fsGroup": 7},
        "securityContext": {"seLinuxOptions": {"level": "s0"}},
        "probes": {"liveness": {"timeoutSeconds": 9}},
        "state": {"enabled": True},
        "serviceAccount": {"create": False, "name": "there"},
    }
    objects = render_objects(values, tmp_path)
    pod = find_pod(objects)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "fsGroup": 7,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"]["seLinuxOptions"] == {"level": "s0"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (container["livenessProbe"]["timeoutSeconds"], container["livenessProbe"]["periodSeconds"]) == (
        9,
        15,
    )
    assert "ServiceAccount" not in objects
    assert pod["serviceAccountName"] == "there"
