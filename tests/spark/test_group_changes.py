"""Changes of groups as Spark derives them: nulls of Arrow reach the rules as None."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from koff.spark.rows.group_changes import CHANGE_DDL, derive_group_changes
from tests.unit.builders import ASSIGNED_T_0_1, classic_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD_DDL = (
    "offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP, `group` STRING, key BINARY, value BINARY"
)
STATE_DDL = "offsets_partition INT, log_offset BIGINT, `group` STRING, saved STRING"


def test_a_record_without_a_group_changes_none_and_a_deleted_group_may_come_back(spark: SparkSession) -> None:
    now = datetime.now(UTC)
    key, value = classic_group("back", {"app": ASSIGNED_T_0_1})
    records = [(0, 5, now, None, b"", None), (0, 6, now, "back", key, value)]
    states = [(0, 2, "back", None), (0, 3, "other", "{}")]
    changes = derive_group_changes(
        spark.createDataFrame(records, RECORD_DDL), spark.createDataFrame(states, STATE_DDL), {}
    )
    assert changes.schema.names == [part.split()[0].strip("`") for part in CHANGE_DDL.split(", ")]
    rows = changes.collect()
    assert {row.group for row in rows} == {"back"}
    assert [json.loads(row.body)["gone"] for row in rows if row.kind == "group"] == [False]
