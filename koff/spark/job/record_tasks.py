"""A large batch of records: Spark's tasks read it, write its files, and return what the state needs of it.

So no record passes through Java. Where the tables are in no folder, a task returns its files, and the driver
writes them: only Java knows that place.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from koff.spark.rows.arrow_bytes import decode_table, encode_table
from koff.spark.rows.decoding import SCHEMA
from koff.spark.rows.newest import LOG_ORDER, coalesce_batches, keep_newest, split_records
from koff.spark.tables.data_files import DataFile, DataFiles
from koff.spark.tables.delta_tables import Tables
from koff.spark.tables.progress import Plan

MOST_OTHERS = 100_000
"""So many records about groups of a batch, at most, are in the driver's memory at once."""


class RecordReader(Protocol):
    """A reader of Spark (`DataSourceReader`) whose batches have the columns `SCHEMA`."""

    def partitions(self) -> Any:
        """What each task reads."""

    def read(self, partition: Any) -> Iterator[Any]:
        """The records of one task."""


class WrittenRecords(NamedTuple):
    """How many records and commits tasks have written, and what the state needs of these.

    `others` are the records about groups in log order; None: there are more than `MOST_OTHERS`.
    """

    records: int
    commits: int
    newest: pa.Table
    others: list[dict[str, Any]] | None


def write_records(tables: Tables, reader: RecordReader, plan: Plan) -> WrittenRecords | None:
    """Writes the records of a batch into the table. Returns None if the table has the batch already."""
    tasks = reader.partitions()
    folder = tables.path("records") if tables.is_local else None
    files = DataFiles("records", folder, plan.cluster, plan.number, plan.at)
    context = tables.spark.sparkContext
    done = context.parallelize(tasks, len(tasks)).map(partial(_write_task, reader, files)).collect()
    added = [file for each in done for file in each.files]
    if not tables.add_files("records", added, plan.cluster, plan.number):
        return None
    return WrittenRecords(
        sum(each.records for each in done),
        sum(each.commits for each in done),
        pa.concat_tables([decode_table(each.newest) for each in done]),
        _sort_others([each.others for each in done]),
    )


def _sort_others(encoded: list[bytes | None]) -> list[dict[str, Any]] | None:
    """The records about groups in log order; None if there are too many of them."""
    tables = [decode_table(each) for each in encoded if each is not None]
    if len(tables) < len(encoded) or sum(map(len, tables)) > MOST_OTHERS:
        return None
    rows: list[dict[str, Any]] = pa.concat_tables(tables).sort_by(LOG_ORDER).to_pylist()
    return rows


class _Written(NamedTuple):
    """What a task returns: its files, and tables as bytes."""

    files: list[DataFile]
    records: int
    commits: int
    newest: bytes
    others: bytes | None


def _write_task(reader: RecordReader, files: DataFiles, task: Any) -> _Written:
    """Reads the records of a task and writes their files."""
    records = commits = 0
    newest, others = [_NOTHING[0]], [_NOTHING[1]]
    for rows in coalesce_batches(reader.read(task)):
        files.write(rows)
        some, rest = split_records(rows)
        records, commits = records + len(rows), commits + len(some)
        newest.append(keep_newest(some))
        if sum(map(len, others)) <= MOST_OTHERS:
            others.append(rest)
    whole = pa.Table.from_batches(others)
    kept = keep_newest(pa.concat_batches(newest))
    return _Written(
        files.close(),
        records,
        commits,
        encode_table(pa.Table.from_batches([kept])),
        encode_table(whole) if len(whole) <= MOST_OTHERS else None,
    )


_NOTHING = split_records(pa.RecordBatch.from_pylist([], SCHEMA))
