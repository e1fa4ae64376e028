"""koff's image with Spark: `koff pipeline` writes tables and a report, and downloads nothing."""

import json
from collections.abc import Iterator

import docker
import pytest
from testcontainers.core.container import DockerContainer

from koff.kafkatest.kafka_cluster import KafkaCluster
from tests.containers.conftest import build_or_skip
from tests.containers.outside import LONGEST_S, commit
from tests.kafka_groups import produce
from tests.spark.settings import QUICK_COMMAND

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900), pytest.mark.thorough]


@pytest.fixture(scope="module")
def spark_image(koff_image: str, engine: docker.DockerClient) -> str:
    return build_or_skip(engine, "spark")


@pytest.fixture(scope="module")
def tables(engine: docker.DockerClient) -> Iterator[str]:
    """The name of a volume. It belongs to root until a container has it at /tables."""
    volume = engine.volumes.create()
    yield volume.name
    volume.remove()


def run(engine: docker.DockerClient, image: str, tables: str, *command: str, network: str = "none") -> str:
    """What `koff pipeline` prints, in a container that can write to /tables and /tmp only."""
    output: bytes = engine.containers.run(
        image,
        ["pipeline", *command, *QUICK_COMMAND],
        network_mode=network,
        volumes={tables: {"bind": "/tables"}},
        read_only=True,
        tmpfs={"/tmp": "exec"},  # Spark's codecs are native libraries, which are unpacked there
        environment={"SPARK_LOCAL_IP": "127.0.0.1"},  # without a network, no name leads to an address
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        stderr=True,
        remove=True,
    )
    return output.decode()


def test_the_image_with_spark_writes_tables_and_reports(
    spark_image: str, tables: str, engine: docker.DockerClient, kafka: DockerContainer, cluster: KafkaCluster
):
    topic = cluster.create_topic(timeout_s=LONGEST_S)
    produce(cluster, topic, 10)
    commit(cluster, topic, 4, group="spark-billing")

    # The first command sees the broker, and the second no network at all.
    broker = f"container:{kafka.get_wrapped_container().id}"
    once = ("run", "--once", "--brokers", "localhost:9092", "--tables", "/tables/koff")
    printed = run(engine, spark_image, tables, *once, network=broker)
    assert "Warning" not in printed
    run(
        engine,
        spark_image,
        tables,
        "report",
        "--tables",
        "/tables/koff",
        "--format",
        "json",
        "--out",
        "/tables/r",
    )
    script = ["-c", "print(open('/tables/r').read())"]
    text = engine.containers.run(
        spark_image, script, entrypoint="python3", volumes={tables: {"bind": "/tables"}}, remove=True
    )

    lags = {row["group"]: row for row in json.loads(text)["worst_by_lag"]}
    assert lags["spark-billing"]["largest_lag"] == 6
