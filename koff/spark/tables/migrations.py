"""How tables of older versions of the schema become those of the present one.

A migration that was interrupted runs again, so it must give the same result when it runs twice. New columns,
comments and properties need no function: `prepare_tables` brings these up to date in all older tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koff.spark.tables import schemas
from koff.spark.tables.conflicts import retry_conflicts
from koff.spark.tables.descriptions import TABLE_TEXTS, describe_column
from koff.spark.tables.leases import ALL, hold_leases
from koff.spark.tables.schemas import Tables, for_each_table, make_properties, parse_columns, quote_sql


def _migrate_lag_2(tables: Tables) -> None:
    """Version 2 of `lag` had the reasons as text with commas, and each of its samples was a full one.

    Those samples are noted in the table `samples`, so that all readers see them as they see new ones.
    """
    from pyspark.sql import functions as f

    lag = tables.frame("lag")
    if lag.schema["reasons"].dataType.typeName() == "array":
        return
    sample = ["cluster", "at", "day"]
    ends = tables.frame("end_offsets").groupBy(*sample).agg(f.count("*").cast("int").alias("partitions"))
    samples = lag.groupBy(*sample).agg(f.max("batch").alias("batch")).join(ends, sample, "left")
    samples = samples.withColumn("full_at", f.col("at")).fillna(0, ["partitions"])
    known = tables.frame("samples").select("cluster", "at")
    tables.append_rows("samples", samples.join(known, ["cluster", "at"], "left_anti"))

    # Last: from now on the migration has nothing to do.
    names = f.expr("filter(split(reasons, ','), name -> name <> '')")
    full = {"reasons": names, "full_at": f.col("at"), "ended": f.lit(False)}
    write = lag.withColumns(full).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    write.partitionBy("cluster", "day").save(tables.path("lag"))


MIGRATIONS: Mapping[tuple[str, int], Callable[[Tables], None]] = {("lag", 2): _migrate_lag_2}
"""By (table, version): the function that migrates the table from that version to the next one. All tables of
the present version exist by then."""


def prepare_tables(tables: Tables) -> None:
    """Creates the tables that are missing, and migrates those of older koffs while no other process writes.

    Each table's version is set when that table is done, so an interrupted migration can be resumed. Delta
    cannot make an existing column NOT NULL, so the columns of older tables stay nullable. Raises
    `UnsafeLogStore`, and `WrongTables`, before anything is written, if the root contains other files, or if
    one of the tables cannot be migrated. Raises `LeaseHeld` if another process writes older tables.
    """
    old = tables.list_older()
    for name, version in old.items():
        if not _find_migrations(name, version):
            _list_missing_columns(tables, name, version)
    tables.create_tables()
    if not old:
        return
    with hold_leases(tables, [ALL], "a migration"):
        old = tables.list_older()  # again: another process may just have migrated them
        # The table of leases last, and alone: meanwhile the lease is renewed in it.
        for_each_table(
            lambda name: _migrate_table(tables, name, old[name]), [n for n in old if n != "leases"]
        )
        if "leases" in old:
            retry_conflicts(lambda: _migrate_table(tables, "leases", old["leases"]))


def _find_migrations(name: str, version: int) -> list[Callable[[Tables], None]]:
    """The migrations of a table from that version to the current one, in order."""
    steps = range(version, schemas.VERSION)
    return [MIGRATIONS[name, step] for step in steps if (name, step) in MIGRATIONS]


def _migrate_table(tables: Tables, name: str, version: int) -> None:
    for migrate in _find_migrations(name, version):
        migrate(tables)
    alter = f"ALTER TABLE delta.`{tables.path(name)}`"
    if missing := _list_missing_columns(tables, name, version):
        tables.spark.sql(f"{alter} ADD COLUMNS ({', '.join(missing)})")
    comments = (
        f"`{column}` COMMENT {quote_sql(describe_column(name, column))}"
        for column in parse_columns(schemas.TABLES[name]).names
    )
    tables.spark.sql(f"{alter} ALTER COLUMN {', '.join(comments)}")
    text = quote_sql(TABLE_TEXTS.get(name, ""))
    tables.spark.sql(f"COMMENT ON TABLE delta.`{tables.path(name)}` IS {text}")
    properties = (f"'{key}' = '{value}'" for key, value in make_properties(name).items())
    tables.spark.sql(f"{alter} SET TBLPROPERTIES ({', '.join(properties)})")


def _list_missing_columns(tables: Tables, name: str, version: int) -> list[str]:
    """The columns that a table lacks, as DDL.

    Raises `WrongTables` if the table has a column that is not in `TABLES`, or has another type there.
    """
    columns = {field.name: field.dataType for field in parse_columns(schemas.TABLES[name])}
    present = {field.name: field.dataType for field in tables.frame(name).schema}
    if present != {column: columns.get(column) for column in present}:
        raise tables.make_version_error(name, version, "there is no migration; use the koff that wrote it")
    return [f"`{column}` {columns[column].simpleString()}" for column in columns if column not in present]
