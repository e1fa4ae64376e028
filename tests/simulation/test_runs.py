"""Many seeded runs of the core against the model."""

import pytest

from tests.simulation.__main__ import describe
from tests.simulation.run import run
from tests.simulation.runs import repeat, run_seeds

RUNS, LONG_RUNS = 300, 3000
"""How many, and how many by `make test-long`."""
CHUNK = 50
"""The runs of one test: the workers of pytest-xdist share the tests."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "first",
    [
        *range(0, RUNS, CHUNK),
        *(pytest.param(first, marks=pytest.mark.long) for first in range(RUNS, LONG_RUNS, CHUNK)),
    ],
)
def test_the_core_keeps_the_contract_in_every_run(first):
    seeds = range(first, first + CHUNK)
    results = list(run_seeds(seeds, workers=1))
    broken = [result for result in results if result.broken]
    assert not broken, (
        f"{len(broken)} of {len(seeds)} runs; repeat one with: python -m tests.simulation SEED\n"
        + "\n".join(describe(result) for result in broken[:20])
        + f"\nthe end of the first:\n{repeat(broken[0].seed)}"
    )
    # A simulation that checks nothing breaks nothing.
    assert sum(result.served for result in results) > 100 * len(seeds)
    assert any(result.kinds for result in results)


def test_a_seed_gives_the_same_run_again():
    traces: tuple[list[str], list[str]] = ([], [])
    for trace in traces:
        run(5, log=trace.append)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100
