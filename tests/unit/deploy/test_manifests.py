"""The objects for Kubernetes in deploy/: schemas, and what they say about koff."""

import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from koff.cli.monitor import monitor
from koff.cli.pipeline import run as pipeline_run
from koff.config.koff_yaml import read_koff_yaml
from koff.version import VERSION

ROOT = Path(__file__).parents[3]
PLAIN = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
KUBERNETES = ("1.28", "1.33", "1.36")
CRDS = ROOT / "tests" / "crds"
SERVED = {"/healthz", "/readyz"}


@functools.cache
def read_custom_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """The schemas of custom resources, by API version and kind."""
    schemas = {}
    for path in CRDS.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = _close(version["schema"]["openAPIV3Schema"])
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, which refuses fields that it does not name: an API server drops them silently."""
    closed = {
        name: {key: _close(value) for key, value in part.items()} if name == "properties" else part
        for name, part in schema.items()
    }
    for name in ("items", "additionalProperties"):
        if isinstance(closed.get(name), dict):
            closed[name] = _close(closed[name])
    # An empty object stands for anything, such as `metadata`.
    is_open = "additionalProperties" in closed or closed.get("x-kubernetes-preserve-unknown-fields")
    if closed.get("properties") and not is_open:
        closed["additionalProperties"] = False
    return closed


def check(document: dict[str, Any], kubernetes: str) -> None:
    key = document["apiVersion"], document["kind"]
    if key == ("sparkoperator.k8s.io/v1beta2", "SparkApplication"):
        check_spark_fields(document["spec"])
    elif document["kind"] in FIELDS:
        version, known = FIELDS[document["kind"]]
        assert document["apiVersion"] == version
        assert document["spec"].keys() <= known
    elif key in read_custom_schemas():
        # The schemas themselves are not checked: their patterns are those of Go.
        jsonschema.Draft202012Validator(read_custom_schemas()[key]).validate(document)
    else:
        kubernetes_validate.validate(document, kubernetes, strict=True)


SPARK_FIELDS = {
    "": {
        *("type", "mode", "sparkVersion", "image", "mainApplicationFile", "arguments", "restartPolicy"),
        *("sparkConf", "hadoopConf", "driver", "executor"),
    },
    "restartPolicy": {"type", "onFailureRetryInterval", "onSubmissionFailureRetryInterval"},
    "driver": {
        *("cores", "memory", "memoryOverhead", "serviceAccount", "labels", "ports", "configMaps", "envFrom"),
        *("terminationGracePeriodSeconds", "securityContext"),
    },
    "executor": {
        *("instances", "cores", "memory", "memoryOverhead", "labels", "envFrom", "securityContext"),
    },
}
"""The fields of a SparkApplication that the manifest may use: looked up in the operator's CRD
(kubeflow/spark-operator, commit 38082f3), which is too large to be copied here."""


FIELDS = {
    "HTTPRoute": ("gateway.networking.k8s.io/v1", {"parentRefs", "hostnames", "rules"}),
    "VMServiceScrape": (
        "operator.victoriametrics.com/v1beta1",
        {"endpoints", "selector", "namespaceSelector", "jobLabel", "targetLabels"},
    ),
    "GrafanaDashboard": (
        "grafana.integreatly.org/v1beta1",
        {"instanceSelector", "allowCrossNamespaceImport", "folder", "json"},
    ),
}
"""The same for objects of the Gateway API, and of the operators of VictoriaMetrics and Grafana."""


def check_spark_fields(spec: dict[str, Any]) -> None:
    """Checks the names of fields, and the types of the values that the operator passes to Spark as texts."""
    for part, known in SPARK_FIELDS.items():
        assert (spec[part] if part else spec).keys() <= known, part
    for name in ("sparkConf", "hadoopConf"):
        assert all(isinstance(value, str) for value in spec[name].values()), name
    assert isinstance(spec["sparkVersion"], str)


def find_koffs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers of an object that run koff."""
    pod = (
        document.get("spec", {}).get("template", {}).get("spec", {})
        if document["kind"] != "ScaledObject"
        else {}
    )
    yield from (container for container in pod.get("containers", []) if container["name"] == "koff")


def check_koff(container: dict[str, Any]) -> None:
    """Checks the arguments, the probes and what the container may do."""
    command, *args = container["args"]
    assert command == "monitor"
    args = [arg.replace("$(POD_INDEX)", "0") for arg in args]
    monitor.make_context("koff monitor", args)  # raises click's error for an option that there is not
    probes = [value for name, value in container.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["path"] for probe in probes} <= SERVED
    # A start on a busy node takes long: until then, the liveness probe must not restart koff.
    startup = container["startupProbe"]
    assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def check_pod(pod: dict[str, Any]) -> None:
    """Checks that a namespace with the PodSecurity level `restricted` accepts the pod."""
    assert pod["automountServiceAccountToken"] is False  # koff does not talk to Kubernetes
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    kinds = {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "secret", "emptyDir", "projected", "persistentVolumeClaim"}


def check_config(document: dict[str, Any], tmp_path: Path) -> None:
    """Checks the koff.yaml of a ConfigMap."""
    path = tmp_path / "koff.yaml"
    path.write_text(document["data"]["koff.yaml"])
    read_koff_yaml(path, {})


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_a_plain_manifest_fits_its_schemas(path: Path, kubernetes: str):
    for document in yaml.safe_load_all(path.read_text()):
        check(document, kubernetes)


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_a_plain_manifest_runs_koff_as_it_is(path: Path, tmp_path: Path):
    for document in yaml.safe_load_all(path.read_text()):
        for container in find_koffs(document):
            check_koff(container)
            assert container["image"] == f"koff:{VERSION}"
            check_pod(document["spec"]["template"]["spec"])
        if document["kind"] == "ConfigMap":
            check_config(document, tmp_path)


def read_plain(name: str) -> dict[str, dict[str, Any]]:
    """The objects of one file by kind."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text())
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("name", ["koff", "shards"])
def test_services_budgets_and_monitors_find_the_pods(name: str):
    objects = read_plain(name)
    (workload,) = [objects[kind] for kind in ("Deployment", "StatefulSet") if kind in objects]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    budget = objects["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    # A drain of a node must not wait for ever for the only pod.
    assert budget["maxUnavailable"] == 1
    selector = read_plain("prometheus-operator")["ServiceMonitor"]["spec"]["selector"]
    (expression,) = selector["matchExpressions"]
    assert expression["operator"] == "In"
    assert objects["Service"]["metadata"]["labels"][expression["key"]] in expression["values"]


def test_the_spark_application_runs_the_pipeline_and_is_scraped():
    objects = read_plain("spark")
    application = objects["SparkApplication"]["spec"]
    assert application["image"] == f"koff:{VERSION}-spark"
    command, *args = application["arguments"]
    assert command == "run"
    context = pipeline_run.make_context("koff pipeline run", args)
    assert context.params["tables"].startswith("s3a://")
    # On S3, koff refuses to write before a log store is chosen.
    assert "spark.delta.logStore.s3a.impl" in application["sparkConf"]
    driver, executor = application["driver"], application["executor"]
    assert f"{driver['configMaps'][0]['path']}/koff.yaml" == str(context.params["config"])
    assert driver["configMaps"][0]["name"] == objects["ConfigMap"]["metadata"]["name"]
    (port,) = driver["ports"]
    assert f":{port['containerPort']}" == context.params["listen"]
    monitor_of = objects["PodMonitor"]["spec"]
    assert {endpoint["port"] for endpoint in monitor_of["podMetricsEndpoints"]} == {port["name"]}
    assert (
        monitor_of["selector"]["matchLabels"].items() <= {**driver["labels"], "spark-role": "driver"}.items()
    )
    # Both kinds of pods can write to the store, and a namespace with the level `restricted` accepts them.
    assert driver["envFrom"] == executor["envFrom"]
    for pod in (driver, executor):
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    bound = objects["RoleBinding"]
    assert bound["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    assert (
        bound["subjects"][0]["name"]
        == driver["serviceAccount"]
        == objects["ServiceAccount"]["metadata"]["name"]
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ["driver", "--class", "C", "local:///a.py", "run", "a b"],
            "spark-submit --deploy-mode client --conf spark.driver.bindAddress=10.0.0.1 "
            "--conf spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.1 --class C local:///a.py run [a b]",
        ),
        (
            ["executor"],
            "java -Done=1 [-Dtwo=a b] -Xms2g -Xmx2g -cp /extra.jar:HOME/jars/* "
            "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url spark://d "
            "--executor-id 1 --cores 2 --app-id app --hostname 10.0.0.1 --resourceProfileId 0 --podName pod",
        ),
        (["pipeline", "--help"], "koff pipeline --help"),
    ],
)
def test_the_entry_point_starts_what_spark_asks_for(args: list[str], expected: str, tmp_path: Path):
    for name in ("spark-submit", "java", "koff"):
        path = tmp_path / name
        show = 'for a; do case $a in *" "*) a="[$a]";; esac; printf " %s" "$a"; done'
        path.write_text(f"#!/bin/sh\nprintf {name}\n{show}\n")
        path.chmod(0o755)
    pod = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
        "SPARK_DRIVER_URL": "spark://d",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_CLASSPATH": "/extra.jar",
        "SPARK_JAVA_OPT_0": "-Done=1",
        "SPARK_JAVA_OPT_1": "-Dtwo=a b",
    }
    script = ROOT / "deploy" / "spark" / "entrypoint.sh"
    done = subprocess.run(["sh", script, *args], env=pod, capture_output=True, text=True, check=True)
    assert done.stdout.replace("/opt/koff/lib/python3*/site-packages/pyspark", "HOME") == expected


def test_a_sidecar_does_not_keep_the_consumer_from_running():
    pod = read_plain("sidecar")["Deployment"]["spec"]["template"]["spec"]
    # Containers after an init container wait for its startup probe, and for its image.
    assert "initContainers" not in pod
    (koff,) = [container for container in pod["containers"] if container["name"] == "koff"]
    assert "readinessProbe" not in koff
    monitor_of = read_plain("prometheus-operator")["PodMonitor"]["spec"]
    assert {endpoint["port"] for endpoint in monitor_of["podMetricsEndpoints"]} == {koff["ports"][0]["name"]}


def test_a_schema_refuses_a_field_that_there_is_not():
    monitor_of = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "k"},
    }
    spec = {"selector": {}, "endpoints": [{"port": "http", "intervall": "15s"}]}
    with pytest.raises(jsonschema.ValidationError, match="intervall"):
        check({**monitor_of, "spec": spec}, KUBERNETES[0])
