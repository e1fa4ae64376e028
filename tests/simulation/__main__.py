"""`python -m tests.simulation SEED` repeats a run verbosely; `--runs 20000 --from 0` runs many.

All runs have the same hash seed (0), so that each seed gives the same run everywhere.
"""

import argparse
import os
import sys
import time

from tests.simulation.run import Result, run
from tests.simulation.runs import run_seeds

PROGRESS_S = 10.0
"""The pause between two lines of progress."""


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
    began_s = shown_s = time.monotonic()
    failed: list[Result] = []
    checks = served = 0
    cpu_s = 0.0
    for done, result in enumerate(run_seeds(seeds, workers), 1):
        checks, served, cpu_s = checks + result.checks, served + result.served, cpu_s + result.cpu_s
        if result.broken:
            failed.append(result)
            print(describe(result), flush=True)
        now_s = time.monotonic()
        if now_s - shown_s >= PROGRESS_S:
            shown_s = now_s
            print(describe_progress(done, len(seeds), len(failed), now_s - began_s), file=sys.stderr)
    took_s = time.monotonic() - began_s
    print(
        f"{len(seeds)} runs, {len(failed)} failed; {checks} views and {served} lags checked, {took_s:.0f} s, "
        f"{len(seeds) / took_s:.1f} runs a second, {cpu_s / max(len(seeds), 1):.3f} s of CPU a run"
    )
    if failed:
        print(f"failed seeds: {' '.join(str(result.seed) for result in failed)}")
    return 1 if failed else 0


def describe_progress(done: int, total: int, failed: int, took_s: float) -> str:
    """How far many runs are, after so many seconds."""
    per_s = done / took_s
    left_s = (total - done) / per_s
    return f"{done} of {total} runs, {failed} failed; {per_s:.1f} runs a second, about {left_s:.0f} s left"


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
