"""Counts records by type, group and partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from koff.cli.text_table import format_table
from koff.records import DecodedMessage, Undecodable, Unknown
from koff.records.record_types import record_type_name

_BUSIEST = 20


class RecordCounts:
    """Counts messages. `format_tables` shows the counts, the highest first."""

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._deleted: Counter[str] = Counter()
        self._groups: Counter[str] = Counter()
        self._partitions: Counter[int] = Counter()

    def add(self, partition: int, message: DecodedMessage) -> None:
        """Counts one message of `partition` of the internal topic."""
        record = message.record
        kind = (
            type(record).__name__ if isinstance(record, Undecodable | Unknown) else record_type_name(record)
        )
        self._types[kind] += 1
        self._deleted[kind] += message.tombstone
        self._groups[message.consumer] += 1
        self._partitions[partition] += 1

    def format_tables(self) -> str:
        """Three tables: all types, then the twenty groups and the twenty partitions with the most records."""
        types = [(name, count, self._deleted[name]) for name, count in self._types.most_common()]
        total = sum(self._types.values())
        return "\n".join(
            [
                format_table(
                    ("TYPE", "RECORDS", "DELETIONS"), [*types, ("all", total, sum(self._deleted.values()))]
                ),
                _format_busiest("GROUP", self._groups),
                _format_busiest("PARTITION", self._partitions),
            ]
        )


def _format_busiest(header: str, counts: Counter[str] | Counter[int]) -> str:
    rows: list[Sequence[str | int]] = [(name, count) for name, count in counts.most_common(_BUSIEST)]
    rest = len(counts) - len(rows)
    return format_table((header, "RECORDS"), rows) + (f"... and {rest} more\n" if rest > 0 else "")
