"""What Spark forks its Python workers from (`spark.python.daemon.module`): koff is imported already.

Spark has a worker look for changed modules before every task, and Python before 3.13 then reads the whole
directory of pyspark.zip again, once for each of its packages: 0.1 s of every task.
"""

from __future__ import annotations

import gc
import sys
import zipimport

from pyspark.daemon import manager

import koff.spark.job.lag_rows
import koff.spark.rows.group_changes
import koff.spark.source.kafka  # noqa: F401 - forked with all of them


def _unchanged(_importer: zipimport.zipimporter) -> None:
    """Archives stay what they are while workers run."""


if __name__ == "__main__":
    if sys.version_info < (3, 13):
        zipimport.zipimporter.invalidate_caches = _unchanged  # type: ignore[assignment,method-assign]
    gc.freeze()  # what is imported is no garbage: it need not be looked through after every task
    manager()  # type: ignore[no-untyped-call]
