"""What a row costs: bytes, apply, lag, save and restore, for ten thousand rows to a million. Prints JSON.

python bench/tracker.py --rows 1000000
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import click
import numpy as np

from bench.catchup import key, main_partition, value
from koff.tracker import Tracker

PARTITIONS_A_GROUP = 10
ROUNDS = 3


def resident_mib() -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def measure(rows: int) -> dict[str, Any]:
    """In a process of its own: what was freed before would be counted in otherwise."""
    before = resident_mib()
    tracker, groups = Tracker(), rows // PARTITIONS_A_GROUP
    topics = max(20, groups // 100)
    applied, spent = 0, 0.0
    for round_ in range(ROUNDS):
        for start in range(0, groups, 200):
            shards: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
            for number in range(start, min(start + 200, groups)):
                group = f"bench-{number:07d}"
                keys, values = shards.setdefault(main_partition(group), ([], []))
                topic = f"bench-topic-{number % topics:05d}"
                keys += [key(group, topic, p) for p in range(PARTITIONS_A_GROUP)]
                values += [value(1000 + round_, b"\1" * 16)] * PARTITIONS_A_GROUP
            at = time.perf_counter()
            for shard, (keys, values) in shards.items():
                tracker.apply(shard, keys, values)
            spent += time.perf_counter() - at
            applied += sum(len(keys) for keys, _ in shards.values())
    tracker.add_samples(ends=dict.fromkeys(tracker.watched_partitions(), 2000))
    after = resident_mib()
    at = time.perf_counter()
    snapshot = tracker.take_snapshot()
    taken = time.perf_counter() - at
    at = time.perf_counter()
    total = sum(int(snapshot.lags(shard).published.sum()) for shard in snapshot.shards.values())
    lag_s = time.perf_counter() - at
    assert total == rows * (2000 - 1000 - ROUNDS + 1), total
    return {
        "rows": rows,
        "process_mib": round(after, 1),
        "bytes_a_row": round((after - before) * 2**20 / rows),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "apply_records_per_s_small_batches": round(applied / spent),
        "snapshot_ms": round(taken * 1000, 1),
        "lag_ms": round(lag_s * 1000, 1),
        **save_and_restore(tracker),
    }


def save_and_restore(tracker: Tracker) -> dict[str, Any]:
    """Every partition into a file and out of it. The tracker is busy for one partition at a time."""
    from koff.monitor.clock import read_moment  # these imports: not before the memory was measured
    from koff.monitor.saved import Origin, Saved
    from koff.monitor.state import StateDir

    partitions = list(tracker.take_snapshot().shards)
    origin, copied = Origin("bench", "__consumer_offsets", "", max(partitions) + 1), []
    with tempfile.TemporaryDirectory() as path, StateDir(path).lock() as folder:
        size, at = 0, time.perf_counter()
        for partition in partitions:
            began = time.perf_counter()
            state = tracker.save_partition(partition)
            copied.append(time.perf_counter() - began)
            assert state is not None
            size += folder.save(origin, Saved(partition, 1, -1, read_moment(), state))
        saved_s = time.perf_counter() - at
        restored, at = Tracker(), time.perf_counter()
        for partition, found in folder.load(origin):
            if isinstance(found, Saved):
                restored.restore_partition(partition, found.state)
        restored_s = time.perf_counter() - at
    assert len(restored.partitions.numbers) == len(tracker.partitions.numbers)
    return {
        "save_s": round(saved_s, 3),
        "longest_copy_ms": round(max(copied) * 1000, 1),
        "saved_bytes": size,
        "restore_s": round(restored_s, 3),
    }


@click.command()
@click.option(
    "--rows", type=int, multiple=True, default=[10_000, 100_000, 200_000, 1_000_000], show_default=True
)
@click.option("--here", is_flag=True, hidden=True)
def main(rows: tuple[int, ...], here: bool) -> None:
    """A row's cost, at several sizes."""
    if here:
        click.echo(json.dumps(measure(rows[0])))
        return
    results = []
    for size in rows:
        command = [sys.executable, "-m", "bench.tracker", "--here", "--rows", str(size)]
        results.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    click.echo(json.dumps({"numpy": np.__version__, "sizes": results}, indent=2))


if __name__ == "__main__":
    main()
