"""Many runs in a pool of processes, all with the same hash seed."""

import gc
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import structlog

from tests.simulation.run import Result, run


def run_seeds(seeds: Iterable[int], workers: int) -> Iterator[Result]:
    """The result of each seed, in the order of the seeds."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        # A forked process would have the hash seed of this one.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_process) as pool:
            yield from pool.map(run, seeds, chunksize=10)
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def repeat(seed: int, lines: int = 40) -> str:
    """The last inputs, requests, events and faults of that run, and how it went."""
    command = [sys.executable, "-m", "tests.simulation", str(seed)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return "\n".join((shown.stdout + shown.stderr).splitlines()[-lines:])


def _prepare_process() -> None:
    """Silences koff's log: damaged files are the daily bread of a run. Seldom looks for garbage."""
    gc.freeze()  # modules stay
    gc.set_threshold(50_000, 20, 20)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
