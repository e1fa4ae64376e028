"""koff's image beside a Kafka, joined to its network namespace as a sidecar is."""

from collections.abc import Iterator

import docker
import pytest
from testcontainers.core.container import DockerContainer

from koff.kafkatest import wait_until
from koff.kafkatest.kafka_cluster import KafkaCluster
from tests.containers.images import BASE
from tests.containers.outside import LONGEST_S, commit, get, read_lag
from tests.kafka_groups import produce

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def koff(koff_image: str, kafka: DockerContainer, cluster: KafkaCluster) -> Iterator[DockerContainer]:
    """koff as a sidecar of the broker: with its network, and with nothing that can be written to."""
    container = (
        DockerContainer(koff_image)
        .with_env("KOFF_BROKERS", "localhost:9092")
        .with_command("monitor")
        .with_kwargs(
            network_mode=f"container:{kafka.get_wrapped_container().id}",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
        )
    )
    with container:
        yield container


@pytest.fixture(scope="module")
def url(kafka: DockerContainer) -> str:
    return f"http://127.0.0.1:{kafka.get_exposed_port(9850)}"


def test_koff_in_a_container_follows_a_lag_up_and_down(
    koff: DockerContainer, url: str, cluster: KafkaCluster
):
    wait_until(lambda: get(f"{url}/readyz")[0] == 200, timeout_s=LONGEST_S, what="koff to be ready")
    topic = cluster.create_topic(timeout_s=LONGEST_S)

    def wait_for_lag(lag: int) -> None:
        wait_until(
            lambda: read_lag(url, "billing") == lag, timeout_s=LONGEST_S, what=f"koff to serve a lag of {lag}"
        )

    produce(cluster, topic, 10)
    commit(cluster, topic, 4)
    wait_for_lag(6)
    produce(cluster, topic, 5)
    wait_for_lag(11)
    commit(cluster, topic, 15)
    wait_for_lag(0)


def test_koff_is_no_root_and_stops_when_told(koff: DockerContainer):
    container = koff.get_wrapped_container()
    assert container.exec_run(["id", "-u"]).output.decode().strip() == "65532"
    assert container.exec_run(["touch", "/opt/koff/x"]).exit_code != 0
    container.stop(timeout=30)  # after that, SIGKILL gives code 137
    assert container.wait(timeout=60)["StatusCode"] == 0


def test_the_image_is_small_and_says_what_it_is(koff_image: str, engine: docker.DockerClient):
    image, base = engine.images.get(koff_image), engine.images.get(BASE)
    assert image.attrs["Size"] - base.attrs["Size"] < 200e6
    config = image.attrs["Config"]
    assert config["Labels"]["org.opencontainers.image.version"] == "test"
    assert (config["User"], config["StopSignal"]) == ("65532:65532", "SIGTERM")
    assert config["Healthcheck"]["Test"] == ["CMD", "koff", "health", "--find"]
    tools = engine.containers.run(
        koff_image, ["-c", "command -v pip gcc cc git curl || true"], entrypoint="sh", remove=True
    )
    assert tools == b""
