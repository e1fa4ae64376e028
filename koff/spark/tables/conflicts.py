"""Repeats a change of a table that lost against a change at the same time."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

log = structlog.get_logger(component="spark.tables.conflicts")
Result = TypeVar("Result")
ATTEMPTS = 6
FIRST_PAUSE_S = 0.2


def is_conflict(error: Exception) -> bool:
    """Whether Delta refused a change because of another change at the same time."""
    from delta import exceptions

    # In Python, Delta's exceptions have no common base class; and they are Py4JJavaErrors with the Java name
    # in their text, unless `delta.exceptions.captured` was imported before.
    kinds = tuple(getattr(exceptions, name) for name in exceptions.__all__)
    return isinstance(error, kinds) or _JAVA_NAME in str(error)


_JAVA_NAME = "io.delta.exceptions."


def retry_conflicts(change: Callable[[], Result]) -> Result:
    """The result of `change`, which is called again after a conflict: Delta then has written nothing.

    The pauses double, and are random, so that two writers do not meet again. Raises Delta's exception after
    `ATTEMPTS` conflicts.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return change()
        except Exception as error:
            if not is_conflict(error):
                raise
            log.debug("a conflict in a table: trying again", why=str(error).partition("\n")[0][:300])
            time.sleep(FIRST_PAUSE_S * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
    return change()
