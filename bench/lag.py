"""How long the rules of lag take, by the number of rows (group, topic, partition). Needs nothing but koff.

Prints JSON: milliseconds, the median of some runs. Windows hold ten commits; partitions of topics are a tenth
of the rows, and their ends grow all the time, the costliest case for their history. Compared with a copy of
one int64 column of as many rows (`copy_ms`): what touching memory costs here.

    python bench/lag.py --rows 10000 --rows 1000000
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from koff.lag import (
    ENDS_SPAN_MS,
    EndHistory,
    consume_rates,
    group_status,
    lags,
    lost,
    produce_rates,
    readable,
    reasons,
    seconds_until_caught_up,
    status,
    time_lag_s,
    window_features,
)

INTERVAL_MS = 10_000
T0 = 1_700_000_000_000


def median_ms(action: Callable[[], Any], runs: int) -> float:
    """What one call takes."""
    took = []
    for _ in range(runs):
        begun = time.perf_counter()
        action()
        took.append(time.perf_counter() - begun)
    return round(statistics.median(took) * 1000, 3)


def grown_history(
    partitions: int, rounds: int, rng: np.random.Generator
) -> tuple[EndHistory, dict[str, float]]:
    """A history full of points, and what a round took (some rounds thin)."""
    history, ends, took = EndHistory(partitions), np.zeros(partitions, np.int64), []
    rows = np.arange(partitions)
    for i in range(rounds):
        ends += rng.integers(1, 100, partitions)
        begun = time.perf_counter()
        history.add_samples(rows, ends, T0 + i * INTERVAL_MS)
        took.append((time.perf_counter() - begun) * 1000)
    late = took[-40:]
    return history, {
        "partitions": partitions,
        "add_round_ms": round(statistics.median(late), 2),
        "add_round_mean_ms": round(statistics.mean(late), 2),
        "add_round_max_ms": round(max(late), 2),
    }


def figures(rows: int, runs: int) -> dict[str, Any]:
    """Each rule over so many rows."""
    rng = np.random.default_rng(rows)
    history, history_figures = grown_history(max(rows // 10, 1), 100, rng)
    now_ms = T0 + 100 * INTERVAL_MS
    partition = rng.integers(0, len(history), rows)
    end, start = history.newest_ends(partition), np.zeros(rows, np.int64)
    behind = np.where(rng.random(rows) < 0.1, rng.integers(1, 4000, rows), 0)
    committed = np.maximum(end - behind, 0)
    far_behind = np.maximum(end - rng.integers(1, 4000, rows), 0)
    offsets = committed[:, None] - np.arange(9, -1, -1) * rng.integers(0, 50, (rows, 1))
    times = now_ms - np.cumsum(rng.integers(1, 10_000, (rows, 10)), axis=1)[:, ::-1]
    window_lags = rng.integers(-1, 100, (rows, 10))
    count = rng.integers(1, 11, rows).astype(np.uint8)
    groups = rng.integers(0, max(rows // 50, 1), rows)
    features = window_features(offsets, times, window_lags, count)
    lag = lags(end=end, committed=committed)
    oldest_end = history.ends_at(np.arange(len(history)), now_ms - ENDS_SPAN_MS)[partition]
    verdicts = _status(features, lag, committed, oldest_end, now_ms)
    consume, produce = consume_rates(features, now_ms), produce_rates(history, partition)
    actions: dict[str, Callable[[], Any]] = {
        "copy_ms": end.copy,
        "lags_ms": lambda: lags(end=end, committed=committed).published,
        "readable_and_lost_ms": lambda: (
            readable(end=end, committed=committed, start=start),
            lost(start=start, committed=committed),
        ),
        "reasons_ms": lambda: reasons(
            end=end,
            committed=committed,
            start=start,
            end_sampled_at_ms=now_ms,
            commit_seen_at_ms=times[:, -1],
        ),
        "window_features_ms": lambda: window_features(offsets, times, window_lags, count),
        "status_ms": lambda: _status(features, lag, committed, oldest_end, now_ms),
        "group_status_ms": lambda: group_status(verdicts, groups, max(rows // 50, 1)),
        "time_lag_tenth_behind_ms": lambda: time_lag_s(history, partition, committed, now_ms),
        "time_lag_all_behind_ms": lambda: time_lag_s(history, partition, far_behind, now_ms),
        "ends_at_ms": lambda: history.ends_at(np.arange(len(history)), now_ms - ENDS_SPAN_MS),
        "produce_rates_ms": lambda: produce_rates(history, np.arange(len(history))),
        "consume_rates_ms": lambda: consume_rates(features, now_ms),
        "catch_up_ms": lambda: seconds_until_caught_up(
            lag.signed, lag.known, consume=consume, produce=produce
        ),
    }
    found = {name: median_ms(action, runs) for name, action in actions.items()}
    return {"rows": rows} | found | {"history": history_figures}


def _status(features: Any, lag: Any, committed: Any, oldest_end: Any, now_ms: int) -> Any:
    return status(
        features,
        current_lag=lag.signed,
        current_lag_known=lag.known,
        committed=committed,
        oldest_end=oldest_end,
        now_ms=now_ms,
    )


@click.command(help=__doc__)
@click.option("--rows", multiple=True, default=(10_000, 100_000, 1_000_000), show_default=True)
@click.option("--runs", default=5, show_default=True)
def main(rows: tuple[int, ...], runs: int) -> None:
    print(json.dumps([figures(size, runs) for size in rows], indent=2))


if __name__ == "__main__":
    main()
