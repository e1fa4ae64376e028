"""A week's tables and the report's numbers of them, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from koff.spark import report as reports
from koff.spark.report.history import History
from koff.spark.report.period import Period
from tests.spark.report import week

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE_MS, UNTIL_MS = (int(moment.timestamp() * 1000) for moment in (week.BEGIN, week.END))
PERIOD = Period(SINCE_MS, UNTIL_MS)


@pytest.fixture(scope="session")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The week's tables."""
    folder = tmp_path_factory.mktemp("tables")
    for name, (rows, partitions) in week.tables().items():
        week.write_table(rows, partitions, folder / name)
    return str(folder)


@pytest.fixture(scope="session")
def found(spark: SparkSession, folder: str) -> dict[str, Any]:
    """The numbers of the week's report; not to be changed."""
    history = History(spark, folder, PERIOD)
    return reports.compute_numbers(history, deployed_ms=SINCE_MS + 4 * 86_400_000)
