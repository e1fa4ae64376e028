"""Runs Spark's Java process quietly, and keeps signals that are meant for koff away from it."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from koff.spark.requirements import find_unresolved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def buffer_java_output() -> Iterator[dict[str, Any]]:
    """Yields the arguments of `subprocess.Popen` for starting Java, and buffers what Java prints to
    standard error. What it prints to standard output is dropped.

    If the body raises, the buffered output goes to standard error; but if it says that a Java package could
    not be downloaded, `MissingJars` is raised instead. After the body, Java's output goes to standard error
    at once.

    Java gets a process group of its own. Ctrl-C in a shell, and often SIGTERM, goes to the whole group of
    koff; it must not end Java, because the running batch needs Java to finish. Java ends when its standard
    input is closed, that is when koff has ended.
    """
    read_fd, write_fd = os.pipe()
    buffered: list[bytes] = []
    started = threading.Event()

    def forward_lines() -> None:
        with os.fdopen(read_fd, "rb") as lines:
            for line in lines:
                if started.is_set():
                    os.write(2, line)
                else:
                    buffered.append(line)

    forwarder = threading.Thread(target=forward_lines, name="koff-java", daemon=True)
    forwarder.start()
    try:
        # Standard output belongs to koff's results: Delta would print a line there for each VACUUM.
        yield {"stdout": subprocess.DEVNULL, "stderr": write_fd, "process_group": 0}
    except Exception as error:
        # If Java still runs, it has the pipe open, and the thread does not end: do not wait for long.
        os.close(write_fd)
        forwarder.join(1)
        output = b"".join(buffered)
        if unresolved := find_unresolved(output):
            raise unresolved from error
        os.write(2, output)
        raise
    os.close(write_fd)
    started.set()


def silence_spark(spark: SparkSession) -> None:
    """Stops Spark and py4j from printing. Errors that matter are raised as exceptions."""
    context: Any = spark.sparkContext
    context.setLogLevel("OFF")
    context._accumulatorServer.handle_error = lambda *_: None  # it would print a traceback when Java ends
    # Without a handler on the root logger, Python prints py4j's warnings to standard error.
    logging.getLogger().addHandler(logging.NullHandler())
