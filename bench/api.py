"""What requests to the API cost: milliseconds (the median), by rows. Prints JSON.

The views are those of bench.scrape. Each request finds a new view, of which nothing is computed yet.

    python -m bench.api [--rows 2000 --rows 200000] [--requests 10]
"""

import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from bench.scrape import PARTITIONS_A_GROUP, START_MS, Source, fill_tracker
from koff.monitor.lag_archive import GroupMinute, LagArchive
from koff.serve.api.responder import ApiRequest, Responder

REQUESTS = {
    "clusters": "/api/v1/clusters",
    "groups by lag, 50": "/api/v1/clusters/bench/groups?limit=50",
    "groups by time lag, 50": "/api/v1/clusters/bench/groups?limit=50&sort=time_lag_s",
    "groups by status, 50": "/api/v1/clusters/bench/groups?limit=50&sort=status",
    "groups that match, 50": "/api/v1/clusters/bench/groups?limit=50&match=-00.*7$&min_lag=1",
    "one group": "/api/v1/clusters/bench/groups/bench-0000007",
    "scale of one group": "/api/v1/scale?group=bench-0000007",
    "unused": "/api/v1/clusters/bench/unused?limit=50",
    "topics, 100": "/api/v1/clusters/bench/topics",
    "one topic": "/api/v1/clusters/bench/topics/bench-topic-00007",
    "burrow: one group": "/v3/kafka/bench/consumer/bench-0000007/lag",
    "burrow: all groups": "/v3/kafka/bench/consumer",
}


def measure(rows: int, requests: int) -> dict[str, Any]:
    source = Source(fill_tracker(rows))
    responder, figures = Responder(source), dict[str, Any]()
    for name, target in REQUESTS.items():
        path, _, query = target.partition("?")
        seconds, size = [], 0
        for _ in range(requests):
            source.advance()
            began = time.perf_counter()
            response = responder.respond(ApiRequest("GET", path.encode(), query.encode(), accepts_gzip=True))
            seconds.append(time.perf_counter() - began)
            assert response.status in (200, 503), response.body  # 503: how many members is not known
            size = len(response.body)
        figures[name] = {
            "median_ms": round(statistics.median(seconds) * 1000, 1),
            "max_ms": round(max(seconds) * 1000, 1),
            "gzip_bytes": size,
        }
    return {"rows": rows, **figures, "archive": measure_archive(rows // PARTITIONS_A_GROUP, requests)}


def measure_archive(groups: int, requests: int) -> dict[str, Any]:
    """How long the archive takes to keep a minute of all groups, and to find a day and the budget of one."""
    names = [f"bench-{number:07d}" for number in range(groups)]
    kept = {name: GroupMinute(number, 1000, is_late=False) for number, name in enumerate(names)}
    now_s = START_MS // 1000 // 3600 * 3600
    with tempfile.TemporaryDirectory() as folder:
        archive = LagArchive(Path(folder))
        add_s, find_s = [], []
        for minute in range(max(requests, 2)):
            began_s = time.perf_counter()
            archive.add(now_s + minute * 60, kept)
            add_s.append(time.perf_counter() - began_s)
        for name in names[:requests]:
            began_s = time.perf_counter()
            archive.find_earlier(name, (now_s + 86_400) * 1000, 86_400)
            archive.find_late(name, now_s * 1000)
            find_s.append(time.perf_counter() - began_s)
        archive.close()
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "add_ms": round(statistics.median(add_s) * 1000, 1),
        "find_ms": round(statistics.median(find_s) * 1000, 1),
        "bytes_a_minute": round(size / len(add_s) / groups, 1),
    }


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(2_000, 200_000))
@click.option("--requests", default=10)
def main(sizes: tuple[int, ...], requests: int) -> None:
    gc.freeze()  # as koff monitor does
    gc.set_threshold(200_000, 50, 100)
    print(json.dumps([measure(rows, requests) for rows in sizes], indent=2))


if __name__ == "__main__":
    main()
