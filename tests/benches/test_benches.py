"""Each benchmark runs at its smallest size and prints its figures as JSON."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chromium import found

pytestmark = [pytest.mark.benches, pytest.mark.kafka, pytest.mark.timeout(900)]

SMALLEST = {
    "api": ["--rows", "2000", "--requests", "2"],
    "catchup": ["--records", "20000", "--groups", "20"],
    "churn": ["--minutes", "3", "--groups", "50"],
    "client": ["--messages", "3000", "--size", "100", "--batch", "1000", "--rounds", "1"],
    "coordinators": ["--groups", "50", "--times", "1"],
    "decode": ["--records", "2000"],
    "ends": ["--partitions", "2000", "--real", "500"],
    "first_minute": ["--starts", "2", "--look", "0"],
    "freshness": ["--groups", "5", "--commits", "3"],
    "lag": ["--rows", "1000", "--runs", "1"],
    "lag_rows": ["--rows", "22", "--samples", "1"],
    "page": ["--groups", "50"],
    "pipeline": ["--records", "20000", "--groups", "20", "--repeat", "1"],
    "scrape": ["--rows", "2000", "--renders", "2"],
    "steady": ["--groups", "20", "--rate", "50", "--seconds", "3"],
    "start": ["--quick", "--times", "1"],
    "tracker": ["--rows", "2000"],
    "verdicts": ["--days", "0.1", "--seeds", "1", "--kinds", "steady,crash_for_good"],
    "view": ["--rows", "2000", "--views", "2"],
}


def test_no_benchmark_is_missing():
    folder = Path(__file__).parents[2] / "bench"
    found = [*folder.glob("[a-z]*.py"), *(path.parent for path in folder.glob("*/__main__.py"))]
    assert {path.stem for path in found} == SMALLEST.keys()


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_prints_figures(name: str):
    if name == "page" and not found():
        pytest.skip("needs Chromium: apt-get install chromium")
    command = [sys.executable, "-m", f"bench.{name}", *SMALLEST[name]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)
