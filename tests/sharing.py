"""How the workers of pytest-xdist share the tests."""

import pytest
from xdist.scheduler import LoadScopeScheduling

FOLDERS = ("spark", "containers", "integration", "client", "fuzz", "simulation", "unit")
"""The folders whose files take longest come first, so that no worker begins a long file at the end."""


MORE_SPARK = ("test_job.py", "test_lag_moment.py", "test_sequences.py", "report/test_numbers.py")
"""Files of thorough tests alone, which take half the time of all that need a Spark session."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Tests of a file share fixtures, so they go to one worker; so do all of spark/ and containers/.

    Those of spark/ would end last: so those of the pipeline's commands, which run in processes of their own,
    and `MORE_SPARK` go to other workers. The latter makes a second session, if thorough tests run.
    """

    def _split_scope(self, nodeid: str) -> str:
        """What goes to one worker as a whole. xdist's own schedulers override this method, too."""
        folder, _, rest = nodeid.removeprefix("tests/").partition("/")
        if folder == "spark" and rest.split("::")[0] in MORE_SPARK:
            return "more spark"
        if folder in ("spark", "containers") and not nodeid.startswith("tests/spark/test_cli.py"):
            return folder
        if nodeid.startswith("tests/simulation/test_runs.py"):
            return nodeid
        return nodeid.split("::", maxsplit=1)[0]


def folder_order(item: pytest.Item) -> int:
    """The place of the test's folder in `FOLDERS`."""
    folder = item.nodeid.split("/")[1]
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)
