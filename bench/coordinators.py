"""How fast coordinators tell all groups and their offsets.

Prints JSON. The groups are commits written straight into `__consumer_offsets` of a fresh broker, which is
then started again, so that its coordinator knows them.

    python -m bench.coordinators --groups 20000
"""

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import click
from confluent_kafka import Consumer

from bench.catchup import PARTITIONS_A_GROUP, commit, write
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.responses import FetchedGroups
from koff.kafkatest import LocalKafka

ALONE = """
import sys, time
began = time.perf_counter()
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf
from koff.client.groups.coordinators import fetch_from_coordinators
with Cluster(ClusterConf(sys.argv[1])) as cluster:
    answers = fetch_from_coordinators(cluster.lister)
print(time.perf_counter() - began, answers.seconds, len(answers.offsets))
"""


def report(answers: FetchedGroups) -> dict[str, Any]:
    assert not answers.failed, dict(list(answers.failed.items())[:3])
    assert not answers.incomplete, answers.incomplete
    return {
        "groups": len(answers.groups),
        "offsets": len(answers.offsets),
        "seconds": round(answers.seconds, 3),
        "rounds": answers.rounds,
    }


def in_a_process(bootstrap: str) -> dict[str, float]:
    """From the start of Python to the answers, as `koff monitor` would need them."""
    began = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-c", ALONE, bootstrap], capture_output=True, text=True, check=True
    ).stdout.split()
    return {
        "seconds": round(time.monotonic() - began, 3),
        "imports_and_asking": round(float(said[0]), 3),
        "asking": round(float(said[1]), 3),
    }


@click.command()
@click.option("--groups", default=20_000, show_default=True, help="Groups, each with ten offsets.")
@click.option("--times", default=5, show_default=True, help="How often koff's own way is measured.")
def main(groups: int, times: int) -> None:
    """Seconds until all groups and their offsets are here."""
    with LocalKafka(jvm_options=("-XX:TieredStopAtLevel=4",)) as kafka:
        for i in range(20):
            kafka.create_topic(f"bench-topic-{i:02d}", partitions=PARTITIONS_A_GROUP)
        first = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes-the-topic"})
        commit(first, "bench-topic-00", 0)
        first.close()
        write(kafka.bootstrap, groups * PARTITIONS_A_GROUP, groups, None)
        kafka.restart()
        with Cluster(ClusterConf(kafka.bootstrap)) as cluster:
            cold = fetch_from_coordinators(cluster.lister)
            warm = [fetch_from_coordinators(cluster.lister) for _ in range(times)]
        process = in_a_process(kafka.bootstrap)
    best = min(warm, key=lambda answers: answers.seconds)
    median = statistics.median(answers.seconds for answers in warm)
    result = {
        "cold": report(cold),
        "warm": {**report(best), "median_seconds": round(median, 3)},
        "process": process,
    }
    click.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
