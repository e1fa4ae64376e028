"""Notes about the last maintenance. With them, maintenance leaves out a table that has not changed.

The notes of a cluster, or of all clusters (`*`), are a small JSON file in the folder `_maintenance` beside
the tables. Without it, maintenance does everything again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote

import structlog

from koff.spark.tables.schemas import MAINTENANCE, Tables, filesystem, read_text
from koff.spark.worker_errors import summarize_error

log = structlog.get_logger(component="spark.tables.maintenance")


@dataclass(slots=True)
class TableNotes:
    """Notes about one table. Days are ISO dates.

    Of the last maintenance: `version` is the version of the table at its end, `day` its day, `keep_days` its
    retention, `files` the number of files. Files that were replaced before can be deleted from `vacuum_ms` on
    (None: there are none). Rows of days before `sorted_to` are sorted.
    """

    version: int = -1
    day: str = ""
    keep_days: int | None = None
    files: int = 0
    vacuum_ms: int | None = None
    sorted_to: str = ""


class MaintenanceNotes:
    """The notes of one cluster, or of all (`*`)."""

    def __init__(self, tables: Tables, cluster: str) -> None:
        self._tables = tables
        self._path = f"{tables.root}/{MAINTENANCE}/{quote(cluster, safe='')}.json"
        self._notes = self._read()

    def get(self, table: str) -> TableNotes:
        """The notes about a table, which the caller may change."""
        return self._notes.setdefault(table, TableNotes())

    def save(self) -> None:
        """Writes the notes."""
        text = json.dumps({table: asdict(notes) for table, notes in self._notes.items()})
        fs, path = filesystem(self._tables.spark, self._path)
        stream = fs.create(path, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def _read(self) -> dict[str, TableNotes]:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types

        fs, path = filesystem(self._tables.spark, self._path)
        if not fs.exists(path):
            return {}
        try:
            found = json.loads(read_text(self._tables.spark, self._path))
            return {table: TableNotes(**notes) for table, notes in found.items()}
        except (Py4JJavaError, ValueError, TypeError, AttributeError) as error:
            # Another koff wrote the notes, or they were cut off by a kill or a full disk. In a folder, Hadoop
            # keeps checksums beside files, and refuses a file whose checksums were cut off.
            why = summarize_error(error)
            log.warning("the notes of maintenance cannot be read: it does everything again", why=why)
            return {}
