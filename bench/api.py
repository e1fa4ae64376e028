"""What requests to the API cost: milliseconds (the median), by rows. Prints JSON.

The views are those of bench.scrape. Each request finds a new view, of which nothing is computed yet.

    python -m bench.api [--rows 2000 --rows 200000] [--requests 10]
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from typing import Any

import click

from bench.scrape import Source, fill_tracker
from koff.serve.api.responder import ApiRequest, Responder

REQUESTS = {
    "clusters": "/api/v1/clusters",
    "groups by lag, 50": "/api/v1/clusters/bench/groups?limit=50",
    "groups by time lag, 50": "/api/v1/clusters/bench/groups?limit=50&sort=time_lag_s",
    "groups by status, 50": "/api/v1/clusters/bench/groups?limit=50&sort=status",
    "groups that match, 50": "/api/v1/clusters/bench/groups?limit=50&match=-00.*7$&min_lag=1",
    "one group": "/api/v1/clusters/bench/groups/bench-0000007",
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
            assert response.status == 200, response.body
            size = len(response.body)
        figures[name] = {
            "median_ms": round(statistics.median(seconds) * 1000, 1),
            "max_ms": round(max(seconds) * 1000, 1),
            "gzip_bytes": size,
        }
    return {"rows": rows, **figures}


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(2_000, 200_000))
@click.option("--requests", default=10)
def main(sizes: tuple[int, ...], requests: int) -> None:
    gc.freeze()  # as koff monitor does
    gc.set_threshold(200_000, 50, 100)
    print(json.dumps([measure(rows, requests) for rows in sizes], indent=2))


if __name__ == "__main__":
    main()
