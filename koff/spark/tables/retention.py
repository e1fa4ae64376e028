"""For how many days each table keeps its rows: the option `--keep`, and which rows are too old."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from koff.errors import ConfigError
from koff.spark.tables.layout import LAYOUTS
from koff.spark.tables.schemas import TABLES, Tables, quote_sql

Retention = Mapping[str, int]
"""Days by table. A table that is not in it keeps all rows."""
_UNITS_DAYS = {"": 1, "d": 1, "w": 7, "y": 365}
_FOREVER = 1 << 30
_PART = re.compile(r"(?:(\w+)=)?(\d+)([dwy]?)")
_WITHOUT_TIME = {
    "current": "deleted",
    "group_states": "saved IS NULL",
}
"""By table without days that has rows to delete: the SQL condition of a deleted slot or group."""


def list_expiring() -> list[str]:
    """The tables whose rows can become too old."""
    return [name for name, table in TABLES.items() if table.time or name in _WITHOUT_TIME]


def parse_retention(text: str) -> dict[str, int]:
    """Days by table, from a text such as `90d` or `commits=30d,lag=90d,lag_hourly=2y`.

    A number without a table is for all tables that the text does not name; without a unit it is days. Samples
    stay as long as lag, which says nothing without them. Raises `ConfigError`.
    """
    expiring = list_expiring()
    days: dict[str, int] = {}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or not int(match[2]):
            raise ConfigError(
                f"--keep: {part.strip()!r} is no time: write for example 90d, or commits=30d,lag=2y"
            )
        table = match[1] or ""
        if table and table not in expiring:
            raise ConfigError(f"--keep: no rows of {table!r} can expire; tables: {', '.join(expiring)}")
        if table in days:
            raise ConfigError(f"--keep: {table or 'the time for all tables'} is given twice")
        days[table] = int(match[2]) * _UNITS_DAYS[match[3]]
    rest = days.pop("", None)
    named = "samples" in days
    if rest is not None:
        days = {**dict.fromkeys(expiring, rest), **days}
    if "samples" in days and not days["samples"] >= days.get("lag", _FOREVER):
        if named:
            raise ConfigError("--keep: samples have to stay as long as lag, which says nothing without them")
        days["samples"] = days["lag"]
    return days


def select_expired(tables: Tables, name: str, days: int, now: datetime, of_cluster: str = "") -> str:
    """The SQL condition of the rows that are older than `days`; "" if the table has none.

    `of_cluster` is the SQL condition of the clusters to look at. Rows without a day expire by cluster, all at
    once: when the newest of their files is that old. A deleted slot or group without a time expires at once.
    """
    oldest = now.astimezone(UTC) - timedelta(days=days)
    if deleted := _WITHOUT_TIME.get(name):
        return f"{deleted} AND (timestamp IS NULL OR timestamp < TIMESTAMP'{oldest:%Y-%m-%d %H:%M:%S}Z')"
    conditions = [f"day < DATE'{oldest:%Y-%m-%d}'"]
    if "day" not in LAYOUTS[name].required:
        clusters = _find_expired_undated(tables, name, oldest, of_cluster)
        conditions += [f"(day IS NULL AND cluster = {quote_sql(cluster)})" for cluster in clusters]
    return f"({' OR '.join(conditions)})"


def _find_expired_undated(tables: Tables, name: str, oldest: datetime, of_cluster: str) -> list[str]:
    """The clusters whose rows without a day are all in files that were written before `oldest`."""
    from pyspark.sql import functions as f

    rows = tables.frame(name).where("day IS NULL").where(of_cluster or "true")
    written = f.max("_metadata.file_modification_time").alias("written")
    newest = rows.groupBy("cluster").agg(written).where(f.col("written") < f.lit(oldest))
    return [row.cluster for row in newest.collect()]
