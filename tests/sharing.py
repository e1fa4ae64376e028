"""How the workers of pytest-xdist share the tests."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

FOLDERS = ("spark", "integration", "client", "fuzz", "simulation", "unit")
"""The folders whose files take longest come first, so that no worker begins a long file at the end."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """The tests of a file go to one worker, because they share fixtures. So do all tests of Spark."""

    def _split_scope(self, nodeid: str) -> str:
        """What goes to one worker as a whole. xdist's own schedulers override this method, too."""
        if nodeid.startswith("tests/spark/"):
            return "tests/spark"
        if nodeid.startswith("tests/simulation/test_runs.py"):
            return nodeid
        return nodeid.split("::", maxsplit=1)[0]


def folder_order(item: pytest.Item) -> int:
    """The place of the test's folder in `FOLDERS`."""
    folder = item.nodeid.split("/")[1]
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)
