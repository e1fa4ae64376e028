"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs koff[spark]")

from koff.spark import session
from tests.spark.settings import NO_CODEGEN, QUICK, QUICK_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs a session as Spark's and thorough, and keeps Spark's own warnings from failing it.

    `make test` has each command of the pipeline once (test_cli.py), and what needs no session.

    On a busy machine a job of Spark takes minutes: then these tests need more than the usual time.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.thorough)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores with Delta and the source `koff`. Paths and names are yours to keep apart."""
    spark = session("koff tests", master="local[2]", settings=QUICK | QUICK_FILES | NO_CODEGEN)
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()
