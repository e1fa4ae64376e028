"""`python -m tests.simulation SEED` repeats a run verbosely; `--runs 20000 --from 0` runs many.

All runs have the same hash seed (0), so that each seed gives the same run everywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.run import Result, run
from tests.simulation.runs import run_seeds


def main() -> int:
    """The exit code: 1 if a run broke the contract."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="the seed to repeat, verbosely")
    parser.add_argument("--runs", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--quiet", action="store_true", help="with a seed: only the result")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if arguments.seed is not None:
        result = run(arguments.seed, log=None if arguments.quiet else print)
        print(describe(result))
        return 1 if result.broken else 0
    return _run_many(range(arguments.first, arguments.first + arguments.runs), arguments.workers)


def _run_many(seeds: range, workers: int) -> int:
    began_s = time.monotonic()
    failed: list[Result] = []
    checks = served = 0
    cpu_s = 0.0
    for result in run_seeds(seeds, workers):
        checks, served, cpu_s = checks + result.checks, served + result.served, cpu_s + result.cpu_s
        if result.broken:
            failed.append(result)
            print(describe(result), flush=True)
    print(
        f"{len(seeds)} runs, {len(failed)} failed; {checks} views and {served} lags checked, "
        f"{time.monotonic() - began_s:.0f} s, {cpu_s / max(len(seeds), 1):.3f} s of CPU a run"
    )
    return 1 if failed else 0


def describe(result: Result) -> str:
    """A run in a few lines."""
    verdict = result.broken or "fine"
    faults = "; ".join(result.faults) or "none"
    return (
        f"seed {result.seed}: {verdict}\n"
        f"    at {result.at_s:.3f} s, {result.steps} steps, {result.checks} checks, {result.served} lags, "
        f"{result.starts} starts, {result.cpu_s:.2f} s of CPU\n"
        f"    faults: {faults}"
    )


if __name__ == "__main__":
    sys.exit(main())
