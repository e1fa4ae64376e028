"""`python -m koff.kafkatest.play HOST:PORT`: the traffic and incidents of `koff demo`, on a Kafka that runs.

For the compose file. It creates topics and writes messages: not for a cluster that anybody uses.
"""

import signal
import sys
import threading
from collections.abc import Callable

from koff.kafkatest.incidents import GROUPS, TOPICS, Incidents
from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.traffic import GROUPS as USUAL_GROUPS
from koff.kafkatest.traffic import TOPICS as USUAL_TOPICS
from koff.kafkatest.traffic import Traffic
from koff.kafkatest.wait import wait_until

_PATIENCE_S = 300.0


def play(bootstrap: str, announce: Callable[[str], None], stopping: threading.Event) -> None:
    """Plays until `stopping` is set. `announce` gets a line for each incident."""
    cluster = KafkaCluster(bootstrap)
    wait_until(
        lambda: cluster.is_up(1) or stopping.is_set(), timeout_s=_PATIENCE_S, what=f"Kafka at {bootstrap}"
    )
    if stopping.is_set():
        return
    with (
        Traffic(cluster, topics=USUAL_TOPICS | TOPICS, groups=(*USUAL_GROUPS, *GROUPS)) as traffic,
        Incidents(cluster, traffic, announce=announce),
    ):
        stopping.wait()


def main() -> None:
    """Plays on the Kafka of the command line until SIGTERM or Ctrl-C."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m koff.kafkatest.play HOST:PORT")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    play(sys.argv[1], lambda line: print(line, flush=True), stopping)  # noqa: T201


if __name__ == "__main__":
    main()
