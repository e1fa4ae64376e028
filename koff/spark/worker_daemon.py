"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), with koff imported.

Before each task, Spark makes the worker invalidate the import caches. Python before 3.13 then reads the whole
directory of pyspark.zip again, once for each package in it: 0.1 s for each task. This daemon prevents that.
"""

from __future__ import annotations

import gc
import sys
import zipimport

from pyspark.daemon import manager

# Imported here so that each forked worker has them already.
import koff.spark.job.record_tasks
import koff.spark.source.kafka  # noqa: F401  # imported for the forked workers, as the one above


def _keep_cache(_importer: zipimport.zipimporter) -> None:
    """Does nothing: archives do not change while workers run."""


if __name__ == "__main__":
    if sys.version_info < (3, 13):
        zipimport.zipimporter.invalidate_caches = _keep_cache  # type: ignore[assignment,method-assign]  # replaced on purpose
    # Imported objects are never garbage: without this, the collection after each task would look at them all.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]  # pyspark's daemon has no annotations
