"""docs/tables.md has every column, view and query; and all of them run in Spark SQL, DuckDB and pandas."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import from_arrow_type

from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.schemas import TABLES
from koff.spark.tables.views import FIRST_QUERIES, QUESTIONS, VIEWS, Question, register_views, render_query
from tests.spark.table_rows import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def render_tables() -> str:
    """The part of the page about tables, views and queries, from what Delta has as comments."""
    parts = []
    for name, table in TABLES.items():
        key = ", ".join(f"`{column}`" for column in table.key)
        parts.append(
            f"## {name}\n\n{table.text} Unique by {key}.\n\n| column | type | meaning |\n|---|---|---|\n"
        )
        for column in table.columns:
            kind = from_arrow_type(column.type).simpleString() + (" not null" if column.required else "")
            parts.append(f"| `{column.name}` | {kind} | {column.text} |\n")
        parts.append("\n")
    parts.append("## Views\n\n")
    for name, (text, query) in VIEWS.items():
        parts.append(f"`{name}`: {text}\n\n```sql\n{render_query(query, '`')}\n```\n\n")
    parts.append('## Queries\n\nFor DuckDB, write `"` for each backtick.\n\n')
    for question in QUESTIONS.values():
        parts.append(f"{question.title}:\n\n```sql\n{question.render()}\n```\n\n")
    return "".join(parts)


def replace_tables(page: str) -> str:
    """The page with the part about tables as it should be."""
    first, end = page.index("## records\n"), page.index("## DuckDB, pandas, polars\n")
    return page[:first] + render_tables() + page[end:]


def test_the_page_has_every_table_and_column_as_delta_has_them() -> None:
    page = PAGE.read_text()
    assert page == replace_tables(page), "run: python -m tests.spark.test_tables_doc"


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables with rows that the queries find, and a row at least in every table."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("doc") / "t"))
    tables.create_tables()
    now = datetime.now(UTC).replace(microsecond=0)
    yesterday = datetime.combine(now.date() - timedelta(days=1), datetime.min.time(), UTC)
    slot = {"group": "payments", "topic": "t", "partition": 0, "members": 2, "lag": 5, "lost": 0}
    slot |= {"group_verdict": "OK", "produce_per_s": 1.0, "committed_at": now, "time_lag_s": 1.0}
    late = slot | {"group_verdict": "ERR", "group_cause": "no_members", "lag": 50, "time_lag_s": 400.0}
    gone = slot | {"group": "old", "members": 0, "committed_at": now - timedelta(days=40)}
    samples = [(1, 3, slot), (2, 2, late), (3, 1, late | {"group_verdict": "WARN"}), (4, 0, slot)]
    for number, minutes, row in samples:
        at = {"number": number, "at": now - timedelta(minutes=minutes)}
        ends = ({"partition": p, "end_offset": number * (100 if p == 9 else 1)} for p in range(10))
        append(tables, "lag", *(row | at | each for each in ends), gone | at | {"partition": 1})
    hour = {"group": "payments", "hour": yesterday, "seconds": 3600.0, "warn_s": 60.0, "err_s": 0.0}
    hour |= {"over_s": 36.0, "max_lag": 50, "max_time_lag_s": 7.0, "lost": 3, "members": 2, "produced": 7200}
    hour |= {"consumed": 7200, "samples": 120, "known_samples": 120}
    later = hour | {"hour": yesterday + timedelta(hours=13), "max_time_lag_s": 9.0, "over_s": 0.0, "lost": 0}
    append(tables, "lag_hourly", hour, later, hour | {"topic": "t"})
    record = {"offsets_partition": 0, "log_offset": 1, "timestamp": now, "group": "payments"}
    append(tables, "records", record | {"kind": "OffsetCommit", "committed": 3})
    append(tables, "groups", record | {"gone": False, "members": [{"id": "m", "assigned": []}]})
    append(tables, "state", {"key": "ends", "saved": b"x"})
    plan = {"at": now, "owner": "o", "nonce": "n", "ended": True, "source": "log", "partitions": []}
    append(tables, "progress", plan)
    return tables


def read_examples() -> dict[str, str]:
    """The Python examples of the page, by their first word."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {example.split()[1]: example for example in found}


def render_on_its_day(question: Question, tables: Tables, quote: str = "`") -> str:
    """The query as on the day on which the tables were made: midnight may have passed since."""
    day = tables.frame("progress").selectExpr("to_date(at)").collect()[0][0]
    return question.render(quote).replace("current_date", f"DATE'{day}'")


def check_answers(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    """Fails unless the queries find what their titles say."""
    behind, budget, capacity, deployment, causes, hot, unused, lost = answers.values()
    assert [row[1:] for row in behind] == [("payments", 50, 9.0, 120.0)]
    assert [(row[1], round(row[2], 1), round(row[3], 4)) for row in budget] == [("payments", -4.0, 0.995)]
    assert [(row[1], float(row[3]), float(row[4])) for row in capacity] == [("payments", 2.0, 1.0)]
    assert [row[1:] for row in deployment] == [("payments", 7.0, 9.0, 60.0, 60.0)]
    assert causes == [("no_members", 1, 1, 1, 400.0)]
    assert [(row[1], row[2], row[3], round(row[6], 2)) for row in hot] == [("t", 9, 300, 9.17)]
    assert [row[1] for row in unused] == ["old"]
    assert [(row[1], row[3]) for row in lost] == [("payments", 3)]


def test_each_query_finds_what_its_title_says_in_spark(spark: SparkSession, tables: Tables) -> None:
    register_views(tables)
    found = {name: spark.sql(render_on_its_day(question, tables)) for name, question in QUESTIONS.items()}
    check_answers({name: [tuple(row) for row in frame.collect()] for name, frame in found.items()})


def test_each_query_finds_the_same_in_duckdb(tables: Tables) -> None:
    names: dict[str, Any] = {}
    exec(read_examples()["duckdb"].replace("{tables}", tables.root), names)
    db = names["db"]
    for name, (_, query) in VIEWS.items():
        db.execute(f"CREATE VIEW {name} AS {render_query(query, chr(34))}")
    queries = {name: render_on_its_day(each, tables, '"') for name, each in QUESTIONS.items()}
    check_answers({name: db.sql(query).fetchall() for name, query in queries.items()})


def test_the_first_queries_run_as_they_are_printed_in_both(spark: SparkSession, tables: Tables) -> None:
    register_views(tables)
    names: dict[str, Any] = {}
    exec(read_examples()["duckdb"].replace("{tables}", tables.root), names)
    for query in FIRST_QUERIES:
        rows = [tuple(row) for row in spark.sql(query).collect()]
        assert len(rows) == 1
        assert [row[:2] for row in names["db"].sql(query).fetchall()] == [row[:2] for row in rows]


def test_every_table_is_read_by_others_than_spark(tables: Tables) -> None:
    """Without deletion vectors, and without any other feature that a reader may lack."""
    from deltalake import DeltaTable

    for name in TABLES:
        table = DeltaTable(tables.path(name))
        protocol = table.protocol()
        assert protocol.min_reader_version == 1, name
        assert not protocol.reader_features, name
        rows = tables.frame(name).count()
        assert rows == len(table.to_pandas()) == table.to_pyarrow_table().num_rows > 0, name


def test_every_table_is_read_by_polars(tables: Tables) -> None:
    polars = pytest.importorskip("polars")
    for name in TABLES:
        assert polars.read_delta(tables.path(name)).height == tables.frame(name).count(), name


if __name__ == "__main__":
    PAGE.write_text(replace_tables(PAGE.read_text()))
