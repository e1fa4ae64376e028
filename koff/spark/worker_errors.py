"""What koff said on a worker, found again in the error that Spark makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from koff.errors import ConfigError, ConnectError, Denied, KoffError
from koff.spark.rows.decoding import DataLost

_FAMILIES: dict[str, type[KoffError]] = {
    each.__name__: each for each in (ConfigError, ConnectError, DataLost, Denied, KoffError)
}
_RAISED = re.compile(r"^koff\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)


def line(failure: BaseException) -> str:
    """What a foreign error says, in a line."""
    lines = [each.strip(": ") for each in str(failure).splitlines() if each.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # Java's own words
    return lines[0][:300] if lines else type(failure).__name__


def named(failure: BaseException) -> KoffError | None:
    """The `KoffError` that a Spark exception stems from, if it is one of koff's."""
    if isinstance(failure, KoffError):
        return failure
    found = _RAISED.findall(str(failure))
    if not found:
        return None
    family, text = found[-1]
    return _FAMILIES.get(family, KoffError)(text.strip())


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Raises a `KoffError` of one line for what Spark, or a worker of koff's, raises within."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as failure:
        raise named(failure) or KoffError(f"Spark failed: {line(failure)}") from failure
