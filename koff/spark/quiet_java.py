"""Spark's Java as a part of a command: quiet, and not ended by a signal that is ours."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def held() -> Iterator[dict[str, Any]]:
    """How to begin Java (as Popen has it): what it prints inside is shown only if that fails, later at once.

    In a group of its own, since a shell's Ctrl-C and many a SIGTERM go to all of ours: the batch that runs
    could not end without it. It ends with its standard input, when we have.
    """
    reading, writing = os.pipe()
    kept: list[bytes] = []
    begun = threading.Event()

    def pump() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if begun.is_set():
                    os.write(2, line)
                else:
                    kept.append(line)

    pumping = threading.Thread(target=pump, name="koff-java", daemon=True)
    pumping.start()
    try:
        yield {"stderr": writing, "process_group": 0}
    except Exception:
        os.close(writing)
        pumping.join(1)
        os.write(2, b"".join(kept))
        raise
    os.close(writing)
    begun.set()


def hush(spark: SparkSession) -> None:
    """Has Spark and py4j print nothing: what matters is raised."""
    context: Any = spark.sparkContext
    context.setLogLevel("OFF")
    context._accumulatorServer.handle_error = lambda *_: None  # it would print that Java is gone
    logging.getLogger().addHandler(logging.NullHandler())  # py4j would have it print to standard error
