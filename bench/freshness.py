"""How soon a commit is in /metrics: from its acknowledgement until a scrape shows it.

Prints JSON: milliseconds, the median and the 95th of a hundred commits, scraping as fast as koff answers;
beside it the bare time of one scrape in the same run, which is a part of each.

    python -m bench.freshness [--groups 100]
"""

import http.client
import json
import statistics
import time
from typing import Any

import click
from confluent_kafka import Consumer

from bench.catchup import PARTITIONS_A_GROUP, commit, write
from bench.start import Started
from koff.kafkatest import LocalKafka

GROUP, TOPIC = "fresh", "fresh-topic"
LONGEST_S = 60


class Scraper:
    """One connection that stays open, as Prometheus keeps it."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)

    def scrape(self) -> bytes:
        self._connection.request("GET", "/metrics")
        return self._connection.getresponse().read()

    def sees(self, offset: int) -> bool:
        text = f'group="{GROUP}",topic="{TOPIC}",partition="0"}} {offset}\n'
        return text.encode() in self.scrape()


def freshness(scraper: Scraper, consumer: Consumer, commits: int) -> list[float]:
    """Milliseconds of each commit."""
    found = []
    for offset in range(1, commits + 1):
        commit(consumer, TOPIC, offset)
        acknowledged = time.monotonic()
        while not scraper.sees(offset):
            if time.monotonic() > acknowledged + LONGEST_S:
                raise TimeoutError(f"/metrics has not shown offset {offset} within {LONGEST_S} s")
        found.append((time.monotonic() - acknowledged) * 1000)
    return found


def bare(scraper: Scraper, times: int) -> list[float]:
    """Milliseconds of each scrape."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        scraper.scrape()
        found.append((time.monotonic() - began) * 1000)
    return found


def said(milliseconds: list[float]) -> dict[str, float]:
    return {
        "median_ms": round(statistics.median(milliseconds), 1),
        "p95_ms": round(statistics.quantiles(milliseconds, n=20)[-1], 1),
        "longest_ms": round(max(milliseconds), 1),
    }


@click.command()
@click.option(
    "--groups", default=100, show_default=True, help="Groups beside the one, each with ten offsets."
)
@click.option("--commits", default=100, show_default=True, help="Commits, one after the other.")
def main(groups: int, commits: int) -> None:
    """Milliseconds from the acknowledgement of a commit until /metrics has it."""
    with LocalKafka(jvm_options=("-XX:TieredStopAtLevel=4",)) as kafka:
        for i in range(20):
            kafka.create_topic(f"bench-topic-{i:02d}", partitions=PARTITIONS_A_GROUP)
        kafka.create_topic(TOPIC)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": GROUP, "log_level": 0})
        commit(consumer, TOPIC, 0)
        write(kafka.bootstrap, groups * PARTITIONS_A_GROUP, groups, None)
        kafka.restart()
        families = ("--families", "default,koff_group_committed_offset")
        koff = Started(kafka.bootstrap, "--start", "snapshot", *families)
        try:
            koff.wait_for("backfilled")
            scraper = Scraper(koff.url)
            freshness(scraper, consumer, 10)  # warms up
            result: dict[str, Any] = {
                "series": koff.rows,
                "commits": commits,
                "commit_to_metrics": said(freshness(scraper, consumer, commits)),
                "bare_scrape": said(bare(scraper, commits)),
            }
        finally:
            koff.stop()
            consumer.close()
    click.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
