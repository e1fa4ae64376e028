"""Rows of tables for tests: some columns are given, and the others are null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from koff.spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from koff.spark.tables.delta_tables import Tables

Row = dict[str, Any]


def append(tables: Tables, name: str, *rows: Row) -> None:
    """Appends rows. The day follows from the time, and the cluster is `c`."""
    table = TABLES[name]
    schema = pa.schema([field.with_nullable(True) for field in table.schema])
    full = [
        {"cluster": "c", "number": 1, "day": row[table.time].date() if table.time else None} | row
        for row in rows
    ]
    arrow = pa.Table.from_pylist(full, schema=schema)
    frame = tables.spark.createDataFrame(arrow).select(*(column.name for column in table.columns))
    frame.write.format("delta").mode("append").save(tables.path(name))


def list_rows(tables: Tables, name: str, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    """The rows as tuples of these columns (all: those but binary ones), sorted."""
    names = columns or tuple(column.name for column in TABLES[name].columns if column.type != pa.binary())
    rows = tables.frame(name).where(where).select(*(f"`{each}`" for each in names)).collect()
    return sorted((tuple(row) for row in rows), key=repr)
