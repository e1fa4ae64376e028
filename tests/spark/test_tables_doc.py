"""docs/tables.md has every column of every table, and its queries run, in Spark SQL and in DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from koff.spark.tables.descriptions import TABLE_TEXTS, describe_column
from koff.spark.tables.layout import LAYOUTS

from koff.spark.job.table_checks import KEYS
from koff.spark.tables.schemas import TABLES, Tables
from tests.spark.test_table_checks import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
_NAME = re.compile(r"`?(\w+)`? (\w+(?:<.*>)?)$")


def split_columns(ddl: str) -> list[str]:
    """The columns of a DDL; commas inside <> do not divide."""
    parts, depth = [""], 0
    for character in ddl:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def render_tables() -> str:
    """The part of the page about tables and columns, from the texts that Delta has as comments."""
    parts = []
    for name, table in TABLES.items():
        parts.append(f"## {name}\n\n{TABLE_TEXTS[name]}\n\n| column | type | meaning |\n|---|---|---|\n")
        for column in split_columns(table.ddl):
            found = _NAME.match(column)
            assert found, column
            kind = found[2] + (" NOT NULL" if found[1] in LAYOUTS[name].required else "")
            parts.append(f"| `{found[1]}` | {kind} | {describe_column(name, found[1])} |\n")
        parts.append("\n")
    return "".join(parts)


def replace_tables(page: str) -> str:
    """The page with the part about tables as it should be."""
    first, end = page.index("## commits\n"), page.index("## Queries for Spark SQL\n")
    return page[:first] + render_tables() + page[end:]


def test_the_page_has_every_table_and_column_as_delta_has_them() -> None:
    page = (DOCS / "tables.md").read_text()
    assert page == replace_tables(page), "run: python -m tests.spark.test_tables_doc"


def test_the_keys_that_check_looks_at_are_those_of_the_documentation() -> None:
    text = (DOCS / "pipeline.md").read_text()
    for name, key in KEYS.items():
        row = re.search(rf"^\| `{name}` \|.*\| ([\w, ]+) \|$", text, re.MULTILINE)
        assert row, name
        assert tuple(row[1].split(", ")) == key


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables with rows that the queries find, and a row at least in every table."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("doc") / "t"))
    tables.create_tables()
    now = datetime.now(UTC).replace(microsecond=0)
    old = now - timedelta(days=40)
    slot = {"cluster": "c", "group": "payments", "topic": "t", "partition": 0}
    record = {"offsets_partition": 0, "timestamp": now, "day": now.date()}
    full_at = now - timedelta(seconds=2)
    sample = {**slot, "day": now.date(), "time_lag_s": 9.0, "full_at": full_at, "ended": False}
    append(
        tables,
        "lag",
        {**sample, "at": full_at, "lag": 50},
        {**sample, "at": full_at, "lag": -3, "partition": 1},
        {**sample, "at": full_at, "lag": 4, "partition": 2},
        {**sample, "at": now, "lag": 7},
        {**sample, "at": now, "lag": None, "partition": 2, "ended": True},
        {**sample, "at": now - timedelta(days=1), "full_at": now - timedelta(days=1), "partition": 3},
    )
    hour = {"cluster": "c", "group": "payments", "hour": now, "day": now.date(), "samples": 3}
    hour |= {"max_lag": 50, "avg_lag": 20.0, "known_samples": 2}
    append(tables, "lag_hourly", hour, {**hour, "topic": "t", "max_lag": 60})
    append(tables, "groups", *({**slot, **record, "log_offset": n, "epoch": n} for n in (4, 6)))
    commits = enumerate((5, 8, 2, 3))
    append(tables, "commits", *({**slot, **record, "log_offset": n, "committed": at} for n, at in commits))
    append(
        tables,
        "current",
        {**slot, "commit_timestamp": now, "deleted": False},
        {**slot, "group": "old", "commit_timestamp": old, "deleted": False},
        {**slot, "group": "deleted", "commit_timestamp": old, "deleted": True},
        {**slot, "group": "expired", "commit_timestamp": old, "deleted": False},
    )
    for name in TABLES.keys() - {"lag", "lag_hourly", "groups", "commits", "current"}:
        times = {"timestamp": now, "at": now, "day": now.date(), "full_at": now, "until": now}
        append(tables, name, *({**slot, **times, "group": group} for group in ("payments", "expired")))
    # Rows that are deleted or changed get a deletion vector: their file stays.
    tables.delta_table("current").delete("`group` = 'expired'")
    tables.delta_table("group_states").delete("`group` = 'expired'")
    assert list(Path(tables.path("current")).glob("deletion_vector_*.bin"))
    return tables


def read_queries(title: str) -> list[str]:
    """The queries of a section of the page."""
    section = (DOCS / "tables.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)


def open_duckdb(tables: Tables) -> Any:
    """The connection that the page's example opens."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "tables.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("{tables}", tables.root), names)
    assert set(names["TABLES"]) == TABLES.keys()
    return names["db"]


def check_answers(answers: Sequence[Sequence[tuple[Any, ...]]]) -> None:
    """Fails unless the six queries find what their texts say."""
    worst, hours, days, rebalances, rewinds, silent = answers
    assert worst == [("c", "payments", 7, 9.0)]
    assert [row[2] for row in hours] == [50]
    assert [(row[1], *row[3:]) for row in days] == [("payments", 50, 20.0, 3)]
    assert [(row[1], row[3]) for row in rebalances] == [("payments", 2)]
    assert [row[5:] for row in rewinds] == [(2, 8)]
    assert [row[1] for row in silent] == ["old"]


def test_each_query_for_spark_finds_what_its_text_says(spark: SparkSession, tables: Tables) -> None:
    queries = read_queries("Queries for Spark SQL")
    found = (spark.sql(query.replace("{tables}", tables.root)).collect() for query in queries)
    check_answers([[tuple(row) for row in rows] for rows in found])


def test_each_query_for_duckdb_finds_what_its_text_says(tables: Tables) -> None:
    db = open_duckdb(tables)
    check_answers([db.sql(query).fetchall() for query in read_queries("Queries for DuckDB")])


def test_duckdb_reads_every_table_as_spark_does(tables: Tables) -> None:
    db = open_duckdb(tables)
    for name in TABLES:
        frame = tables.frame(name)
        columns = [field.name for field in frame.schema if field.dataType.typeName() in ("string", "long")]
        rows = [tuple(row) for row in frame.select(*columns).collect()]
        names = ", ".join(f'"{column}"' for column in columns)
        found = db.sql(f"SELECT {names} FROM {name}").fetchall()
        assert rows, name
        assert sorted(map(str, found)) == sorted(map(str, rows)), name
        assert db.sql(f"DESCRIBE {name}").fetchall()[0][0] == "cluster"


if __name__ == "__main__":
    (DOCS / "tables.md").write_text(replace_tables((DOCS / "tables.md").read_text()))
