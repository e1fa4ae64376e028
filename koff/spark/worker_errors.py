"""Finds, in the text of an exception of Spark, the `KoffError` that a worker raised."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from koff.errors import ConfigError, ConnectError, Denied, KoffError
from koff.spark.rows.decoding import DataLost

_FAMILIES: dict[str, type[KoffError]] = {
    family.__name__: family for family in (ConfigError, ConnectError, DataLost, Denied, KoffError)
}
# The last line of a Python traceback. Spark passes a worker's exception to the driver only as text, so
# the message of a KoffError that a worker raises must be a single line.
_RAISED = re.compile(r"^koff\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_LOST_WORKER = "Python worker exited unexpectedly"
_REFUSED = re.compile("No space left on device|Disk quota exceeded|Read-only file system|Permission denied")


class WorkerLost(KoffError):
    """A Python process of Spark has ended. Spark can start another."""


def summarize_error(error: BaseException) -> str:
    """The first line of a foreign error's text that says something, at most 300 characters.

    If the store refused to write, that comes first: Spark has it only in the last of its causes.
    """
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # py4j's first line names only the Java method that was called
    first = lines[0] if lines else type(error).__name__
    cause = _REFUSED.search(str(error))
    return (f"{cause[0]}: {first}" if cause and cause[0] not in first else first)[:300]


def find_koff_error(error: BaseException) -> KoffError | None:
    """The `KoffError` that caused a Spark exception, or None if the cause is none that koff knows.

    Its type is one of `ConfigError`, `ConnectError`, `DataLost`, `Denied`, `WorkerLost`; otherwise
    `KoffError`.
    """
    if isinstance(error, KoffError):
        return error
    raised = _RAISED.findall(str(error))
    if not raised:
        return _find_lost_worker(error)
    # If an exception has causes, Python prints them first: the last one is the one that was raised.
    family, text = raised[-1]
    return _FAMILIES.get(family, KoffError)(text.strip())


def _find_lost_worker(error: BaseException) -> WorkerLost | None:
    """The error for a Python process of Spark that has ended, if it caused this exception."""
    cause: Any = error
    while cause is not None:
        if _LOST_WORKER in str(cause):
            return WorkerLost(
                "a Python process of Spark has ended (it was killed, or there was too little memory): the "
                "command continues when it is started again; with fewer tasks at once it needs less memory: "
                "--master 'local[1]'"
            )
        cause = getattr(cause, "_cause", None)
    return None


def is_java_gone(error: BaseException | None) -> bool:
    """Whether the error, or one of its causes, says that Spark's Java process no longer responds."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # py4j has no types

    # The cause of an error of koff's is another connection: that to a broker.
    while error is not None and not isinstance(error, KoffError):
        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
            return True
        error = error.__cause__ or error.__context__
    return False


def make_java_error() -> KoffError:
    """The error for a Java process that has ended."""
    return KoffError(
        "Spark's Java process has ended (it was killed, or had too little memory): start the command again; "
        "for more memory: --spark-conf spark.driver.memory=4g"
    )


@contextmanager
def map_errors() -> Iterator[None]:
    """Turns an exception of Spark, or of koff's code on a worker, into a `KoffError` of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, ConnectionError, EOFError) as error:
        if is_java_gone(error):
            raise make_java_error() from error
        raise find_koff_error(error) or KoffError(f"Spark failed: {summarize_error(error)}") from error
