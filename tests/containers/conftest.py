"""A container engine, the images, a Kafka in a container, and koff beside it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

# Ryuk removes containers of tests that were killed, and cannot be pulled everywhere.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")

from testcontainers.core.container import DockerContainer

from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.ports import free_ports
from tests.containers import images
from tests.containers.outside import wait_for_cluster


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """A client of the engine."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).exists():
        pytest.skip(f"needs a container engine: there is no {host}")  # the library would leave a socket open
    try:
        client = docker.from_env(timeout=60)
        client.ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"needs a container engine: {error}")
    with contextlib.closing(client):
        yield client


@pytest.fixture(scope="session")
def koff_image(engine: docker.DockerClient) -> str:
    """The id of koff's image, built by the Dockerfile."""
    return build_or_skip(engine, "koff")


def build_or_skip(engine: docker.DockerClient, target: str) -> str:
    """Builds a target of koff's Dockerfile; skips the test where no base image can be had."""
    try:
        return images.build_koff(engine, target)
    except images.NoImage as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def network(engine: docker.DockerClient) -> Iterator[str]:
    """The id of a network whose addresses no other network of this machine has."""
    made = engine.networks.create("koff-test", check_duplicate=False)
    try:
        yield made.id
    finally:
        made.remove()


@pytest.fixture(scope="session")
def kafka(engine: docker.DockerClient, network: str) -> Iterator[DockerContainer]:
    """A broker: localhost:9092 in its network namespace, 9094 on this machine. It publishes 9850 as well."""
    try:
        images.ensure_kafka(engine)
    except images.NoImage as error:
        pytest.skip(str(error))
    (outside,) = free_ports(1)
    container = (
        DockerContainer(images.KAFKA)
        .with_envs(
            KAFKA_NODE_ID="1",
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_LISTENERS="INSIDE://:9092,OUTSIDE://:9094,CONTROLLER://:9093",
            KAFKA_ADVERTISED_LISTENERS=f"INSIDE://localhost:9092,OUTSIDE://127.0.0.1:{outside}",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            KAFKA_INTER_BROKER_LISTENER_NAME="INSIDE",
            KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
            KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
            KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS="4",
        )
        .with_bind_ports(9094, outside)
        .with_exposed_ports(9850)
        .with_kwargs(network=network)
    )
    with container:
        yield container


@pytest.fixture(scope="session")
def cluster(kafka: DockerContainer) -> KafkaCluster:
    """The broker as this machine sees it. It responds."""
    return wait_for_cluster(f"127.0.0.1:{kafka.get_exposed_port(9094)}", kafka.get_wrapped_container())
