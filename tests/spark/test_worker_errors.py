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
    """As pyspark's: the stack trace of Java, and the cause."""

    def __init__(self, text: str, stack: str = "", cause: Exception | None = None) -> None:
        super().__init__(text)
        self._stackTrace, self._cause = stack, cause


def test_a_python_process_that_was_killed_is_named_with_the_cure() -> None:
    worker = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    source = "org.apache.spark.sql.execution.python.PythonStreamingSourceRunner.latestOffset(P.scala:135)"
    for error in (
        Exception(f"An error occurred while calling o1.save.\n: {FAILED}\n\tat a\nCaused by: {worker}"),
        CapturedException("null", "org.apache.spark.A", CapturedException("null", source)),
    ):
        found = find_koff_error(error)
        assert isinstance(found, WorkerLost)
        assert "the command continues when it is started again" in str(found)
    raised = f"Traceback (most recent call last):\nTypeError: none\n\tat {source}"
    for error in (CapturedException("null", "org.apache.spark.A"), CapturedException(raised, source)):
        assert find_koff_error(error) is None
