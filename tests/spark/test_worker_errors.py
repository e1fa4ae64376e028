"""An error of Spark is one line that says what to look at."""

from __future__ import annotations

import pytest

from koff.spark.worker_errors import WorkerLost, find_koff_error, summarize_error

FAILED = "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t/lag."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Exception"),
        (f"An error occurred while calling o1.save.\n: {FAILED}\n\tat org.apache.spark.A", FAILED),
        (
            f"An error occurred while calling o1.save.\n: {FAILED}\n\tat org.apache.spark.A\n"
            "Caused by: java.io.IOException: No space left on device\n\tat java.base",
            f"No space left on device: {FAILED}",
        ),
        ("cannot open /t: Permission denied\n\tat java.base", "cannot open /t: Permission denied"),
    ],
)
def test_the_line_says_what_failed_and_why_the_store_refused(text: str, told: str) -> None:
    assert summarize_error(Exception(text)) == told


class CapturedException(Exception):
    """As pyspark's, with its cause."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._cause = cause


def test_a_python_process_that_was_killed_is_named_with_the_cure() -> None:
    worker = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    for error in (
        Exception(f"An error occurred while calling o1.save.\n: {FAILED}\n\tat a\nCaused by: {worker}"),
        CapturedException("null", CapturedException(worker)),
    ):
        found = find_koff_error(error)
        assert isinstance(found, WorkerLost)
        assert "the command continues when it is started again" in str(found)
    assert find_koff_error(CapturedException("null")) is None
