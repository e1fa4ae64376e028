"""What one sample of end offsets costs: over koff's own connections, and by librdkafka's admin API.

Prints JSON: seconds, and microseconds of koff's CPU for each partition. The first sample also fetches the
leaders. The brokers are stubs in a process of their own, which answer at once: koff can be measured up
to any size; and a real Kafka, where librdkafka's way is measured beside it.

    python -m bench.ends [--partitions 2000 --partitions 100000] [--real 8000]
"""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.offsets.lister import CHUNK, OffsetLister
from koff.kafkatest import LocalKafka, wait_until
from tests.fake_brokers import FakeBrokers

PARTITIONS_A_TOPIC = 10
BROKERS = 3
SAMPLES = 5
ListOffsets = Callable[[list[TopicPartition]], Any]


def name_partitions(count: int, per_topic: int) -> list[TopicPartition]:
    return [TopicPartition(f"bench-ends-{n // per_topic:06d}", n % per_topic) for n in range(count)]


def serve_stub(topics: int, pipe: Any) -> None:
    """Runs the stubs until the other end closes."""
    with FakeBrokers(BROKERS) as brokers:
        brokers.caches = True
        for number in range(topics):
            leaders = [(number + p) % BROKERS + 1 for p in range(PARTITIONS_A_TOPIC)]
            brokers.add_topic(f"bench-ends-{number:06d}", leaders)
        pipe.send(brokers.conf.brokers)
        pipe.poll(None)


@contextmanager
def stub(partitions: int) -> Iterator[ClusterConf]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve_stub, args=(partitions // PARTITIONS_A_TOPIC, theirs))
    process.start()
    try:
        yield ClusterConf(ours.recv(), request_timeout_s=120)
    finally:
        ours.send(None)
        process.join()


def refuse(*args: Any, **options: Any) -> Any:
    raise AssertionError("the fallback is not needed")


def in_chunks(list_offsets: Callable[..., Any], partitions: list[TopicPartition]) -> None:
    """As the monitor asks: so many partitions in a call."""
    for first in range(0, len(partitions), CHUNK):
        chunk = partitions[first : first + CHUNK]
        listed = list_offsets(chunk)
        assert len(listed) == len(chunk)
        errors = [found for found in listed.values() if isinstance(found, str)]
        assert not errors, errors[0]


def measure(sample: Callable[[], None], partitions: int) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    sample()
    cpu_s = time.process_time() - cpu
    return {
        "seconds": round(time.perf_counter() - began, 3),
        "cpu_seconds": round(cpu_s, 3),
        "cpu_us_a_partition": round(cpu_s / partitions * 1e6, 2),
    }


def median_of(samples: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in samples) for name in samples[0]}


def on_stub(partitions: int) -> dict[str, Any]:
    wanted = name_partitions(partitions, PARTITIONS_A_TOPIC)
    with stub(partitions) as conf, OffsetLister(conf) as lister:
        first = measure(lambda: in_chunks(lister.list_offsets, wanted), partitions)
        later = [measure(lambda: in_chunks(lister.list_offsets, wanted), partitions) for _ in range(SAMPLES)]
        refresh = [measure(lambda: lister.refresh_leaders(timeout_s=120), partitions) for _ in range(3)]
    return {
        "partitions": partitions,
        "first_sample": first,
        "sample": median_of(later),
        "refresh_leaders": median_of(refresh),
    }


def on_kafka(partitions: int) -> dict[str, Any]:
    per_topic = 500
    wanted = name_partitions(partitions, per_topic)
    with LocalKafka() as kafka:
        for topic in dict.fromkeys(each.topic for each in wanted):
            kafka.create_topic(topic, partitions=per_topic)
        conf = ClusterConf(kafka.bootstrap, request_timeout_s=60)
        with Cluster(conf) as cluster, OffsetLister(conf) as lister:
            # A broker that has just become the leader of a partition may not know it yet.
            wait_until(
                lambda: not any(isinstance(each, str) for each in lister.list_offsets(wanted).values())
            )
            found: dict[str, list[dict[str, float]]] = {"own_connections": [], "librdkafka": []}
            for _ in range(SAMPLES + 1):  # the first sample of each warms up
                for name, each in (("own_connections", lister), ("librdkafka", cluster)):
                    sample = measure(lambda each=each: in_chunks(each.list_offsets, wanted), partitions)  # type: ignore[misc]  # mypy: lambda with a default
                    found[name].append(sample)
    return {"partitions": partitions, **{name: median_of(samples[1:]) for name, samples in found.items()}}


@click.command()
@click.option("--partitions", multiple=True, default=(2_000, 8_000, 30_000, 100_000), show_default=True)
@click.option("--real", default=8_000, show_default=True, help="Partitions on a real Kafka; 0: none.")
def main(partitions: tuple[int, ...], real: int) -> None:
    """Prints what a sample of end offsets costs."""
    result: dict[str, Any] = {"stub": [on_stub(each) for each in partitions]}
    if real:
        result["kafka"] = on_kafka(real)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
