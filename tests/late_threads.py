"""A plugin, `pytest -p tests.late_threads`: each thread begins late, as it may on a busy machine.

A test that needs a thread sooner fails.
"""

import threading
import time

LATE_S = 0.25
_start = threading.Thread.start


def _start_late(thread: threading.Thread) -> None:
    run = thread.run

    def run_late() -> None:
        time.sleep(LATE_S)
        run()

    thread.run = run_late  # type: ignore[method-assign]
    _start(thread)


threading.Thread.start = _start_late  # type: ignore[assignment,method-assign]
