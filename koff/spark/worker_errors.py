"""Finds, in the text of an exception of Spark, the `KoffError` that a worker raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from koff.errors import ConfigError, ConnectError, Denied, KoffError
from koff.spark.rows.decoding import DataLost

_FAMILIES: dict[str, type[KoffError]] = {
    family.__name__: family for family in (ConfigError, ConnectError, DataLost, Denied, KoffError)
}
# The last line of a Python traceback. Spark passes a worker's exception to the driver only as text, so
# the message of a KoffError that a worker raises must be a single line.
_RAISED = re.compile(r"^koff\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)


def summarize_error(error: BaseException) -> str:
    """The first line of a foreign error's text that says something, at most 300 characters."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # py4j's first line names only the Java method that was called
    return lines[0][:300] if lines else type(error).__name__


def find_koff_error(error: BaseException) -> KoffError | None:
    """The `KoffError` that caused a Spark exception, or None if the cause is not an error of koff's.

    Its type is one of `ConfigError`, `ConnectError`, `DataLost`, `Denied`; otherwise `KoffError`.
    """
    if isinstance(error, KoffError):
        return error
    raised = _RAISED.findall(str(error))
    if not raised:
        return None
    # If an exception has causes, Python prints them first: the last one is the one that was raised.
    family, text = raised[-1]
    return _FAMILIES.get(family, KoffError)(text.strip())


@contextmanager
def map_errors() -> Iterator[None]:
    """Turns an exception of Spark, or of koff's code on a worker, into a `KoffError` of one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise find_koff_error(error) or KoffError(f"Spark failed: {summarize_error(error)}") from error
